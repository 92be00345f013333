//! Devices that VMs open themselves, and whose queue an agent steers. Loop devices stand for them.

use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_agent::latency::Latency;
use parda_agent::status::SteerStatus;
use rustix::process::Signal;

use crate::stage::{Agent, LAB, PARDA, Stage, config, until, uri};
use parda_testkit::disk::{AttachedDisk, end};

/// A steered volume's configuration.
fn steered(host: &str, control: &str, disk: &AttachedDisk, more: &str) -> String {
    format!(
        "host = \"{host}\"\nstatus = \"unix:{host}.status\"\n\
         [[volume]]\nname = \"array\"\n[volume.control]\n{control}\n\
         [volume.steer]\ndevice = \"{}\"\n{more}\n",
        disk.device.display()
    )
}

/// Sum of all latencies, in seconds.
fn seconds(latency: &Latency) -> f64 {
    latency.buckets.iter().map(|(ns, ios)| 1e-9 * *ns as f64 * *ios as f64).sum()
}

#[test]
fn who_may_not_steer_is_told_who_may() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = Stage::new();
    stage.ok(&["chmod", "777", "."]);
    let device = disk.device.to_str().unwrap();
    let anybody = ["setpriv", "--reuid=65534", "--clear-groups"];
    let line = ["steer", "set", device, "16", "--state", "state"];
    let error = stage.fails(&[&anybody[..], &[PARDA], &line].concat());
    assert!(error.contains("Permission denied"), "{error}");
    assert!(error.contains("Steering needs root: sudo, or for the agent's unit"), "{error}");
}

/// What bounds a device now.
fn nr_requests(disk: &AttachedDisk) -> u32 {
    let name = disk.device.file_name().unwrap();
    let file = Path::new("/sys/block").join(name).join("queue/nr_requests");
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn steer(agent: &Agent) -> SteerStatus {
    agent.volume().steer.unwrap()
}

fn load(disk: &AttachedDisk, options: &[&str]) -> Child {
    let always = ["--rw=randread", "--bs=4k", "--time_based", "--runtime=3600"];
    disk.fio(&[&always, options].concat())
}

/// Issued and not completed, and the most that was seen of it, looked at a thousand times. The
/// device's own count has those that wait for a place too, but with no elevator nothing does.
fn most_in_flight(disk: &AttachedDisk) -> u32 {
    let name = disk.device.file_name().unwrap();
    let file = Path::new("/sys/block").join(name).join("inflight");
    let look = |_| {
        sleep(Duration::from_millis(1));
        let text = std::fs::read_to_string(&file).unwrap();
        text.split_whitespace().map(|n| n.parse::<u32>().unwrap()).sum()
    };
    (0..1000).map(look).max().unwrap()
}

#[test]
fn a_steered_device_is_as_it_was_however_its_agent_ends() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = Stage::new();
    let before = nr_requests(&disk);
    let text = steered("host", "mode = \"static\"\nwindow_max = 16\nperiod = \"100ms\"", &disk, "");
    let agent = stage.agent("host", &text);
    until("the window is the depth", || nr_requests(&disk) == 16);
    assert_eq!(steer(&agent).depth, Some(16));
    // Nobody else steers it meanwhile.
    stage.write("other.toml", text.replace("unix:host", "unix:other"));
    let second = stage.fails(&[PARDA, "serve", "-c", "other.toml"]);
    assert!(second.contains("is being steered by process"), "{second}");
    agent.stop();
    assert_eq!(nr_requests(&disk), before);

    // A crash leaves it as it is; the next start knows what it was.
    let agent = stage.restart(&[], "host");
    until("the window is the depth", || nr_requests(&disk) == 16);
    agent.process.kill();
    assert_eq!(nr_requests(&disk), 16);
    let agent = stage.restart(&[], "host");
    until("the window is the depth", || nr_requests(&disk) == 16);
    agent.stop();
    assert_eq!(nr_requests(&disk), before);

    // Also one that sets nothing.
    let agent = stage.restart(&[], "host");
    until("the window is the depth", || nr_requests(&disk) == 16);
    agent.process.kill();
    stage.write("host.toml", text.replace("static", "observe"));
    let agent = stage.restart(&[], "host");
    assert_eq!(nr_requests(&disk), before);
    agent.stop();
    stage.write("host.toml", text);

    // And so does who restores it, as the unit does when it stops.
    let agent = stage.restart(&[], "host");
    until("the window is the depth", || nr_requests(&disk) == 16);
    agent.process.kill();
    stage.ok(&[PARDA, "steer", "restore", &disk.device.display().to_string()]);
    assert_eq!(nr_requests(&disk), before);
}

#[test]
fn what_is_in_flight_is_never_above_the_window_and_the_window_changes_under_load() {
    let Some(disk) = AttachedDisk::slow(Duration::from_millis(5), Duration::from_millis(5)) else {
        return;
    };
    let stage = Stage::new();
    let before = nr_requests(&disk);
    let text = steered("host", "mode = \"static\"\nwindow_max = 6\nperiod = \"100ms\"", &disk, "");
    let agent = stage.agent("host", &text);
    until("the window is the depth", || nr_requests(&disk) == 6);
    let mut fio = load(&disk, &["--iodepth=32"]);
    until("it is measured", || steer(&agent).reads.ios > 100);
    assert_eq!(most_in_flight(&disk), 6);
    // A load that has no processor for a while leaves a period with less.
    until("the window is used", || (agent.volume().outstanding - 6.0).abs() < 0.5);

    stage.write("host.toml", text.replace("window_max = 6", "window_max = 9"));
    agent.process.signal(Signal::HUP);
    until("the new window is the depth", || nr_requests(&disk) == 9);
    stage.write("host.toml", text.replace("static", "off").replace("[volume.steer]", ""));
    agent.process.signal(Signal::HUP);
    agent.says("configuration not changed: host.toml:");
    assert_eq!(nr_requests(&disk), 9);
    stage.write("host.toml", text.replace("static", "off"));
    agent.process.signal(Signal::HUP);
    until("without control it is as it was", || nr_requests(&disk) == before);
    assert_eq!(steer(&agent).depth, None);
    assert!(steer(&agent).reads.ios > 100, "it is measured all the same");
    end(&mut fio);
    agent.stop();
}

#[test]
fn observing_sets_nothing_and_says_what_would_be_done() {
    let Some(disk) = AttachedDisk::slow(Duration::from_millis(20), Duration::from_millis(20))
    else {
        return;
    };
    let stage = Stage::new();
    let before = nr_requests(&disk);
    let control = "mode = \"observe\"\nlatency_threshold = \"10ms\"\nperiod = \"200ms\"";
    let text = steered("host", control, &disk, "");
    let agent = stage.agent("host", &text);
    let mut fio = load(&disk, &["--iodepth=8"]);
    // A threshold of half the latency would have half of what is there. A busy machine adds to the 20 ms, and has a period with less outstanding.
    until("half of what is there would be the window", || {
        let volume = agent.volume();
        let Some(outlook) = volume.outlook.filter(|outlook| outlook.since.over_s > 2.0) else {
            return false;
        };
        let part = outlook.last.window / volume.outstanding;
        let foretold = part / (10.0 / outlook.last.latency_ms);
        eprintln!("{outlook:?} with {} outstanding", volume.outstanding);
        (0.75..1.3).contains(&foretold)
    });
    let volume = agent.volume();
    assert_eq!((nr_requests(&disk), volume.window, steer(&agent).depth), (before, None, None));
    let said = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
    assert!(said.contains("mode observe, window none (would be"), "{said}");
    // From looking to acting without a restart.
    stage.write("host.toml", text.replace("observe", "parda"));
    agent.process.signal(Signal::HUP);
    until("what it said is done", || nr_requests(&disk) < before);
    end(&mut fio);
    agent.stop();
    assert_eq!(nr_requests(&disk), before);
}

#[test]
fn somebody_else_writes_to_the_knob_or_takes_the_device_away() {
    let Some(mut disk) = AttachedDisk::numbered(77) else { return };
    let stage = Stage::new();
    let control = "mode = \"static\"\nwindow_max = 16\nperiod = \"100ms\"";
    let agent = stage.agent("host", &steered("host", control, &disk, ""));
    until("the window is the depth", || nr_requests(&disk) == 16);
    let name = disk.device.file_name().unwrap().to_owned();
    let knob = Path::new("/sys/block").join(&name).join("queue/nr_requests");
    std::fs::write(&knob, "40").unwrap();
    agent.says("somebody changed its depth from 16 to 40; set again");
    until("the window is the depth again", || nr_requests(&disk) == 16);

    let file = disk.take_away();
    agent.says("nothing is set until it works again, IO goes on");
    let volume = agent.volume();
    let gone = volume.steer.unwrap();
    assert!(gone.fault.is_some() && gone.steered.is_none() && gone.depth.is_none(), "{gone:?}");
    disk.bring_back(&file);
    agent.says("the device is there again");
    until("the window is the depth once more", || nr_requests(&disk) == 16);
    until("nothing is wrong", || steer(&agent).fault.is_none());
    agent.stop();
}

#[test]
fn what_cannot_be_steered_is_refused_by_name() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = Stage::new();
    let good = steered("host", "", &disk, "");
    let device = disk.device.display().to_string();
    for (path, why) in [
        ("/dev/null", "is no block device"),
        ("/dev/no-such-disk", "No such file"),
        ("/dev/zram0", "is memory of this host, compressed"),
    ] {
        if path == "/dev/zram0" && !Path::new(path).exists() {
            continue;
        }
        stage.write("host.toml", good.replace(&device, path));
        let said = stage.fails(&[PARDA, "serve", "-c", "host.toml"]);
        assert!(said.contains(path) && said.contains(why), "{said}");
    }
    stage.write("host.toml", format!("{good}method = \"queue_depth\"\n"));
    let said = stage.fails(&[PARDA, "serve", "-c", "host.toml"]);
    assert!(said.contains("is no SCSI disk and has no queue_depth; use nr_requests"), "{said}");
}

#[test]
fn a_host_that_steers_and_hosts_that_serve_share_an_array_by_their_shares() {
    let stage = Stage::new();
    // Eight drives that take what comes in the order in which it comes, and some 8 ms for each.
    let line = [LAB, "array", "--preset", "cx3-40-raid0-vms", "--drives", "4", "--queue-depth"];
    let line = [&line[..], &["1", "--listen", "unix:san"]].concat();
    let _array = stage.start("san", &line);
    until("the array listens", || stage.path("san").exists());
    let lun = |n: u32| format!("nbd+unix:///lun{n}?socket={}", stage.path("san").display());
    let Some(disk) = AttachedDisk::of_nbd(&lun(0)) else { return };
    let control = "latency_threshold = \"40ms\"\nperiod = \"500ms\"";
    let exchange = "[volume.exchange]\nfile = \"exchange\"\nslots = 4\n";
    stage.exchange("exchange", 4);
    let steers = steered("steers", control, &disk, "shares = 2000\n") + exchange;
    let serves = |host: &str, n: u32| config(host, control, &[("vm", &lun(n))]) + exchange;
    let hosts = [
        stage.agent("steers", &steers),
        stage.agent("one", &serves("one", 1)),
        stage.agent("two", &serves("two", 2)),
    ];
    let mut fio = load(&disk, &["--iodepth=16"]);
    let options = ["--rw=randread", "--bs=4k", "--size=1g", "--iodepth=16"];
    let loads = ["one", "two"].map(|host| stage.load(host, &uri(host, "vm"), &options));
    // Shares divide what is outstanding. (IOPS follow where every host has the same latency, which a
    // steered loop device has not: each of its IOs goes through two more processes.)
    let done = || {
        let [first, one, two] = &hosts;
        let served = |agent: &Agent| {
            let disk = agent.volume().disks.remove(0);
            (disk.reads.ios, seconds(&disk.device))
        };
        let steers = steer(first);
        [(steers.reads.ios, seconds(&steers.read_latency)), served(one), served(two)]
    };
    // Twenty periods to settle; then, counted over as many, the shares hold, and the latency is near the threshold of 40 ms.
    sleep(Duration::from_secs(10));
    until("shares hold over twenty periods", || {
        let (before, began) = (done(), Instant::now());
        sleep(Duration::from_secs(10));
        let (after, took) = (done(), began.elapsed().as_secs_f64());
        let outstanding = [0, 1, 2].map(|i| (after[i].1 - before[i].1) / took);
        let ios = [0, 1, 2].map(|i| after[i].0 - before[i].0);
        let volumes = hosts.each_ref().map(Agent::volume);
        let windows = volumes.each_ref().map(|v| (v.window, v.cluster_latency_ms, v.active_shares));
        let depth = volumes[0].steer.as_ref().map(|s| (s.depth, s.pending));
        println!("{outstanding:?} outstanding, {ios:?} IOs; {windows:?}, {depth:?}");
        let fair = outstanding.iter().sum::<f64>() / 4.0;
        let near = |(has, shares)| (0.75..1.33).contains(&(has / (shares * fair)));
        let latency = volumes[0].cluster_latency_ms;
        outstanding.into_iter().zip([2.0, 1.0, 1.0]).all(near)
            && latency.is_some_and(|latency| (28.0..56.0).contains(&latency))
    });
    for load in loads {
        load.finish();
    }
    end(&mut fio);
    hosts.into_iter().for_each(Agent::stop);
}
