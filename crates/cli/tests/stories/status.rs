//! What `parda status` says of now.

use std::time::Duration;

use rustix::thread::gettid;

use crate::array::{Array, Delays};
use crate::stage::{PARDA, Stage, config, until, uri};

/// The line of a disk in the table of a status.
fn line<'a>(status: &'a str, disk: &str) -> &'a str {
    status.lines().find(|line| line.split_whitespace().next() == Some(disk)).unwrap_or_default()
}

/// Manifests whose probes ask agents.
const MANIFESTS: [&str; 2] = [
    include_str!("../../../../contrib/kubernetes/parda.yaml"),
    include_str!("../../../../contrib/kubernetes/steer.yaml"),
];

#[test]
fn an_agent_in_a_pod_is_ready_by_the_probe_of_its_manifest() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let agent = stage.agent("a", &config("a", "mode = \"off\"", &[("vm1", "data")]));
    for manifest in MANIFESTS {
        let probe = manifest.split("readinessProbe:").nth(1).unwrap();
        let command = probe.lines().find_map(|line| line.trim().strip_prefix("command: ["));
        let mut line: Vec<_> = command.unwrap().trim_end_matches(']').split(", ").collect();
        let socket = line.iter_mut().find(|word| word.starts_with("/run/parda/")).unwrap();
        (*socket, line[0]) = ("a.status", PARDA);
        assert!(stage.ok(&line).contains("volume "), "{line:?}");
    }
    agent.stop();
}

#[test]
fn each_disk_has_its_rates_of_now_and_what_limits_it() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    stage.sparse("idle.img", 1 << 20);
    let disks = [("deep", "nbd+unix:///?socket=array"), ("idle", "idle.img")];
    let window = |most: u32| {
        let text = config("a", &format!("mode = \"static\"\nwindow_max = {most}"), &disks);
        // A name is asked for as it is.
        text.replace("name = \"array\"", "name = \"the array/1 %\"")
    };
    let agent = stage.agent("a", &window(2));
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=8"];
    let load = stage.load("fio", &uri("a", "deep"), &options);
    until("the window holds IOs back", || agent.volume().disks[0].held.summary().mean > 1.0);
    until("the slice is the limit of the one, and nothing of the other", || {
        let now = stage.ok(&[PARDA, "status", "-c", "a.toml", "--over", "500ms"]);
        assert!(now.contains("rates and latencies over the last "), "{now}");
        assert!(line(&now, "idle").ends_with("nothing done"), "{now}");
        line(&now, "deep").ends_with("its slice")
    });

    until("the last minute has a second of it", || {
        let said = stage.ok(&[PARDA, "status", "-c", "a.toml", "--over", "100ms", "--minute"]);
        let minute = said.split("volume the array/1 %, over the last minute").nth(1).unwrap();
        assert!(minute.contains("host a"), "{said}");
        let ios = line(minute, "deep").split_whitespace().nth(1);
        ios.and_then(|ios| ios.parse().ok()).is_some_and(|ios: f64| ios > 1.0)
    });
    let json = stage.ok(&[PARDA, "status", "--socket", "a.status", "--json", "-"]);
    assert!(json.len() < 8 << 10 && json.contains("\"p99_ms\""), "{} bytes: {json}", json.len());
    assert!(!json.contains("buckets"), "{json}");

    stage.write("a.toml", window(64));
    agent.process.signal(rustix::process::Signal::HUP);
    until("the client's depth is the limit", || {
        let now = stage.ok(&[PARDA, "status", "--socket", "a.status", "--over", "300ms"]);
        line(&now, "deep").ends_with("its own depth")
    });
    load.finish();
    until("nothing is done any more", || {
        let now = stage.ok(&[PARDA, "status", "--socket", "a.status", "--over", "300ms"]);
        line(&now, "deep").ends_with("nothing done")
    });
    // What was done before is still there, over the whole time.
    let all = stage.ok(&[PARDA, "status", "--socket", "a.status", "--since-start"]);
    assert!(all.contains("rates and latencies since the start"), "{all}");
    assert!(!line(&all, "deep").ends_with("nothing done"), "{all}");
}

#[test]
fn one_option_names_the_agent_in_every_command() {
    let stage = Stage::new();
    ["data", "more"].iter().for_each(|name| stage.sparse(name, 1 << 20));
    let disks = [("vm", "data"), ("vm2", "more")];
    let agent = stage.agent("a", &config("a", "mode = \"off\"", &disks));
    agent.says("started");
    let minute = [PARDA, "status", "--minute", "--over", "100ms", "--socket", "a.status"];
    until("its first second is over", || stage.run(&minute).status.success());
    for line in [
        &["status", "--minute", "--over", "100ms"][..],
        &["explain", "vm", "--over", "1s"],
        &["set", "vm", "shares=2000"],
        &["drain", "vm"],
        &["drain", "--undo"],
        &["events"],
        &["peers"],
        &["disk", "remove", "vm2"],
    ] {
        // As the command line writes a path, and as the configuration does.
        for socket in ["a.status", "unix:a.status"] {
            let done = stage.parda(&[line, &["--socket", socket]].concat());
            let gone = done.err.contains("no volume has one");
            assert!(done.status.success() || gone, "{line:?}: {}", done.err);
        }
        for (socket, says) in [("b.status", "Is the agent running?"), ("a.toml", "is no socket")] {
            let said = stage.fails(&[&[PARDA], line, &["--socket", socket]].concat());
            assert!(said.contains(socket) && said.contains(says), "{line:?}: {said}");
        }
        let both = ["--socket", "a.status", "-c", "a.toml"];
        let said = stage.fails(&[&[PARDA], line, &both].concat());
        assert!(said.contains("cannot be used with"), "{line:?}: {said}");
    }
    assert!(stage.ok(&[PARDA, "top", "--help"]).contains("--socket <PATH>"));
    agent.stop();
}

/// The data thread has what others leave of one processor, which is next to nothing. All else of the agent has any processor.
#[test]
fn a_host_short_of_cpu_says_so_and_does_not_blame_the_array() {
    let stage = Stage::new();
    if !stage.run(&["chrt", "-f", "1", "true"]).status.success() {
        println!("SKIPPED: a program of real-time priority cannot be started here (not root?)");
        return;
    }
    let allowed = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = allowed.unwrap().trim();
    let cpu = allowed.split(['-', ',']).next().unwrap();
    // The array's threads, which this one starts, are never on the processor that is taken away.
    let other = allowed.rsplit(['-', ',']).next().unwrap();
    stage.ok(&["taskset", "-pc", other, &gettid().as_raw_nonzero().to_string()]);
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    let control = "period = \"1s\"\nlatency_threshold = \"40ms\"\nwindow_max = 16";
    let agent = stage.agent("a", &config("a", control, &[("vm", "nbd+unix:///?socket=array")]));
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=4"];
    let load = stage.load("fio", &uri("a", "vm"), &options);
    until("the array is measured", || agent.volume().cluster_latency_ms.is_some());
    let thread = agent.thread("parda-array");
    stage.ok(&["taskset", "-pc", cpu, &thread]);
    // A program of real-time priority has the processor for 160 of 200 ms, on a fast machine as on a slow one.
    let busy = "import time\nwhile True:\n  end = time.monotonic() + 0.16\n  \
                while time.monotonic() < end: pass\n  time.sleep(0.04)";
    let busy = ["chrt", "-f", "1", "taskset", "-c", cpu, "python3", "-c", busy];
    let busy = stage.start("busy", &busy);
    let shown = || stage.ok(&[PARDA, "status", "--socket", "a.status", "--over", "100ms"]);
    until("the host is short of CPU, and says so", || {
        shown().contains("is short of CPU: its data")
    });
    assert!(!shown().contains("FAULT"), "{}", shown());
    // The array's latency is far below the lateness, in eight periods more than it is not.
    let (mut ticks, mut good) = (0, 0_i32);
    until("the array is not blamed", || {
        let volume = agent.volume();
        if volume.ticks == ticks {
            return false;
        }
        ticks = volume.ticks;
        eprintln!("{:?} {:?} {:?}", volume.late, volume.cluster_latency_ms, volume.window);
        // A period in which the thread had no turn says nothing.
        if let (Some(late), Some(ms)) = (volume.late, volume.cluster_latency_ms) {
            good =
                if ms < 16.0 && 2.0 * ms < late.longest_ms { good + 1 } else { (good - 1).max(0) };
        }
        good == 8
    });
    busy.kill();
    stage.ok(&["taskset", "-pc", allowed, &thread]);
    until("it has enough of it again", || !shown().contains("short of CPU"));
    load.finish();
}
