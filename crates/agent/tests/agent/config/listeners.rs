//! Listeners: who may connect, and by which certificates.
use parda_block::SocketAccess;

use super::*;

#[test]
fn listeners_are_checked() {
    let unix = "listen = \"unix:/run/parda/array-a.sock\"";
    for bad in ["unix:", "tcp:10809", "tcp:host:port", "/run/x.sock", "udp:1.2.3.4:5"] {
        let message = check(&GOOD.replacen(unix, &format!("listen = \"{bad}\""), 1)).unwrap_err();
        assert!(message.contains("parda.toml:18:10: listen"), "{message}");
    }
    for good in ["tcp:127.0.0.1:10809", "tcp:[::1]:10809", "unix:relative.sock"] {
        check(&GOOD.replacen(unix, &format!("listen = \"{good}\""), 1)).unwrap();
    }
    let long = format!("listen = \"unix:/{}\"", "x".repeat(120));
    assert!(check(&GOOD.replacen(unix, &long, 1)).unwrap_err().contains("at most 107 bytes"));
}

/// The good file with a `[[listener]]` of these lines at the end.
fn with_listener(lines: &str) -> String {
    format!("{GOOD}[[listener]]\n{lines}\n")
}

const UNIX: &str = "address = \"unix:/run/parda/array-a.sock\"";

#[test]
fn a_listener_says_who_may_connect() {
    let listener = |text: &str| check(text).unwrap().volumes[0].listeners[0].clone();
    let plain = listener(GOOD);
    assert_eq!(plain.address.to_string(), "unix:/run/parda/array-a.sock");
    assert_eq!(plain.access, None);
    let same = listener(&with_listener(&format!("{UNIX}\nmode = \"0600\"")));
    assert_eq!(same.access, Some(SocketAccess { mode: 0o600, owner: None, group: None }));
    let lines = format!("{UNIX}\nmode = \"0660\"\nowner = \"root\"\ngroup = \"107\"");
    let open = listener(&with_listener(&lines));
    assert_eq!(open.access, Some(SocketAccess { mode: 0o660, owner: Some(0), group: Some(107) }));
    let config = check(&with_listener(&format!("{UNIX}\nmode = \"0666\""))).unwrap();
    assert!(config.warnings()[0].contains("every user of this host"), "{:?}", config.warnings());
    assert_eq!(check(GOOD).unwrap().warnings(), Vec::<String>::new());
    let unused = check(&with_listener("address = \"unix:/run/other\"")).unwrap().warnings();
    assert!(unused[0].starts_with("unix:/run/other: a [[listener]] where no disk"), "{unused:?}");
}

#[test]
fn other_hosts_reach_a_disk_without_tls_only_if_the_file_says_so() {
    let exposed = GOOD.replace("unix:/run/parda/array-a.sock", "tcp:0.0.0.0:10809");
    let refused = check(&exposed).unwrap_err();
    assert!(
        refused.starts_with(
            "parda.toml:18:10: listen = \"tcp:0.0.0.0:10809\": is not a loopback address"
        ),
        "{refused}"
    );
    let listener = "[[listener]]\naddress = \"tcp:0.0.0.0:10809\"\n";
    let refused = check(&format!("{exposed}{listener}plain = false\n")).unwrap_err();
    assert!(refused.starts_with("parda.toml:27:11: address"), "{refused}");
    let config = check(&format!("{exposed}{listener}plain = true\n")).unwrap();
    assert!(config.volumes[0].listeners[0].plain);
    let warnings = config.warnings();
    assert!(
        warnings[0].contains("without TLS") && warnings[0].ends_with("vm1 vm2"),
        "{warnings:?}"
    );
}

#[test]
fn everything_wrong_with_a_listener_is_pointed_at() {
    let tcp = "address = \"tcp:127.0.0.1:1\"";
    for (lines, error) in [
        ("address = \"carrier pigeon\"".to_owned(), "27:11: address = \"carrier pigeon\": must be"),
        (format!("{UNIX}\n[[listener]]\n{UNIX}"), "29:11: address = "),
        (format!("{UNIX}\nmode = \"rw\""), "28:8: mode = \"rw\": must be three octal digits"),
        (format!("{UNIX}\nmode = 660"), "28:8: mode = 660: must be a text"),
        (
            format!("{UNIX}\nowner = \"no such one\""),
            "28:9: owner = \"no such one\": this host has",
        ),
        (
            format!("{UNIX}\ngroup = \"no such one\""),
            "28:9: group = \"no such one\": this host has",
        ),
        (format!("{UNIX}\nplain = true"), "28:9: plain = true: is for TCP"),
        (format!("{UNIX}\nmodes = \"0600\""), "28:1: modes = \"0600\": unknown field"),
        (format!("{tcp}\nmode = \"0600\""), "28:8: mode = \"0600\": is for unix sockets"),
        (format!("{tcp}\ngroup = \"root\""), "28:9: group = \"root\": is for unix sockets"),
        ("mode = \"0600\"".to_owned(), "26:1: [[listener]]: missing field `address`"),
    ] {
        let message = check(&with_listener(&lines)).unwrap_err();
        assert!(message.starts_with(&format!("parda.toml:{error}")), "{lines}: {message}");
    }
}

#[test]
fn tls_files_are_read_by_the_check_and_keep_no_agent_from_starting() {
    let exposed = GOOD.replace("unix:/run/parda/array-a.sock", "tcp:0.0.0.0:10809");
    let text =
        |lines: &str| format!("{exposed}[[listener]]\naddress = \"tcp:0.0.0.0:10809\"\n{lines}\n");
    let listener = |lines: &str| check(&text(lines));
    let dir = tempfile::tempdir().unwrap();
    let (pem, key) = (dir.path().join("pem"), dir.path().join("key"));
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&pem, identity.cert.pem()).unwrap();
    std::fs::write(&key, identity.signing_key.serialize_pem()).unwrap();
    let tls = |certificate: &str, key: &str, more: &str| {
        format!("[listener.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{more}")
    };
    let (pem, key) = (pem.to_str().unwrap(), key.to_str().unwrap());
    let good = listener(&tls(pem, key, &format!("clients = \"{pem}\""))).unwrap();
    assert!(good.volumes[0].listeners[0].tls.as_ref().unwrap().required);
    assert_eq!(good.warnings(), Vec::<String>::new());
    let anybody = listener(&tls(pem, key, "")).unwrap().warnings();
    assert!(anybody[0].contains("tls has no clients"), "{anybody:?}");
    for (lines, error) in [
        (tls("/no/where", key, ""), "29:15: certificate = \"/no/where\": cannot be read: No such"),
        (tls(key, key, ""), "29:15: certificate = "),
        (tls(pem, pem, ""), "30:7: key = "),
        (
            tls(pem, key, "clients = \"/dev/null\""),
            "31:11: clients = \"/dev/null\": is not a regular",
        ),
    ] {
        let message = Config::look_into(&Document::new("parda.toml", text(&lines))).unwrap_err();
        assert!(message.to_string().starts_with(&format!("parda.toml:{error}")), "{message}");
        assert!(listener(&lines).is_ok(), "{lines}");
    }
    for (lines, error) in [
        (tls(pem, key, "required = false"), "31:12: required = false: leaves clients without TLS"),
        (format!("plain = true\n{}", tls(pem, key, "")), "28:9: plain = true: contradicts tls"),
        (tls(pem, key, "requires = true"), "31:1: requires = true: unknown field"),
    ] {
        let message = listener(&lines).unwrap_err();
        assert!(message.starts_with(&format!("parda.toml:{error}")), "{lines}: {message}");
    }
    let plain = format!("plain = true\n{}", tls(pem, key, "required = false"));
    assert!(listener(&plain).unwrap().warnings()[0].contains("without TLS"));
}

#[test]
fn two_volumes_need_listeners_of_their_own() {
    let second = GOOD.split_once("[[volume]]").unwrap().1.replace("array-a\"", "array-b\"");
    let text = format!("{GOOD}\n[[volume]]{}", second.replace("\"vm", "\"other"));
    let message = check(&text).unwrap_err();
    assert!(message.contains("belongs to another volume"), "{message}");
}

#[test]
fn a_socket_has_one_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    std::fs::create_dir_all(real.join("sub")).unwrap();
    std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("../link/s", real.join("link-to-s")).unwrap();
    std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
    let (unix, dir) = ("unix:/run/parda/array-a.sock", dir.path().display());
    let with = |second: &str, more: &str| {
        let text = GOOD.replacen(unix, &format!("unix:{dir}/real/s"), 1);
        check(&format!("{more}{}", text.replacen(unix, second, 1)))
    };
    for same in ["real//s", "real/./s"] {
        assert_eq!(with(&format!("unix:{dir}/{same}"), "").unwrap().volumes[0].listeners.len(), 1);
    }
    with(&format!("unix:{dir}/real/loop"), "").unwrap();
    for (other, protocol) in [
        ("real/sub/../s", "unix"),
        ("link/s", "unix"),
        ("real/link-to-s", "unix"),
        ("real/s", "vhost-user"),
    ] {
        let message = with(&format!("{protocol}:{dir}/{other}"), "").unwrap_err();
        let says = format!("is the socket of unix:{dir}/real/s: write it the same way");
        assert!(
            message.starts_with("parda.toml:24:10: listen") && message.contains(&says),
            "{message}"
        );
    }
    let http = format!("http = {{ address = \"unix:{dir}/link/s\" }}\n");
    let message = with(unix, &http).unwrap_err();
    assert!(
        message.contains("is the address of [http]: give it an address of its own"),
        "{message}"
    );
}
