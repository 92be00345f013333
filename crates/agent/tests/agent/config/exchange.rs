//! Exchanges of every kind, pools and policies.
use super::*;

/// Two volumes of one host in the pool `array`, each with this exchange.
fn pool(exchanges: [&str; 2]) -> Result<Config, String> {
    let volume = |(n, exchange): (usize, &str)| {
        format!(
            "[[volume]]\nname = \"lun-{n}\"\npool = \"array\"\n[volume.exchange]\n{exchange}\n[[volume.disk]]\n\
             name = \"vm\"\npath = \"/mnt/{n}.img\"\nlisten = \"unix:/run/{n}.sock\"\n"
        )
    };
    let volumes: String = exchanges.into_iter().enumerate().map(volume).collect();
    check(&format!("host = \"kvm-01\"\n{volumes}"))
}

#[test]
fn volumes_of_a_pool_meet_in_one_exchange() {
    let file = "file = \"/mnt/x\"\nslots = 8";
    let config = pool([file, file]).unwrap();
    for (volume, member) in config.volumes.iter().zip(["kvm-01/lun-0", "kvm-01/lun-1"]) {
        assert_eq!(volume.meets_as(), "array");
        assert_eq!(volume.pool.as_ref().unwrap().member.as_str(), member);
    }
    let group = |port: u32| {
        format!("udp = \"239.7.7.7:{port}\"\ninterface = \"eth1\"\nkey_file = \"/etc/key\"")
    };
    let udp = |port: u32, peer: &str| format!("udp = \"127.0.0.1:{port}\"\npeers = [\"{peer}\"]");
    pool([&group(7), &group(7)]).unwrap();
    pool([&udp(7, "127.0.0.1:8"), &udp(8, "127.0.0.1:7")]).unwrap();
    let fixed = format!("{file}\nslot = 3");
    let etcd = "etcd = [\"http://127.0.0.1:2379\"]";
    pool([etcd, etcd]).unwrap();
    for (first, second, says) in [
        (file, &*file.replace("/x", "/y"), "is not the exchange of volume lun-0, of the same pool"),
        (file, "file = \"/mnt/x\"\nslots = 9", "is not the exchange of volume lun-0"),
        (file, etcd, "is not the exchange of volume lun-0"),
        (etcd, &format!("{etcd}\nprefix = \"/x/\""), "is not the exchange of volume lun-0"),
        (&fixed, &fixed, "slot = 3: is the slot of volume lun-0"),
        (
            "file = \"/mnt/x\"\nslots = 1",
            "file = \"/mnt/x\"\nslots = 1",
            "has 1 slots for the 2 volumes",
        ),
        (
            &udp(7, "127.0.0.1:8"),
            &format!("{}\nkey_file = \"/etc/key\"", udp(8, "127.0.0.1:7")),
            "unlike with volume lun-0",
        ),
        (&group(7), &group(8), "is in another group than volume lun-0"),
        (&group(7), &udp(8, "127.0.0.1:7"), "is in another group than volume lun-0"),
        (
            &udp(7, "127.0.0.1:8"),
            &udp(8, "127.0.0.1:9"),
            "lacks 127.0.0.1:7, the address of volume lun-0",
        ),
        (
            &udp(7, "127.0.0.1:9"),
            &udp(8, "127.0.0.1:7"),
            "needs 127.0.0.1:8 among the peers of volume lun-0",
        ),
        (&udp(7, "127.0.0.1:9"), &udp(7, "127.0.0.1:9"), "is the address of volume lun-0"),
    ] {
        let message = pool([first, second]).unwrap_err();
        assert!(message.starts_with("parda.toml:") && message.contains(says), "{says}: {message}");
    }
    // By a name a host may be at any address.
    pool([
        "udp = \"10.0.0.1:7\"\npeers = [\"kvm-01:8\"]\nkey_file = \"/etc/key\"",
        "udp = \"10.0.0.1:8\"\npeers = [\"10.0.0.1:7\"]\nkey_file = \"/etc/key\"",
    ])
    .unwrap();
}

#[test]
fn a_pool_has_a_name_an_exchange_and_room_for_its_hosts() {
    let with_pool =
        |name: &str| GOOD.replace("\"array-a\"\n", &format!("\"array-a\"\npool = \"{name}\"\n"));
    let with = |name: &str| check(&with_pool(name));
    assert_eq!(with("p").unwrap().volumes[0].meets_as(), "p");
    assert!(with("").unwrap_err().contains("pool = \"\": must not be empty"));
    let slash = GOOD.replace("\"array-a\"\n", "\"a/b\"\npool = \"p\"\n");
    assert!(check(&slash).unwrap_err().contains("HOST/VOLUME would be ambiguous"));
    let beside = format!(
        "{}\n[[volume]]\nname = \"p\"\n[[volume.disk]]\nname = \"p\"\npath = \"/mnt/p\"\nlisten = \"unix:/run/p\"\n",
        with_pool("p")
    );
    let message = check(&beside).unwrap_err();
    assert!(message.contains("is the name of volume p, which is not in the pool"), "{message}");
    let long = GOOD.replace("\"array-a\"\n", &format!("\"{}\"\npool = \"p\"\n", "x".repeat(58)));
    assert!(
        check(&long).unwrap_err().contains("at most 63 bytes together"),
        "kvm-01/ and 58 bytes are 65"
    );
    let alone = GOOD.split_once("[volume.exchange]").unwrap();
    let alone = format!("{}{}", alone.0, &alone.1[alone.1.find("[[volume.disk]]").unwrap()..]);
    let alone = alone.replace("\"array-a\"\n", "\"array-a\"\npool = \"p\"\n");
    assert!(check(&alone).unwrap_err().contains("needs [volume.exchange]"));
}

/// An exchange that is a disk is refused, whatever both are called.
#[test]
fn an_exchange_that_is_a_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("vm.img"), [0; 4096]).unwrap();
    std::os::unix::fs::symlink("vm.img", at("link")).unwrap();
    std::fs::hard_link(at("vm.img"), at("hard")).unwrap();
    let with = |exchange: &str, disk: &str| {
        let text = GOOD.replace("/mnt/array-a/parda.exchange", exchange);
        check(&text.replace("/mnt/array-a/vm1.img", disk))
    };
    for exchange in ["vm.img", "./vm.img", "link", "hard"] {
        let message = with(&at(exchange), &at("vm.img")).unwrap_err();
        let says = ["parda.toml:11:8: file = ", "the disk vm1 of volume array-a"];
        assert!(says.iter().all(|says| message.contains(says)), "{message}");
    }
    with(&at("exchange"), &at("vm.img")).unwrap();
    let uri = "nbd+unix:///vm2?socket=/run/array.sock";
    assert!(with(uri, &at("vm.img")).unwrap_err().contains("the disk vm2"));
    // The other disk of this export is 8 GiB.
    let beyond = GOOD.replace("/mnt/array-a/parda.exchange", uri);
    check(&beyond.replace("slots = 64", "slots = 64\noffset = \"8GiB\"")).unwrap();
}

/// The disks of all volumes count, and so do their exchanges.
#[test]
fn an_exchange_is_compared_over_all_volumes() {
    let second = GOOD.split_once("[[volume]]").unwrap().1.replace("array-a", "array-b");
    let second = second.replace("\"vm", "\"other").replace("///vm2", "///other2");
    let both = |second: &str| check(&format!("{GOOD}\n[[volume]]{second}"));
    both(&second).unwrap();
    let message = both(&second.replace("array-b/parda.exchange", "array-a/vm1.img")).unwrap_err();
    assert!(message.contains("the disk vm1 of volume array-a"), "{message}");
    let message = both(&second.replace("array-b/parda.ex", "array-a/parda.ex")).unwrap_err();
    assert!(message.contains("is the exchange of volume array-a"), "{message}");
}

/// The same file with an exchange over UDP.
fn with_udp(keys: &str) -> String {
    let file = "file = \"/mnt/array-a/parda.exchange\"\nslots = 64\nslot = 3";
    assert!(GOOD.contains(file));
    GOOD.replace(file, keys)
}

#[test]
fn an_exchange_over_udp_means_what_it_says() {
    let keys = "key_file = \"/etc/parda/key\"";
    for (text, shown) in [
        (
            "udp = \"10.1.2.3:7077\"\npeers = [\"kvm-02\", \"10.1.2.5:9\"]",
            "udp 10.1.2.3:7077, 2 peers",
        ),
        ("udp = \"[fd00::1]:7077\"\npeers = [\"fd00::2\"]", "udp [fd00::1]:7077, 1 peer"),
        ("udp = \"239.7.7.7:7077\"\ninterface = \"eth1\"", "udp 239.7.7.7:7077 at eth1"),
        ("udp = \"[ff15::7]:7077\"\ninterface = \"eth1\"", "udp [ff15::7]:7077 at eth1"),
    ] {
        let config = check(&with_udp(&format!("{text}\n{keys}"))).unwrap();
        assert_eq!(config.volumes[0].exchange.as_ref().unwrap().to_string(), shown);
    }
    // Without keys, but on loopback only.
    check(&with_udp("udp = \"127.0.0.1:7077\"\npeers = [\"127.0.0.2\"]")).unwrap();
    check(&with_udp("udp = \"[::1]:7077\"\npeers = [\"[::1]:7078\"]")).unwrap();
}

#[test]
fn what_is_wrong_with_an_exchange_over_udp_is_pointed_at() {
    let udp = "udp = \"10.1.2.3:7077\"";
    let peers = "peers = [\"10.1.2.4\"]";
    let keys = "key_file = \"/etc/parda/key\"";
    for (text, key, says) in [
        (format!("{udp}\n{peers}"), "", "without keys anybody"),
        (format!("udp = \"127.0.0.1:7077\"\n{peers}"), "", "without keys anybody"),
        ("udp = \"127.0.0.1:7077\"\npeers = [\"localhost\"]".to_owned(), "", "without keys"),
        ("udp = \"239.7.7.7:7\"\ninterface = \"lo\"".to_owned(), "", "without keys"),
        (format!("{udp}\n{keys}"), "", "addresses or names of 1 to 1024 hosts"),
        (format!("{udp}\npeers = []\n{keys}"), "peers", "1 to 1024 hosts"),
        (format!("{udp}\npeers = [\"a b\"]\n{keys}"), "peers = ", "neither an address nor a name"),
        (format!("{udp}\npeers = [\"fd00::1\"]\n{keys}"), "peers = ", "same family"),
        (format!("{udp}\npeers = [\"239.1.1.1\"]\n{keys}"), "peers = ", "no address of one host"),
        (format!("{udp}\npeers = [\"10.1.2.4:0\"]\n{keys}"), "peers = ", "port 0"),
        (format!("udp = \"kvm-01:7077\"\n{peers}\n{keys}"), "udp", "ADDRESS:PORT"),
        (format!("udp = \"10.1.2.3\"\n{peers}\n{keys}"), "udp", "ADDRESS:PORT"),
        (format!("udp = \"10.1.2.3:0\"\n{peers}\n{keys}"), "udp", "port 0"),
        (format!("udp = \"255.255.255.255:7\"\n{peers}\n{keys}"), "udp", "broadcast"),
        (format!("udp = \"239.7.7.7:7\"\n{keys}"), "", "interface where the multicast group is"),
        (format!("udp = \"239.7.7.7:7\"\n{peers}\n{keys}"), "peers", "not for a multicast group"),
        (format!("udp = \"239.7.7.7:7\"\ninterface = \"a/b\"\n{keys}"), "interface", "no name"),
        (format!("{udp}\n{peers}\ninterface = \"eth1\"\n{keys}"), "interface", "multicast group"),
        (format!("{udp}\n{peers}\nslots = 8\n{keys}"), "slots", "has slots"),
        (format!("{udp}\n{peers}\noffset = \"4KiB\"\n{keys}"), "offset", "has slots"),
        (format!("file = \"/x\"\n{udp}\n{peers}\n{keys}"), "udp", "contradicts file"),
        (format!("file = \"/x\"\n{keys}"), "key_file", "is for udp"),
        ("slot = 3".to_owned(), "", "names no place where hosts meet"),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(error.starts_with("parda.toml:1") && error.contains(key), "{text}: {error}");
    }
    let other = with_udp(&format!("{udp}\n{peers}\n{keys}"));
    let second = other[other.find("[[volume]]").unwrap()..].replace("array-a", "array-b");
    let error = check(&format!("{other}\n{second}")).unwrap_err();
    assert!(error.contains("is the address of volume array-a"), "{error}");
    // All addresses of this host are in the way of each, at one port.
    for (mine, theirs, collide) in [
        ("127.0.0.1:7077", "0.0.0.0:7077", true),
        ("0.0.0.0:7077", "10.1.2.3:7077", true),
        ("[::]:7077", "[fd00::1]:7077", true),
        ("10.1.2.3:7077", "10.1.2.4:7077", false),
        ("0.0.0.0:7077", "10.1.2.3:7078", false),
        ("0.0.0.0:7077", "[fd00::1]:7077", false),
    ] {
        let at =
            |address: &str| with_udp(&format!("udp = \"{address}\"\npeers = [\"kvm-02\"]\n{keys}"));
        let second = at(theirs)[GOOD.find("[[volume]]").unwrap()..]
            .replace("array-a", "array-b")
            .replace("unix:/run/parda/array-a", "unix:/run/parda/array-b")
            .replace("/run/array.sock", "/run/other.sock");
        let checked = check(&format!("{}\n{second}", at(mine)));
        assert_eq!(checked.is_err(), collide, "{mine} {theirs}: {checked:?}");
    }
}

#[test]
fn a_fallback_is_an_exchange_of_slots_beside_another_one() {
    let udp = "udp = \"127.0.0.1:7077\"\npeers = [\"127.0.0.2\"]";
    let config = check(&with_udp(&format!("{udp}\nfallback = {{ file = \"/x\" }}"))).unwrap();
    let shown = config.volumes[0].exchange.as_ref().unwrap().to_string();
    assert_eq!(shown, "udp 127.0.0.1:7077, 1 peer, fall-back /x");
    let etcd = "etcd = [\"http://127.0.0.1\"]\nfallback = { file = \"/x\", slots = 8, slot = 7 }";
    check(&with_udp(etcd)).unwrap();
    for (text, says) in [
        (format!("{udp}\nfallback = {{ file = \"/x\", slots = 0 }}"), "fallback.slots"),
        (format!("{udp}\nfallback = {{ file = \"/x\", slot = 64 }}"), "must be from 0 to 63"),
        (format!("{udp}\nfallback = {{ slots = 8 }}"), "missing field"),
        (format!("{udp}\nfallback = {{ file = \"/x\", udp = \"y\" }}"), "`udp` is not known here"),
        ("file = \"/x\"\nfallback = { file = \"/y\" }".to_owned(), "is a fall-back itself"),
        (
            format!("{udp}\nfallback = {{ file = \"nbd+unix:///vm2?socket=/run/array.sock\" }}"),
            "has its data",
        ),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.starts_with("parda.toml:1"), "{text}: {error}");
        assert!(error.contains(says) || error.contains("slots = 0"), "{text}: {error}");
    }
}

#[test]
fn a_check_reads_the_key_file_and_points_at_its_line() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (key, file) = (dir.path().join("key"), dir.path().join("parda.toml"));
    let text =
        with_udp(&format!("udp = \"10.1.2.3:7077\"\npeers = [\"10.1.2.4\"]\nkey_file = {key:?}"));
    std::fs::write(&file, text).unwrap();
    // An agent starts without the key, and tries again.
    Config::read(&file).unwrap();
    let error = || Config::look_into(&Document::read(&file).unwrap()).unwrap_err().to_string();
    assert!(error().contains("cannot read the key file"), "{}", error());
    std::fs::write(&key, "secret\n").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(error().contains("parda.toml:13:") && error().contains("mode 0644"), "{}", error());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(error().contains("key:1: is no key") && !error().contains("secret"), "{}", error());
    std::fs::write(&key, "ab".repeat(31) + "cd\n").unwrap();
    Config::look_into(&Document::read(&file).unwrap()).unwrap();
}

#[test]
fn an_exchange_over_etcd_means_what_it_says() {
    let ca = "tls = { ca = \"/etc/parda/ca.pem\" }";
    for (text, shown) in [
        ("etcd = [\"http://127.0.0.1:2379\"]".to_owned(), "etcd http://127.0.0.1:2379"),
        (format!("etcd = [\"https://a\", \"https://b\"]\n{ca}"), "etcd https://a:2379 and 1 other"),
        (
            "etcd = [\"http://a\", \"http://b\", \"http://c\"]\nplain = true".to_owned(),
            "etcd http://a:2379 and 2 others",
        ),
    ] {
        let config = check(&with_udp(&text)).unwrap();
        assert_eq!(config.volumes[0].exchange.as_ref().unwrap().to_string(), shown);
    }
}

#[test]
fn what_is_wrong_with_an_exchange_over_etcd_is_pointed_at() {
    let etcd = "etcd = [\"http://127.0.0.1:2379\"]";
    let tls = "etcd = [\"https://a\"]";
    for (text, key, says) in [
        ("etcd = []".to_owned(), "etcd", "URLs of 1 to 16 members"),
        ("etcd = [\"a:2379\"]".to_owned(), "etcd = ", "https://HOST:PORT"),
        ("etcd = [\"http://[::1]\", \"http://a\"]".to_owned(), "etcd = ", "without TLS"),
        ("etcd = [\"https://u:p@a\"]".to_owned(), "etcd = ", "user or password"),
        ("etcd = [\"https://a/v3\"]".to_owned(), "etcd = ", "paths are etcd's own"),
        (tls.to_owned(), "", "No CA is trusted unless it is named"),
        (format!("{etcd}\ntls = {{ ca = \"x\" }}"), "tls", "none does"),
        (format!("{tls}\ntls = {{ certificate = \"x\", key = \"y\" }}"), "tls", "missing field"),
        (format!("{tls}\ntls = {{ ca = \"x\", key = \"y\" }}"), "key", "of no certificate"),
        (
            format!("{tls}\ntls = {{ ca = \"x\", certificate = \"y\" }}"),
            "certificate",
            "private key",
        ),
        (format!("{etcd}\nuser = \"parda\""), "user", "add password_file"),
        (format!("{etcd}\nuser = \"\"\npassword_file = \"x\""), "user", "empty"),
        (format!("{etcd}\npassword_file = \"x\""), "password_file", "add user"),
        (format!("{etcd}\nprefix = \"/parda\""), "prefix", "must end with /"),
        (format!("{etcd}\nslots = 8"), "slots", "has slots"),
        (format!("{etcd}\npeers = [\"a\"]"), "peers", "is for udp"),
        (format!("file = \"/x\"\n{etcd}"), "etcd", "contradicts file"),
        (
            format!("udp = \"127.0.0.1:7\"\npeers = [\"127.0.0.2\"]\n{etcd}"),
            "etcd",
            "contradicts udp",
        ),
        ("file = \"/x\"\nplain = true".to_owned(), "plain", "is for etcd"),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(error.starts_with("parda.toml:1") && error.contains(key), "{text}: {error}");
    }
}

#[test]
fn a_policy_is_in_the_etcd_that_it_names_or_in_that_of_the_exchange() {
    let with = |top: &str, exchange: &str| {
        check(&with_udp(exchange).replacen("\n[[volume]]", &format!("\n{top}\n[[volume]]"), 1))
    };
    let state = "state = \"/s\"\n[policy]\n";
    let (one, other) = ("etcd = [\"http://127.0.0.1:1\"]", "etcd = [\"http://127.0.0.1:2\"]");
    let found = |top: &str, exchange: &str| with(top, exchange).unwrap().policy.unwrap();
    assert_eq!(found(state, one).etcd.to_string(), "etcd http://127.0.0.1:1");
    let own = format!("{state}{other}\nperiod = \"1s\"");
    let policy = found(&own, one);
    assert_eq!(
        (policy.etcd.to_string().as_str(), policy.period.as_secs()),
        ("etcd http://127.0.0.1:2", 1)
    );
    assert_eq!(policy.kept.to_str(), Some("/s.policy"));
    assert_eq!(with("", one).unwrap().policy, None, "an exchange over etcd brings no policy");
    let file = "file = \"/x\"";
    for (top, exchange, says) in [
        ("[policy]", one, "needs state"),
        (state, file, "names no cluster"),
        (&format!("{state}prefix = \"/x/\""), one, "belongs to a cluster of its own"),
        (&format!("{state}etcd = [\"http://a\"]"), file, "without TLS"),
        (&format!("{state}period = \"99ms\""), one, "must be from 100ms to 1h"),
        (&format!("{state}perod = \"1s\""), one, "unknown field `perod`"),
    ] {
        let error = with(top, exchange).unwrap_err();
        assert!(error.contains(says) && error.starts_with("parda.toml:"), "{top}: {error}");
    }
}

#[test]
fn a_check_reads_the_files_for_etcd_and_points_at_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parda.toml");
    let (ca, password) = (dir.path().join("ca.pem"), dir.path().join("password"));
    let tls = format!("etcd = [\"https://a\"]\ntls = {{ ca = {ca:?} }}");
    let error = |keys: &str| {
        std::fs::write(&file, with_udp(keys)).unwrap();
        // An agent starts without the files, and tries again.
        Config::read(&file).unwrap();
        Config::look_into(&Document::read(&file).unwrap())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let missing = error(&tls).unwrap_err();
    assert!(missing.contains("parda.toml:1") && missing.contains("ca = "), "{missing}");
    let user =
        format!("etcd = [\"http://127.0.0.1\"]\nuser = \"parda\"\npassword_file = {password:?}");
    let missing = error(&user).unwrap_err();
    assert!(missing.contains("parda.toml:1") && missing.contains("password file"), "{missing}");
    std::fs::write(&password, "secret\n").unwrap();
    let exposed = error(&user).unwrap_err();
    assert!(exposed.contains("chmod 0600") && !exposed.contains("secret"), "{exposed}");
}

/// What etcd has on a disk that is under control would be slow when it is needed most.
#[test]
fn etcd_on_a_volume_under_control_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("vm1.img");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let with = |data: &std::path::Path| {
        let etcd = format!("etcd = [\"http://127.0.0.1\"]\ndata_dir = {data:?}");
        let text = with_udp(&etcd).replace("/mnt/array-a/vm1.img", image.to_str().unwrap());
        check(&text).unwrap().warnings()
    };
    let warnings = with(dir.path());
    assert!(warnings[0].contains("etcd would be slow when it is needed"), "{warnings:?}");
    assert!(warnings[0].contains("vm1.img"), "{warnings:?}");
    assert_eq!(with(std::path::Path::new("/proc")), Vec::<String>::new());
    assert_eq!(with(std::path::Path::new("/nonexistent")), Vec::<String>::new());
}
