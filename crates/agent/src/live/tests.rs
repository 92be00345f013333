use parda_policy::PolicyHead;

use super::*;
use crate::events::tests::recorded;

const FILE: &str = "host = \"a\"\nstate = \"STATE\"\n[[volume]]\nname = \"array\"\n[[volume.disk]]\nname = \"vm\"\n\
                    path = \"/d\"\nlisten = \"unix:s\"\nshares = 500\n";

fn start(dir: &Path, text: &str) -> (Live, Config) {
    let text = text.replace("STATE", dir.join("state.toml").to_str().unwrap());
    Live::start(Document::new("parda.toml", text)).unwrap()
}

fn target(disk: &str, listen: Option<&str>) -> Target {
    let disk = DiskName { name: disk.to_owned(), listen: listen.map(str::to_owned) };
    Target::vm("array", disk)
}

fn disk() -> Target {
    target("vm", None)
}

fn shares(config: &Config) -> u32 {
    config.volumes[0].disks()[0].settings.shares().0
}

#[test]
fn what_is_kept_is_there_after_a_restart_and_the_rest_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (live, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 500);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    layers.temporary.set(&Target::volume("array"), "latency_threshold", "20ms".into());
    layers.write().unwrap();
    let config = layers.merged().unwrap();
    assert_eq!(shares(&config), 2000);
    assert_eq!(config.volumes[0].law.law.threshold.secs(), 0.02);
    let from = |target: &Target, key: &str| {
        layers.clone().into_force(Refused::new(), Vec::new()).origins.from(target, key)
    };
    assert_eq!(from(&disk(), "shares"), ValueFrom::State);
    assert_eq!(from(&Target::volume("array"), "latency_threshold"), ValueFrom::Live);
    assert_eq!(from(&disk(), "burst"), ValueFrom::Default);
    assert_eq!(layers.configured(&disk(), "shares"), Some(500.into()));

    let (live, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 2000);
    assert_eq!(config.volumes[0].law.law.threshold.secs(), 0.03);
    let mut layers = live.layers();
    layers.kept.clear(&disk(), "shares");
    assert!(layers.kept.is_empty());
    assert_eq!(shares(&layers.merged().unwrap()), 500);
}

#[test]
fn none_takes_out_what_the_file_has_until_it_is_reset() {
    let dir = tempfile::tempdir().unwrap();
    let tenant = "[[volume.tenant]]\nname = \"none\"\nlimit = { iops = 9 }\n[[volume.disk]]";
    let more =
        "limit = { iops = 5 }\nreservation = 4\nlatency_target = \"5ms\"\ntenant = \"none\"\n";
    let (live, _) = start(dir.path(), &(FILE.replace("[[volume.disk]]", tenant) + more));
    let mut layers = live.layers();
    let of_tenant = Target::tenant("array", "none");
    for key in ["limit", "reservation", "latency_target"] {
        layers.kept.set(&disk(), key, "none".into());
    }
    layers.kept.set(&of_tenant, "limit", "none".into());
    layers.write().unwrap();
    let (live, config) = start(dir.path(), &(FILE.replace("[[volume.disk]]", tenant) + more));
    let left = config.volumes[0].disks()[0].settings;
    assert_eq!((left.limit, left.reservation, left.latency_target), (None, None, None));
    assert_eq!(config.volumes[0].tenants[0].limit, None);
    let mut layers = live.layers();
    layers.kept.clear(&disk(), "limit");
    assert!(layers.merged().unwrap().volumes[0].disks()[0].settings.limit.is_some());
    // A tenant may be called so, and shares are always some.
    layers.kept.set(&disk(), "tenant", "none".into());
    assert!(layers.merged().is_ok());
    layers.kept.set(&disk(), "shares", "none".into());
    assert!(layers.merged().is_err());
}

#[test]
fn a_wrong_value_is_named_as_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.temporary.set(&disk(), "shares", 0.into());
    let error = layers.merged().unwrap_err().to_string();
    assert_eq!(error, "parda.toml: shares = 0: must be from 1 to 1000000");
}

#[test]
fn a_change_that_conflicts_with_the_file_is_left_out_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    layers.kept.set(&disk(), "burst", (-1.0).into());
    let gone = target("gone", None);
    layers.kept.set(&gone, "shares", 7.into());
    layers.write().unwrap();
    let (live, config) = start(dir.path(), FILE);
    assert_eq!((shares(&config), config.volumes[0].disks()[0].settings.burst), (2000, Some(0.0)));
    // The file stays as it is: the disk may come back.
    assert_eq!(live.layers().kept.get(&gone, "shares"), Some(&7.into()));
}

#[test]
fn what_is_left_out_keeps_no_other_setting_from_being_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 0.into());
    layers.write().unwrap();
    let (live, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 500);
    assert_eq!(live.origins().from(&disk(), "shares"), ValueFrom::Configuration);
    let mut in_force = live.in_force().layers;
    in_force.temporary.set(&Target::volume("array"), "latency_threshold", "20ms".into());
    assert_eq!(in_force.merged().unwrap().volumes[0].law.law.threshold.secs(), 0.02);
    assert_eq!(live.layers().kept.get(&disk(), "shares"), Some(&0.into()), "it is kept as it is");
}

#[test]
fn a_change_that_is_left_out_is_an_event_once() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 0.into());
    layers.write().unwrap();
    let recorder = recorded(|| {
        let (live, _) = start(dir.path(), FILE);
        // As each period does while a policy is refused.
        let ended = Takeover(std::sync::mpsc::channel().0);
        for _ in 0..3 {
            live.adopt(Policies::default(), &ended, || true).unwrap();
        }
    });
    let events = recorder.answer(parda_api::EventsQuery::default()).events;
    let left_out = events.iter().filter(|event| event.kind == "change_left_out");
    assert_eq!(left_out.count(), 1);
}

#[test]
fn a_state_file_moves_no_disk_to_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "path", "/etc/passwd".into());
    layers.kept.set(&disk(), "shares", 2000.into());
    layers.write().unwrap();
    let (_, config) = start(dir.path(), FILE);
    assert_eq!(config.volumes[0].disks()[0].backend.place().to_string(), "/d");
    assert_eq!(shares(&config), 2000);
}

#[test]
fn a_state_file_with_a_mistake_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    layers.write().unwrap();
    let path = dir.path().join("state.toml");
    let torn = std::fs::read_to_string(&path).unwrap().replace("shares = 2000", "shares = ");
    std::fs::write(&path, &torn).unwrap();
    let (live, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 500);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "burst", 1.into());
    let error = layers.write().unwrap_err();
    assert!(error.contains("mend it or move it away"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), torn);
}

#[test]
fn of_two_agents_with_one_state_file_neither_writes_over_what_the_other_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = start(dir.path(), FILE);
    let (second, _) = start(dir.path(), FILE);
    let change = |live: &Live, value: i64| {
        let mut layers = live.layers();
        layers.kept.set(&disk(), "shares", value.into());
        layers.write()?;
        live.take(layers.clone(), layers);
        Ok::<_, String>(())
    };
    change(&first, 2000).unwrap();
    assert!(change(&second, 9).unwrap_err().contains("a state file of its own"));
    change(&first, 2001).unwrap();
    let (_, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 2001);
}

#[test]
fn a_pipe_in_place_of_the_state_file_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let path = dir.path().join("state.toml");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    assert!(layers.write().is_err());
}

#[test]
fn a_torn_state_file_stops_no_agent_and_a_file_of_others_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.toml");
    std::fs::write(&path, "").unwrap();
    assert_eq!(shares(&start(dir.path(), FILE).1), 500);
    std::fs::write(&path, "root:x:0:0\n").unwrap();
    let (live, config) = start(dir.path(), FILE);
    assert_eq!(shares(&config), 500);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    let error = layers.write().unwrap_err();
    assert!(error.contains("is no state file of parda"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "root:x:0:0\n");
}

#[test]
fn a_change_that_cannot_be_written_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), &FILE.replace("STATE", "/nowhere/state.toml"));
    let error = live.layers().write().unwrap_err();
    assert!(error.contains("/nowhere/state.toml: the change cannot be kept"), "{error}");
}

#[test]
fn two_disks_of_one_name_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let twin = "[[volume.disk]]\nname = \"vm\"\npath = \"/e\"\nlisten = \"unix:t\"\n";
    let (live, _) = start(dir.path(), &format!("{FILE}{twin}"));
    let mut layers = live.layers();
    let second = target("vm", Some("unix:t"));
    layers.kept.set(&second, "shares", 7.into());
    let config = layers.merged().unwrap();
    let shares: Vec<_> =
        config.volumes[0].disks().iter().map(|disk| disk.settings.shares().0).collect();
    assert_eq!(shares, [500, 7]);
}

/// Policies of the volume, each as TOML below `[volume]`, with revisions from 1 on.
fn policies(revision: u64, text: &str) -> Policies {
    let volume = toml::from_str(&format!("name = \"array\"\n{text}")).unwrap();
    Policies { head: None, volumes: vec![parda_policy::Stored::new(revision, volume)] }
}

/// Layers of a host with a policy, and their part in force.
fn with_policy(live: &Live, policy: Policies, before: &Policies) -> (InForce, Config) {
    Layers { policy, ..live.layers() }.in_force(before).unwrap()
}

#[test]
fn what_counts_over_what_is_default_file_group_vm_and_live() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let shown = |live: &Live, policy: &str| {
        let (in_force, config) = with_policy(live, policies(1, policy), &Policies::default());
        assert_eq!(in_force.refused, Refused::new());
        (shares(&config), in_force.origins.from(&disk(), "shares"))
    };
    assert_eq!(shown(&live, ""), (500, ValueFrom::Configuration));
    let group = "[[group]]\nname = \"g\"\nvms = [\"v*\"]\nshares = 600\nburst = 7\n";
    assert_eq!(shown(&live, group), (600, ValueFrom::Policy));
    let vm = format!("{group}[[vm]]\nname = \"vm\"\nshares = 700\n");
    assert_eq!(shown(&live, &vm), (700, ValueFrom::Policy));
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 800.into());
    live.take(layers.clone(), layers);
    assert_eq!(shown(&live, &vm), (800, ValueFrom::State));
}

#[test]
fn a_policy_is_in_force_as_a_whole_or_the_one_from_before_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(
        dir.path(),
        &FILE.replace("[[volume.disk]]", "[volume.control]\nwindow_min = 8\n[[volume.disk]]"),
    );
    let good = policies(1, "[[vm]]\nname = \"vm\"\nshares = 700\n");
    for bad in [
        // Valid by itself, and in conflict with the file of this host.
        "[control]\nwindow_max = 4\n[[vm]]\nname = \"vm\"\nshares = 900\n",
        "[control]\nmode = \"parda\"\n[[vm]]\nname = \"vm\"\nshares = 0\n",
        "[control]\nfairness = \"beauty\"\n[[vm]]\nname = \"vm\"\nshares = 900\n",
    ] {
        let (in_force, config) = with_policy(&live, policies(2, bad), &good);
        assert_eq!(shares(&config), 700, "{bad}");
        assert_eq!(in_force.layers.policy.volumes[0].revision, 1);
        assert!(in_force.refused.contains_key("array"), "{bad}");
        let (_, config) = with_policy(&live, policies(2, bad), &Policies::default());
        assert_eq!(shares(&config), 500, "{bad}: there is none before");
    }
}

#[test]
fn a_policy_that_contradicts_a_live_change_is_refused_and_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.temporary.set(&Target::volume("array"), "window_min", 8.into());
    live.take(layers.clone(), layers);
    let policy = policies(2, "[control]\nwindow_max = 4\n");
    let (in_force, config) = with_policy(&live, policy.clone(), &Policies::default());
    let why = &in_force.refused["array"];
    assert!(why.contains("window_min = 8, a live change on this host"), "{why}");
    assert_eq!(config.volumes[0].law.law.window_min.0, 8.0);
    assert!(in_force.layers.policy.volumes.is_empty());
    // The policy comes into force once the live change is cleared.
    let mut layers = live.layers();
    layers.temporary.clear(&Target::volume("array"), "window_min");
    live.take(layers.clone(), layers);
    let (in_force, config) = with_policy(&live, policy, &Policies::default());
    assert_eq!((in_force.refused.len(), config.volumes[0].law.law.window_max.0), (0, 4.0));
}

/// A file whose setting the policy from before overrides changes nothing, though a live change conflicts with it.
#[test]
fn a_refused_policy_stays_refused_whatever_the_file_says_below_the_one_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        FILE.replace("[[volume.disk]]", "[volume.control]\nwindow_max = 15\n[[volume.disk]]");
    let before = policies(3, "[control]\nwindow_max = 32\n[[vm]]\nname = \"vm\"\nshares = 700\n");
    for text in [FILE, &file] {
        let (live, _) = start(dir.path(), text);
        let mut layers = live.layers();
        layers.temporary.set(&Target::volume("array"), "window_min", 20.into());
        live.take(layers.clone(), layers);
        let refused = policies(4, "[control]\nwindow_max = 10\n");
        let (in_force, config) = with_policy(&live, refused, &before);
        let volumes = &in_force.layers.policy.volumes;
        assert_eq!((volumes.len(), volumes[0].revision), (1, 3), "{text}");
        let why = &in_force.refused["array"];
        assert!(why.contains("window_min = 20, a live change on this host"), "{why}");
        let law = &config.volumes[0].law.law;
        assert_eq!((law.window_min.0, law.window_max.0, shares(&config)), (20.0, 32.0, 700));
        assert!(in_force.left_out.is_empty());
    }
}

#[test]
fn a_live_change_that_needs_the_policy_from_before_stays_when_a_wrong_one_comes() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        FILE.replace("[[volume.disk]]", "[volume.control]\nwindow_max = 15\n[[volume.disk]]");
    let (live, _) = start(dir.path(), &file);
    let before = policies(3, "[control]\nwindow_max = 32\n");
    let mut layers = Layers { policy: before.clone(), ..live.layers() };
    layers.temporary.set(&Target::volume("array"), "window_min", 20.into());
    live.take(layers.clone(), layers);
    let wrong = policies(4, "[control]\nfairness = \"beauty\"\n");
    let (in_force, config) = with_policy(&live, wrong, &before);
    assert!(in_force.refused.contains_key("array") && in_force.left_out.is_empty());
    let law = &config.volumes[0].law.law;
    assert_eq!((law.window_min.0, law.window_max.0), (20.0, 32.0));
}

#[test]
fn a_steered_vm_takes_its_shares_and_its_tenant_and_nothing_else() {
    use crate::config::Work;
    for (table, vm) in [
        ("[volume.steer]\ndevice = \"/dev/sdz\"\n[[volume.steer.vm]]", "cgroup = \"libvirt:vm\""),
        (
            "control = { mode = \"observe\" }\n[volume.qemu]\nsockets = \"/run/*.qmp\"\ndisks = [\"*\"]\n[[volume.qemu.vm]]",
            "",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let text =
            format!("host = \"a\"\n[[volume]]\nname = \"array\"\n{table}\nname = \"vm\"\n{vm}\n");
        let (live, _) = start(dir.path(), &text);
        let group = "[[tenant]]\nname = \"gold\"\nshares = 9\n[[tenant]]\nname = \"old\"\nreservation = 5\n\
                     [[group]]\nname = \"all\"\nvms = [\"*\"]\nshares = 700\nburst = 3\ntenant = \"gold\"\n";
        let (in_force, config) = with_policy(&live, policies(1, group), &Policies::default());
        assert_eq!(in_force.refused, Refused::new());
        let said = match &config.volumes[0].work {
            Work::Steer(steer) => steer.vms.to_string(),
            Work::Qemu(qemu) => qemu.vms.to_string().replace(", others: 1000", ""),
            Work::Serve(_) => panic!("{table}"),
        };
        assert_eq!(said, "vm: 700 of gold");
        let tenants = config.volumes[0].tenants.iter().map(|it| (&*it.name, it.shares));
        let wanted = [("gold", Some(9)), ("old", None)];
        assert_eq!(
            tenants.collect::<Vec<_>>(),
            wanted,
            "no VM here is of the one with a reservation"
        );
    }
}

#[test]
fn a_steered_vm_takes_its_shares_and_its_limit_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let text = "host = \"a\"\n[[volume]]\nname = \"array\"\n[volume.steer]\ndevice = \"/dev/sdz\"\n\
                [[volume.steer.vm]]\nname = \"vm\"\ncgroup = \"libvirt:vm\"\n";
    let (live, _) = start(dir.path(), text);
    let policy = policies(
        1,
        "[[group]]\nname = \"all\"\nvms = [\"*\"]\nshares = 700\nburst = 3\nlimit = { iops = 90 }\n",
    );
    let (in_force, config) = with_policy(&live, policy, &Policies::default());
    assert_eq!(in_force.refused, Refused::new());
    let vms = |config: &Config| match &config.volumes[0].work {
        crate::config::Work::Steer(steer) => steer.vms.to_string(),
        _ => panic!(),
    };
    assert_eq!(vms(&config), "vm: 700 limit = { iops = 90.0 }");
    let mut layers = in_force.layers;
    let limit = |iops: i64| toml::Value::from(Table::from_iter([("iops".to_owned(), iops.into())]));
    layers.temporary.set(&disk(), "limit", limit(80));
    assert_eq!(vms(&layers.merged().unwrap()), "vm: 700 limit = { iops = 80.0 }");
    layers.temporary.set(&disk(), "limit", limit(3));
    let error = layers.merged().unwrap_err().to_string();
    assert!(error.contains("which must be 4 or more on a steered device"), "{error}");
}

#[test]
fn a_tenant_is_changed_live_over_policy_and_file_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{FILE}[[volume.tenant]]\nname = \"gold\"\nshares = 100\nreservation = 5\n");
    let (live, _) = start(dir.path(), &text);
    let of = |config: &Config, at: usize| {
        let tenant = &config.volumes[0].tenants[at];
        (tenant.name.to_string(), tenant.shares, tenant.reservation)
    };
    let gold = |shares, reservation| ("gold".to_owned(), Some(shares), Some(reservation));
    let mut layers = live.layers();
    layers.policy = policies(
        1,
        "[[tenant]]\nname = \"gold\"\nshares = 200\n[[tenant]]\nname = \"silver\"\nshares = 50\n",
    );
    assert_eq!(of(&layers.merged().unwrap(), 0), gold(200, 5.0));
    let (tenant, silver) = (Target::tenant("array", "gold"), Target::tenant("array", "silver"));
    layers.kept.set(&tenant, "shares", 300.into());
    layers.kept.set(&silver, "shares", 60.into());
    layers.kept.set(&Target::tenant("array", "gone"), "shares", 7.into());
    layers.write().unwrap();
    let config = layers.merged().unwrap();
    assert_eq!(of(&config, 0), gold(300, 5.0));
    assert_eq!(of(&config, 1), ("silver".to_owned(), Some(60), None), "the policy alone has it");
    let in_force = layers.clone().into_force(Refused::new(), Vec::new());
    let from = |target: &Target, key: &str| in_force.origins.from(target, key);
    assert_eq!(from(&tenant, "shares"), ValueFrom::State);
    assert_eq!(from(&tenant, "reservation"), ValueFrom::Configuration);
    assert_eq!(layers.configured(&tenant, "shares"), Some(100.into()));
    let (live, config) = start(dir.path(), &text);
    assert_eq!(of(&config, 0), gold(300, 5.0), "after a restart");
    let mut layers = live.layers();
    layers.kept.clear(&tenant, "shares");
    assert_eq!(of(&layers.merged().unwrap(), 0), gold(100, 5.0));
    layers.kept.set(&tenant, "name", "other".into());
    let found = layers.find(&Policies::default()).unwrap();
    assert!(found.left_out[0].why.contains("is no setting that is changed live"));
}

const KEPT: &str = "[policy]\netcd = [\"http://127.0.0.1:2379\"]\n[[volume]]";

#[test]
fn the_policy_is_there_after_a_restart_and_a_file_without_its_end_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = FILE.replacen("[[volume]]", KEPT, 1);
    let (live, _) = start(dir.path(), &file);
    let policy = policies(3, "[[vm]]\nname = \"vm\"\nshares = 700\n");
    let layers = Layers { policy, ..live.layers() };
    live.take(layers.clone(), layers);
    live.in_force().layers.keep_policy().unwrap();
    assert_eq!(shares(&start(dir.path(), &file).1), 700);
    let path = dir.path().join("state.toml.policy");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, whole.replace("# end\n", "")).unwrap();
    let (live, config) = start(dir.path(), &file);
    assert_eq!(shares(&config), 500, "it may have lost more than its end");
    live.in_force().layers.keep_policy().unwrap();
    std::fs::write(&path, "root:x:0:0\n").unwrap();
    assert!(
        live.in_force().layers.keep_policy().unwrap_err().contains("is no state file of parda")
    );
    assert_eq!(shares(&start(dir.path(), FILE).1), 500, "without [policy] there is none");
}

#[test]
fn what_a_newer_version_kept_is_in_force_as_far_as_this_one_knows_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = FILE.replacen("[[volume]]", KEPT, 1);
    let (live, _) = start(dir.path(), &file);
    let keep = |format: u32| {
        let vm = "[[vm]]\nname = \"vm\"\nshares = 700\nwarp = 9\n";
        let mut policy = policies(3, vm);
        policy.volumes[0].format = format;
        Layers { policy, ..live.layers() }.keep_policy().unwrap();
    };
    keep(1);
    let (now, config) = start(dir.path(), &file);
    assert_eq!(shares(&config), 700, "warp has no effect, and the rest is there");
    assert_eq!(now.in_force().refused, Refused::new());
    keep(2);
    assert_eq!(shares(&start(dir.path(), &file).1), 500, "all of it may mean something else");
}

#[test]
fn a_policy_that_was_read_stays_when_the_state_file_moves() {
    let dir = tempfile::tempdir().unwrap();
    let file = FILE.replacen("[[volume]]", KEPT, 1);
    let (live, _) = start(dir.path(), &file);
    let head = PolicyHead { revision: 3, by: "anna".to_owned(), at_ms: 0, comment: None };
    let policy = policies(3, "[[vm]]\nname = \"vm\"\nshares = 700\n");
    let layers = Layers { policy: Policies { head: Some(head), ..policy }, ..live.layers() };
    live.take(layers.clone(), layers);
    let path = dir.path().join("parda.toml");
    let reload = |text: &str, state: &str| {
        std::fs::write(&path, text.replace("STATE", dir.path().join(state).to_str().unwrap()))
            .unwrap();
        let mut found = 0;
        live.read_again(&path, |config| found = shares(&config.unwrap()));
        found
    };
    assert_eq!(reload(&file, "other.toml"), 700);
    live.in_force().layers.keep_policy().unwrap();
    assert!(dir.path().join("other.toml.policy").exists());
    assert_eq!(reload(FILE, "other.toml"), 500, "without [policy] there is none");
}

#[test]
fn a_look_at_the_state_file_names_what_counts_and_what_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    layers.kept.set(&disk(), "shares", 2000.into());
    layers.kept.set(&disk(), "burst", (-1.0).into());
    let more = "name = \"vm2\"\npath = \"/e\"\nlisten = \"unix:s\"";
    layers.kept.take("array", Shape::Add(more.parse().unwrap()));
    layers.write().unwrap();
    let look = || {
        let text = FILE.replace("STATE", dir.path().join("state.toml").to_str().unwrap());
        examine(Document::new("parda.toml", text)).unwrap().join("\n")
    };
    let said = look();
    for part in [
        "state.toml: volume array, disk vm2: the disk",
        "state.toml: volume array, disk vm: shares = 2000",
        "volume array, disk vm: burst = -1.0, a live change, conflicts with",
        "must be from 0 to",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    std::fs::write(dir.path().join("state.toml"), "torn").unwrap();
    assert!(look().contains("is not in force"), "{}", look());
}

#[test]
fn disks_are_added_and_removed_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (live, _) = start(dir.path(), FILE);
    let mut layers = live.layers();
    let name = |name: &str| DiskName { name: name.to_owned(), listen: None };
    let add = |layer: &mut Overlay, name: &str| {
        let text = format!("name = \"{name}\"\npath = \"/{name}\"\nlisten = \"unix:s\"");
        layer.take("array", Shape::Add(text.parse().unwrap()));
    };
    let names = |layers: &Layers| -> Vec<String> {
        let config = layers.merged().unwrap();
        config.volumes[0].disks().iter().map(|disk| disk.name.to_string()).collect()
    };
    add(&mut layers.kept, "vm2");
    add(&mut layers.temporary, "vm3");
    assert_eq!(names(&layers), ["vm", "vm2", "vm3"]);
    assert_eq!(layers.disk_from("array", &name("vm2")), ValueFrom::State);
    assert_eq!(layers.disk_from("array", &name("vm3")), ValueFrom::Live);
    assert!(!layers.has_below(Keep::State, "array", &name("vm2")));
    assert!(layers.has_below(Keep::UntilRestart, "array", &name("vm2")));
    layers.temporary.take("array", Shape::Remove(name("vm2")));
    layers.kept.take("array", Shape::Remove(name("vm")));
    assert_eq!(names(&layers), ["vm3"]);
    layers.write().unwrap();
    // Another disk under the name of one that was removed.
    let (live, config) = start(dir.path(), FILE);
    assert_eq!(config.volumes[0].disks().len(), 1, "vm2 was removed until the restart");
    let mut layers = live.layers();
    add(&mut layers.kept, "vm");
    let config = layers.merged().unwrap();
    assert_eq!(config.volumes[0].disks()[1].backend.place().to_string(), "/vm");
    layers.kept.forget("array", &name("vm"), true);
    assert_eq!(names(&layers), ["vm", "vm2"]);
    assert!(!layers.kept.restore("array", &name("vm")));
    // A listener with a table of its own goes with the last disk there, and comes back with it.
    let own = format!(
        "{FILE}[[volume.disk]]\nname = \"vm4\"\npath = \"/f\"\nlisten = \"unix:t\"\n\
         [[listener]]\naddress = \"unix:t\"\nmode = \"0660\"\n"
    );
    let (other, _) = start(tempfile::tempdir().unwrap().path(), &own);
    let mut removed = other.layers();
    removed.temporary.take("array", Shape::Remove(name("vm4")));
    assert_eq!(names(&removed), ["vm"]);
    assert!(removed.temporary.restore("array", &name("vm4")));
    assert_eq!(removed.merged().unwrap().volumes[0].listeners.len(), 2);
    // A volume whose last disk went waits for the next, and so does its listener.
    layers.kept.take("array", Shape::Remove(name("vm")));
    layers.kept.forget("array", &name("vm2"), false);
    assert!(names(&layers).is_empty());
    let waits = "host = \"a\"\n[[volume]]\nname = \"array\"\ndisk = []\n[[listener]]\naddress = \"unix:s\"\n\
                 mode = \"0660\"\n[[listener]]\naddress = \"unix:t\"\n";
    let (waits, _) = start(tempfile::tempdir().unwrap().path(), waits);
    let mut layers = waits.layers();
    add(&mut layers.temporary, "vm");
    assert_eq!(layers.merged().unwrap().volumes[0].listeners[0].access.unwrap().mode, 0o660);
}
