//! More disks than anybody has on one host, and limits of the system that are reached on purpose.

use std::time::Instant;

use parda_agent::status::DiskState;
use parda_testkit::{Client, read, write};
use rustix::process::{Resource, getrlimit};

use crate::held::Held;
use crate::stage::{Agent, PARDA, Stage, config, until};

const SIZE: u64 = 1 << 20;

/// `PARDA_DISKS=10000 cargo test --release -p parda --test stories -- many:: --nocapture` has the numbers of docs/performance.md.
fn disks() -> usize {
    std::env::var("PARDA_DISKS").map_or(1000, |disks| disks.parse().unwrap())
}

/// An agent without control whose disks are at `listen`, which is given the number of each.
fn many(stage: &Stage, disks: usize, listen: impl Fn(usize) -> String) -> String {
    let mut text = config("host", "mode = \"off\"", &[]);
    text += "[volume.limits]\nconnections_per_peer = 1024\n";
    for n in 0..disks {
        stage.sparse(&format!("d{n}"), SIZE);
        let listen = listen(n);
        text += &format!(
            "[[volume.disk]]\nname = \"d{n}\"\npath = \"d{n}\"\nlisten = \"unix:{listen}\"\n"
        );
    }
    text
}

fn served(agent: &Agent) -> usize {
    let disks = agent.volume().disks;
    disks.iter().filter(|disk| disk.state == DiskState::Serving).count()
}

fn seconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}

#[test]
fn thousands_of_disks_are_ready_in_seconds_with_one_descriptor_each() {
    let stage = Stage::new();
    // With one client each, as many as the limit has room for.
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let disks = disks().min((limit as usize - 97) / 2);
    let one = stage.agent("host", &many(&stage, 1, |_| "host".to_owned()));
    until("one is served", || served(&one) == 1);
    let base = Held::of(&one);
    one.stop();

    let text = many(&stage, disks, |_| "host".to_owned());
    let begun = Instant::now();
    let agent = stage.agent("host", &text);
    let ready = seconds(begun);
    assert_eq!(served(&agent), disks, "all are served when the status socket is there");
    let held = Held::of(&agent);
    let answers = (0..5).map(|_| {
        let begun = Instant::now();
        stage.ok(&[PARDA, "status", "--socket", "host.status", "--since-start"]);
        seconds(begun)
    });
    let answer = answers.fold(f64::INFINITY, f64::min);
    let each = (held.descriptors - base.descriptors) as f64 / (disks - 1) as f64;
    let kib = (held.resident_kib - base.resident_kib) as f64 / (disks - 1) as f64;
    println!(
        "{disks} disks: ready after {ready:.2} s, status after {answer:.3} s, {each:.3} descriptors and {kib:.1} KiB a disk"
    );
    // A descriptor more or less is that of a connection to the status socket.
    assert!(held.descriptors <= base.descriptors + disks + 2, "{base:?}, then {held:?}");
    // Debug builds beside other tests have ten times the time.
    assert!(ready < 50.0 && answer < 10.0, "{ready} s, {answer} s");
    assert!(kib < 100.0, "{base:?}, then {held:?}");
    for n in [0, disks / 2, disks - 1] {
        let mut client = Client::connect(&stage.path("host"), &format!("d{n}"));
        client.call(write(0, 4096), &[7; 4096]).unwrap();
        assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![7; 4096]));
    }
    let log = agent.process.log();
    assert!(!log.contains("does not answer"), "a queue of files is no silence: {log}");
    let begun = Instant::now();
    agent.stop();
    assert!(seconds(begun) < 30.0, "it ends in {} s", seconds(begun));
}

#[test]
fn each_disk_for_which_there_are_descriptors_has_a_client_and_the_others_are_refused_by_name() {
    let stage = Stage::new();
    let limited = ["prlimit", "--nofile=1024:1024"];
    for (own, listeners, needed, fit) in [(false, 1, 897, 400), (true, 400, 1296, 309)] {
        let listen = |n| if own { format!("s{n}") } else { "host".to_owned() };
        stage.write("host.toml", many(&stage, 400, listen));
        let said = stage.ok(&[&limited[..], &[PARDA, "check", "host.toml"]].concat());
        assert!(said.contains(&format!("descriptors: {needed} for 400 disks")), "{said}");
        let fault = format!(
            "400 disks at {listeners} listeners, with one client each, need {needed} descriptors, and the hard limit here is \
             1024 (RLIMIT_NOFILE, LimitNOFILE= of the unit): {fit} disks are served"
        );
        assert_eq!(said.contains(&fault), fit < 400, "{said}");
        let agent = stage.restart(&limited, "host");
        until("as many are served as there is room for", || served(&agent) == fit);
        let all = agent.volume().disks;
        let clients: Vec<Client> = all
            .iter()
            .filter(|disk| disk.state == DiskState::Serving)
            .map(|disk| {
                let socket = disk.listen.strip_prefix("unix:").unwrap();
                Client::connect(&stage.path(socket), &disk.name)
            })
            .collect();
        assert_eq!(agent.volume().connections, clients.len() as u64);
        if fit < 400 {
            let refused = all.iter().filter(|disk| disk.state != DiskState::Serving);
            for disk in refused {
                let fault = disk.fault.as_deref().unwrap_or_default();
                assert!(fault.contains(&format!("disk {:?}: the limit of descriptors", disk.name)));
            }
            let nobody = agent.volume().listeners.into_iter().find(|listener| !listener.is_bound);
            assert!(nobody.unwrap().fault.unwrap().contains("has no room for its disks: raise it"));
        }
        agent.stop();
    }
}

#[test]
fn an_agent_at_its_limit_of_threads_says_it_with_its_number_and_goes_on() {
    let stage = Stage::new();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs root to be another user");
    }
    // A user of its own, whose threads are all the agent's.
    let user = 700_000_000 + std::process::id();
    let text = many(&stage, 4, |_| "host".to_owned());
    for file in [".", "d0", "d1", "d2", "d3"] {
        std::os::unix::fs::chown(stage.path(file), Some(user), Some(user)).unwrap();
    }
    let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
    let line = ["setpriv", &reuid, &regid, "--clear-groups", "--bounding-set=-all"];
    let last = text.rfind("[[volume.disk]]").unwrap();
    let agent = stage.agent_within(&line, "host", &text[..last]);
    until("three are served", || served(&agent) == 3);
    let mut client = Client::connect(&stage.path("host"), "d0");
    let pid = agent.process.pid().to_string();
    let limit = |threads: &str| {
        let prlimit = ["prlimit", "--pid", &pid, &format!("--nproc={threads}:")];
        stage.ok(&[&line[..], &prlimit].concat());
    };
    // The reload has a thread of its own, and the disk needs one more.
    until("nobody opens or looks", || agent.threads(&["open", "look", "listen"]) == 0);
    let threads = Held::of(&agent).threads;
    stage.write("host.toml", &text);
    limit(&(threads + 1).to_string());
    agent.process.signal(rustix::process::Signal::HUP);
    agent.says("cannot start a thread to ");
    agent.says(&format!("RLIMIT_NPROC ({} for the user)", threads + 1));
    // Also where the kernel needs a thread for it.
    client.call(write(0, 4096), &[1; 4096]).unwrap();
    assert!(served(&agent) >= 3);
    limit("100");
    agent.process.signal(rustix::process::Signal::HUP);
    until("the fourth is served when there are threads", || served(&agent) == 4);
    client.call(read(0, 4096), &[]).unwrap();
    agent.stop();
}
