//! Settings that live in etcd for all hosts: applied from a file, refused when wrong, kept while etcd is away, read back.

use std::net::TcpListener;
use std::time::Duration;

use parda_agent::config::named_cluster;
use parda_agent::file;
use parda_api::ValueFrom;
use parda_policy::{Author, PolicySnapshot, Scope, Store, StoreError, set};
use parda_testkit::TestEtcd;
use rustix::process::Signal;
use serde_json::Value;

use crate::array::{Array, Delays};
use crate::stage::{Agent, PARDA, Stage, config, until, uri};

/// How long a call may take on a busy machine.
const PATIENT: Duration = Duration::from_secs(30);

/// Two hosts that take their settings from an etcd of one member. The first has two disks, each on a slow array of its own.
struct Site {
    etcd: TestEtcd,
    agents: Vec<Agent>,
    stage: Stage,
}

impl Site {
    fn start() -> Site {
        let stage = Stage::new();
        let etcd = TestEtcd::start(&stage.path(""), 1);
        let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
        for array in ["array1", "array2"] {
            Array::start(&stage.path(array), 4096, delays);
        }
        stage.sparse("data", 16 << 20);
        let own = [("vm1", "nbd+unix:///?socket=array1"), ("vm2", "nbd+unix:///?socket=array2")];
        let hosts: [(&str, &[(&str, &str)]); 2] = [("a", &own), ("b", &[("vm3", "data")])];
        let agents = hosts.map(|(host, disks)| {
            let exchange =
                format!("[volume.exchange]\netcd = [\"{}\"]\n[[volume.disk]]", etcd.urls()[0]);
            let text = config(host, "period = \"100ms\"\nwindow_max = 2", disks)
                .replacen("[[volume]]", "[policy]\nperiod = \"100ms\"\n[[volume]]", 1)
                .replacen("[[volume.disk]]", &exchange, 1);
            stage.agent(host, &format!("state = \"{host}.state\"\n{text}"))
        });
        Site { etcd, agents: agents.into(), stage }
    }

    /// A command of the operator's that succeeds.
    fn policy(&self, line: &[&str]) -> String {
        self.stage.ok(&[&[PARDA, "policy"], line, &["-c", "a.toml"]].concat())
    }

    /// One that fails: its exit status and message.
    fn refused(&self, line: &[&str]) -> (Option<i32>, String) {
        let done = self.stage.parda(&[&["policy"], line, &["-c", "a.toml"]].concat());
        (done.status.code(), done.err)
    }

    fn whole(&self) -> Value {
        serde_json::from_str(&self.policy(&["get", "--json"])).unwrap()
    }

    /// The policy as a program may write it, without the checks of the command.
    fn store(&self) -> Store {
        let etcd = named_cluster(&file::PolicyTable {
            etcd: Some(self.etcd.urls()),
            ..file::PolicyTable::default()
        });
        let etcd = etcd.unwrap();
        Store::new(etcd.cluster, &etcd.prefix, 0, PATIENT)
    }

    fn shares(&self, agent: usize) -> Vec<u32> {
        self.agents[agent].volume().disks.iter().map(|disk| disk.shares).collect()
    }
}

const POLICY: &str = "[[volume]]\nname = \"array\"\n[volume.control]\nlatency_threshold = \"20ms\"\n\
    [[volume.group]]\nname = \"all\"\nvms = [\"vm*\"]\nshares = 1500\n[[volume.vm]]\nname = \"vm1\"\nshares = 4500\n";

fn author(by: &str) -> Author {
    Author { by: by.to_owned(), at_ms: 0, comment: None }
}

/// The policy with one more setting of `vm2`.
fn with(read: &PolicySnapshot, key: &str, value: i64) -> parda_policy::Policy {
    let mut policy = read.policy().unwrap();
    set(&mut policy, "array", &Scope::Vm("vm2".to_owned()), key, Some(value.into()));
    policy
}

#[test]
fn one_change_reaches_every_host_and_is_read_back() {
    let site = Site::start();
    let stage = &site.stage;
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    let loads = ["vm1", "vm2"].map(|vm| stage.load(vm, &uri("a", vm), &options));
    until("both load", || site.agents[0].volume().disks.iter().all(|disk| disk.reads.ios > 50));
    site.agents[0].until_ratio("equal shares", 0.75..1.33);

    stage.write("bad.toml", POLICY.replace("shares = 4500", "shares = 0"));
    for line in [&["apply", "bad.toml"][..], &["diff", "bad.toml"]] {
        let (code, said) = site.refused(line);
        assert_eq!(code, Some(2));
        assert!(said.contains("bad.toml:11:10: shares = 0: must be from 1 to 1000000"), "{said}");
    }
    assert_eq!(site.whole()["revision"], Value::Null, "nothing was written");

    stage.write("policy.toml", POLICY);
    assert_eq!(site.refused(&["diff", "policy.toml"]).0, Some(1));
    let said = site.policy(&["apply", "policy.toml", "--comment", "more for vm1"]);
    assert!(
        said.contains("revision 1\n") && said.contains("vm vm1: shares = 4500 (before: not set)"),
        "{said}"
    );
    until("both hosts have it", || site.shares(0) == [4500, 1500] && site.shares(1) == [1500]);
    assert!(site.policy(&["diff", "policy.toml"]).contains("no difference"));
    site.agents[0].until_ratio("three to one", 2.2..4.0);
    for load in loads {
        load.finish();
    }

    let volume = site.agents[0].volume();
    assert_eq!(volume.latency_threshold_ms, 20.0);
    let from = |key: &str| volume.settings_from.get(key).copied();
    assert_eq!(from("latency_threshold"), Some(ValueFrom::Policy));
    assert_eq!((from("period"), from("mode")), (Some(ValueFrom::Configuration), None));
    assert_eq!(volume.disks[0].settings_from["shares"], ValueFrom::Policy);
    let metrics = stage.ok(&["curl", "-sS", "--unix-socket", "a.status.api", "http://a/metrics"]);
    let line = "parda_volume_latency_threshold_source{volume=\"array\",from=\"policy\"} 1.0\n";
    assert!(metrics.contains(line), "{metrics}");
    until("both say so", || site.policy(&["get"]).matches("in force (revision 1)").count() == 2);
    let said = stage.ok(&[PARDA, "status", "-c", "a.toml", "--over", "100ms"]);
    assert!(said.contains("policy revision 1 by "), "{said}");
    assert!(
        said.contains("latency_threshold (from the policy)")
            && said.contains("vm1: shares (from the policy)"),
        "{said}"
    );

    // What is changed live counts over the policy, and is seen from everywhere.
    stage.ok(&[PARDA, "set", "vm1", "shares=9000", "-c", "a.toml"]);
    until("the change is read back", || {
        site.policy(&["get"]).contains("DIFFERS: vm vm1: shares = 9000 (state)")
    });
    let said = stage.ok(&[PARDA, "set", "vm1", "--reset", "shares", "-c", "a.toml"]);
    assert!(said.contains("shares = 4500 (before: 9000), from the policy"), "{said}");

    // A policy that conflicts with a live change on one host: that host keeps the previous one, the other one follows.
    stage.ok(&[PARDA, "set", "window_min=1.5", "-c", "a.toml", "--temporary"]);
    site.policy(&["set", "--volume", "array", "window_max=1", "--comment", "too little for one"]);
    until("b has it, a says why not", || {
        let said = site.policy(&["get"]);
        said.contains(
            "a: revision 2 read; volume array STILL AT REVISION 1: conflicts with window_min = 1.5",
        ) && said.contains("b: revision 2 read; volume array in force (revision 2)")
    });
    assert_eq!(site.shares(0), [4500, 1500]);
    stage.ok(&[PARDA, "set", "--reset", "window_min", "-c", "a.toml"]);
    until("a follows", || site.agents[0].volume().window_max == Some(1.0));
    let history = site.policy(&["history"]);
    let at = |part: &str| history.find(part).unwrap_or_else(|| panic!("{part}: {history}"));
    assert!(at("too little for one") < at("more for vm1"), "the latest first: {history}");
    assert!(history.contains("control: window_max = 1 (before: not set)"), "{history}");
    stage.write("before.toml", site.policy(&["history", "1"]));
    site.policy(&["apply", "before.toml"]);
    until("it is as it was", || {
        site.agents.iter().all(|agent| agent.volume().window_max == Some(2.0))
    });
    site.agents.into_iter().for_each(Agent::stop);
}

#[test]
fn hosts_keep_what_they_had_and_operators_do_not_undo_one_another() {
    let mut site = Site::start();
    site.stage.write("policy.toml", POLICY);
    site.policy(&["apply", "policy.toml"]);
    until("both hosts have it", || site.shares(0) == [4500, 1500] && site.shares(1) == [1500]);

    // Two operators have read revision 1. The second one to write is told.
    let (mut one, mut other) = (site.store(), site.store());
    let (read, same) = (one.read_all().unwrap(), other.read_all().unwrap());
    one.apply(&read, &with(&read, "shares", 600), author("one")).unwrap();
    // By the same user in the same millisecond, as scripts do.
    let told = other.apply(&same, &with(&same, "shares", 700), author("one")).unwrap_err();
    assert!(matches!(&told, StoreError::Conflict(Some(head)) if head.by == "one"), "{told}");
    assert!(
        told.to_string().starts_with("revision 2 was made meanwhile by one; nothing was changed"),
        "{told}"
    );
    let (code, said) = site.refused(&["apply", "policy.toml", "--if-revision", "1"]);
    assert!(code == Some(1) && said.contains("etcd has revision 2 by one"), "{said}");
    until("one's is in force", || site.shares(0) == [4500, 600]);

    // A newer version writes a setting that this one does not know.
    let read = one.read_all().unwrap();
    let mut newer = with(&read, "warp", 9);
    set(&mut newer, "array", &Scope::Vm("vm2".to_owned()), "shares", Some(650.into()));
    one.apply(&read, &newer, author("newer")).unwrap();
    until("the rest is in force", || site.shares(0) == [4500, 650]);
    site.agents[0].says("policy revision 3: vm vm2: warp is not known to this version");
    until("it is read back", || site.policy(&["get"]).contains("vm vm2: warp UNKNOWN to parda"));
    let events = site.stage.ok(&[PARDA, "events", "-c", "a.toml"]);
    assert!(events.contains("warp is not known"), "{events}");

    // The history has an end, and etcd's compaction takes nothing of it.
    for shares in 1..=100 {
        let read = one.read_all().unwrap();
        let mut next = with(&read, "shares", shares);
        set(&mut next, "array", &Scope::Control, "window_max", Some(2.into()));
        one.apply(&read, &next, author("many")).unwrap();
    }
    let compacted =
        site.etcd.post(0, "/v3/kv/compaction", "{\"revision\":\"100\",\"physical\":true}").unwrap();
    assert!(compacted.contains("200 OK"), "{compacted}");
    let history = site.policy(&["history"]);
    let revisions: Vec<_> = history.lines().filter(|line| line.starts_with("revision ")).collect();
    assert_eq!(revisions.len(), 100, "{history}");
    assert!(
        revisions[0].starts_with("revision 103 ") && revisions[99].starts_with("revision 4 "),
        "{history}"
    );
    let (code, said) = site.refused(&["history", "3"]);
    assert!(code == Some(2) && said.contains("the history does not have it"), "{said}");
    site.policy(&["apply", "policy.toml"]);
    until("the file's is in force", || site.shares(0) == [4500, 1500]);

    // etcd is away, and a host is started anew.
    site.etcd.kill(0);
    site.agents[0].says("policy: etcd http://127.");
    let agent = site.agents.remove(0);
    agent.stop();
    let agent = site.stage.restart(&[], "a");
    site.agents.insert(0, agent);
    assert_eq!(site.shares(0), [4500, 1500]);
    site.agents[0].says("what was read last stays in force");
    let policy = site.agents[0].status().policy.unwrap();
    assert!(policy.fault.is_some() && policy.volumes[0].in_force == Some(104), "{policy:?}");
    site.etcd.restart(0);
    site.etcd.wait();
    site.policy(&["set", "--volume", "array", "--vm", "vm1", "shares=4600"]);
    until("the next one is in force", || site.shares(0) == [4600, 1500]);

    // All of etcd's data is lost: hosts keep theirs, and follow what is applied again.
    site.etcd.kill(0);
    until("etcd is missed", || site.agents[0].status().policy.is_some_and(|p| p.fault.is_some()));
    site.etcd.wipe();
    site.etcd.wait();
    site.agents[0].says("etcd has no policy any more");
    until("the fault is shown", || {
        let fault = site.agents[0].status().policy.and_then(|policy| policy.fault);
        fault.is_some_and(|fault| fault.starts_with("etcd has no policy any more"))
    });
    assert_eq!(site.shares(0), [4600, 1500]);
    site.stage.write("empty.toml", "");
    site.policy(&["apply", "empty.toml", "--if-revision", "0"]);
    until("an empty policy takes it back", || {
        site.shares(0) == [1000, 1000] && site.shares(1) == [1000]
    });
    site.stage.write("policy.toml", POLICY.replace("1500", "1600"));
    site.policy(&["apply", "policy.toml"]);
    until("all follow", || site.shares(0) == [4500, 1600] && site.shares(1) == [1600]);
    damaged_values_are_named_with_the_way_out(&site);
    site.agents.into_iter().for_each(Agent::stop);
}

/// Gives etcd the roles that docs/policy.md names, each with a user whose password is the name.
fn enable_users(etcd: &TestEtcd) {
    // Base64 of the beginnings of keys, and of the first key behind them.
    let policy = r#""key":"L3BhcmRhL3BvbGljeS8=","range_end":"L3BhcmRhL3BvbGljeTA=""#;
    let in_force = r#""key":"L3BhcmRhL2luLWZvcmNlLw==","range_end":"L3BhcmRhL2luLWZvcmNlMA==""#;
    let post = |path: &str, body: &str| {
        let answer = etcd.post(0, &format!("/v3/auth/{path}"), body).unwrap();
        assert!(answer.contains("200 OK"), "{path}: {answer}");
    };
    for user in ["root", "agent", "operator"] {
        post("role/add", &format!(r#"{{"name":"{user}"}}"#));
        post("user/add", &format!(r#"{{"name":"{user}","password":"{user}"}}"#));
        post("user/grant", &format!(r#"{{"user":"{user}","role":"{user}"}}"#));
    }
    for (role, keys, may) in [
        ("agent", policy, "READ"),
        ("agent", in_force, "READWRITE"),
        ("operator", policy, "READWRITE"),
        ("operator", in_force, "READ"),
    ] {
        post("role/grant", &format!(r#"{{"name":"{role}","perm":{{"permType":"{may}",{keys}}}}}"#));
    }
    post("enable", "{}");
}

#[test]
fn agents_may_read_the_policy_and_operators_write_it() {
    let stage = Stage::new();
    let etcd = TestEtcd::start(&stage.path(""), 1);
    enable_users(&etcd);
    for user in ["agent", "operator"] {
        stage.write(user, user);
        stage.ok(&["chmod", "600", user]);
    }
    stage.sparse("data", 1 << 20);
    let policy = format!(
        "state = \"a.state\"\n[policy]\nperiod = \"100ms\"\netcd = [\"{}\"]\nuser = \"agent\"\npassword_file = \"agent\"\n[[volume]]",
        etcd.urls()[0]
    );
    let text = config("a", "", &[("vm1", "data")]).replacen("[[volume]]", &policy, 1);
    // Neither can the policy be kept at first.
    let kept = stage.path("a.state.policy");
    std::fs::create_dir(&kept).unwrap();
    let agent = stage.agent("a", &text);
    stage.write("policy.toml", POLICY);
    let apply = [PARDA, "policy", "apply", "policy.toml", "-c", "a.toml"];
    let said = stage.fails(&apply);
    assert!(said.contains("refuses the user: permission denied"), "{said}");
    let operator = ["--user", "operator", "--password-file", "operator"];
    stage.ok(&[&apply[..], &operator].concat());
    until("it is in force", || agent.volume().disks[0].shares == 4500);
    let get = [&[PARDA, "policy", "get", "-c", "a.toml"], &operator[..]].concat();
    until("it is read back", || {
        stage.ok(&get).contains("a: revision 1 read; volume array in force (revision 1)")
    });
    assert!(stage.ok(&get).contains(", user operator of etcd"), "{}", stage.ok(&get));
    // A machine with other things to do may be late for an answer.
    let log = agent.process.log();
    let refused = |line: &&str| line.contains("policy_unreachable") && line.contains("denied");
    assert_eq!(log.lines().find(refused), None);
    agent.says("is not a regular file; tried again each period");
    std::fs::remove_dir(&kept).unwrap();
    until("the policy is kept", || {
        std::fs::read_to_string(&kept).is_ok_and(|text| text.contains("4500"))
    });
    assert_eq!(agent.process.log().matches("policy_not_kept").count(), 1, "said once");
    agent.stop();
}

/// Values that somebody else wrote: each command says what to do.
fn damaged_values_are_named_with_the_way_out(site: &Site) {
    // In base64, as etcd takes them.
    let (head, volume) = ("L3BhcmRhL3BvbGljeS9oZWFk", "L3BhcmRhL3BvbGljeS92b2x1bWUvYXJyYXk=");
    let put = |key: &str, value: &str| {
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
        let answer = site.etcd.post(0, "/v3/kv/put", &body).unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
    };
    let no_text = "/w==";
    put(volume, no_text);
    let said = site.refused(&["apply", "policy.toml"]).1;
    assert!(said.contains("is no policy") && said.contains("Remove its key"), "{said}");
    put(head, no_text);
    let fault = |part: &str| {
        until(part, || {
            let fault = site.agents[0].status().policy.and_then(|policy| policy.fault);
            fault.is_some_and(|fault| fault.contains(part) && fault.len() < 1000)
        });
    };
    fault("expected value");
    // An object without keys, and a revision that is a long text: the status names the present fault, and quotes a part of it.
    put(head, "e30=");
    fault("missing field");
    put(head, &format!("eyAicmV2aXNpb24iOiAi{}In0=", "eHh4".repeat(30_000)));
    fault("invalid type: string \"xxx");
    put(head, no_text);
    let said = site.refused(&["apply", "policy.toml"]).1;
    assert!(said.contains("key /parda/policy/head") && said.contains("Remove the key"), "{said}");
    // The highest revision and time that there are, and a volume without settings.
    let (last, empty) = (
        "eyJyZXZpc2lvbiI6MTg0NDY3NDQwNzM3MDk1NTE2MTUsImJ5IjoieCIsImF0X21zIjoxODQ0Njc0NDA3MzcwOTU1MTYxNX0=",
        "Zm9ybWF0ID0gMQpyZXZpc2lvbiA9IDEKW3ZvbHVtZV0KbmFtZSA9ICJhcnJheSIK",
    );
    put(head, last);
    put(volume, empty);
    assert!(site.policy(&["get"]).contains("by x at 9999-12-31T23:59:59Z"));
    let said = site.refused(&["apply", "policy.toml"]).1;
    assert!(said.contains("has the highest revision there is"), "{said}");
    // `note` below the history.
    put("L3BhcmRhL3BvbGljeS9oaXN0b3J5L25vdGU=", no_text);
    let history = site.stage.parda(&["policy", "history", "-c", "a.toml"]);
    assert!(history.status.success() && history.out.contains("revision 2 by "), "{}", history.out);
    assert!(history.err.contains("key /parda/policy/history/note: is not"), "{}", history.err);
}

/// An etcd that takes calls and never answers: `[policy]` is taken away while it is waited for.
#[test]
fn a_policy_that_is_taken_away_during_a_call_says_nothing_more() {
    let stage = Stage::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    stage.sparse("data", 1 << 20);
    let without = format!("state = \"a.state\"\n{}", config("a", "", &[("vm1", "data")]));
    let policy =
        format!("[policy]\netcd = [\"http://{}\"]\n[[volume]]", silent.local_addr().unwrap());
    let agent = stage.agent("a", &without.replacen("[[volume]]", &policy, 1));
    let (call, _) = silent.accept().unwrap();
    assert!(agent.status().policy.is_some(), "the agent serves meanwhile");
    stage.write("a.toml", &without);
    agent.process.signal(Signal::HUP);
    agent.says("reload_applied");
    // A call that takes longer than it may is told of as long as there is a policy.
    let unreachable = || agent.process.log().matches("policy_unreachable").count();
    let before = unreachable();
    drop((call, silent));
    until("the call has ended", || agent.threads(&["parda-policy"]) == 0);
    assert!(agent.status().policy.is_none());
    assert_eq!(unreachable(), before, "{}", agent.process.log());
    agent.stop();
}

#[test]
fn a_tenant_comes_with_a_policy_to_all_hosts() {
    let site = Site::start();
    let tenants = |agent: usize| {
        let volume = site.agents[agent].volume();
        volume.tenants.into_iter().map(|tenant| (tenant.name, tenant.settings)).collect::<Vec<_>>()
    };
    let set = |more: &[&str]| site.policy(&[&["set", "--volume", "array"], more].concat());
    let (code, said) = site.refused(&["set", "--volume", "array", "--tenant", "gold", "shares=0"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("shares = 0: must be from 1 to 1000000"), "{said}");

    // Disks of a tenant that no host knows: the policy is refused, and says why.
    set(&["--group", "all", "vms=vm*", "tenant=gold"]);
    until("both hosts refuse it", || {
        site.policy(&["get"]).matches("is no [[volume.tenant]] of this volume").count() == 2
    });
    let said =
        set(&["--tenant", "gold", "shares=3000", "limit={ iops = 100, bandwidth = \"1MiB\" }"]);
    assert!(said.contains("tenant gold: shares = 3000"), "{said}");
    until("both hosts have it", || {
        [0, 1].into_iter().all(|agent| {
            let disks = site.agents[agent].volume().disks;
            let of = |disk: &parda_agent::status::DiskStatus| disk.settings.tenant;
            disks.iter().all(|disk| of(disk).is_some_and(|tenant| &*tenant == "gold"))
                && tenants(agent).iter().any(|(name, set)| {
                    name == "gold" && set["shares"] == 3000 && set["limit"]["iops"] == 100.0
                })
        })
    });
    set(&["--tenant", "gold", "--unset", "limit"]);
    until("the limit is gone", || {
        [0, 1].into_iter().all(|agent| {
            tenants(agent).iter().all(|(_, set)| set.len() == 1 && set["shares"] == 3000)
        })
    });

    // So does what shares divide, as a table, too.
    set(&[
        "fairness={ iops_reads = 1461, bandwidth_reads = \"63MiB\", iops_writes = 562, bandwidth_writes = \"176MiB\" }",
    ]);
    let in_force = |what: &str| {
        until(what, || {
            site.agents
                .iter()
                .all(|agent| agent.volume().settings.is_some_and(|it| it.fairness.contains(what)))
        });
    };
    in_force("iops_reads = 1461");
    set(&["--unset", "fairness"]);
    in_force("outstanding");
    site.agents.into_iter().for_each(Agent::stop);
}
