//! Changing things while they run.

use std::time::Duration;

use rustix::process::Signal;

use crate::array::{Array, Delays};
use crate::stage::{PARDA, Stage, config, until, uri};

#[test]
fn shares_and_control_change_under_load_and_nobody_is_dropped() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
    for array in ["array1", "array2"] {
        Array::start(&stage.path(array), 4096, delays);
    }
    let disks = [("vm1", "nbd+unix:///?socket=array1"), ("vm2", "nbd+unix:///?socket=array2")];
    let text = config("host", "period = \"100ms\"\nwindow_max = 2", &disks);
    let agent = stage.agent("host", &text);
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    let loads = ["vm1", "vm2"].map(|vm| stage.load(vm, &uri("host", vm), &options));
    until("both load", || agent.volume().disks.iter().all(|d| d.reads.ios > 50));
    agent.until_ratio("equal shares", 0.75..1.33);

    let changed = text
        .replace("name = \"vm1\"", "name = \"vm1\"\nshares = 3000")
        .replace("window_max = 2", "window_max = 3\nlatency_threshold = \"12ms\"");
    stage.write("host.toml", &changed);
    agent.process.signal(Signal::HUP);
    agent.says("shares changed");
    agent.says(
        "control changed: latency_threshold = \"12ms\" (before: 30ms, the default); window_max = 3.0 (before: 2.0)",
    );
    let volume = agent.volume();
    assert_eq!(volume.disks[0].shares, 3000);
    assert_eq!(volume.disks[1].shares, 1000);
    assert_eq!(volume.shares, 4000);
    assert_eq!(volume.latency_threshold_ms, 12.0);
    agent.until_ratio("three to one", 2.2..4.0);

    // A file that is wrong changes nothing, and is pointed at.
    stage.write("host.toml", changed.replace("shares = 3000", "shares = 0"));
    agent.process.signal(Signal::HUP);
    agent.says("configuration not changed: host.toml:11:10: shares = 0: must be from 1 to");
    assert_eq!(agent.volume().disks[0].shares, 3000);
    assert_eq!(agent.volume().latency_threshold_ms, 12.0);
    let asked = stage.run(&[PARDA, "status", "-c", "host.toml"]);
    assert!(asked.status.success() && asked.out.contains("host host"), "{}", asked.err);
    assert!(asked.err.contains("shares = 0: must be from 1 to"), "{}", asked.err);

    // Another listener: the connections stay.
    let elsewhere = changed.replace("unix:host\"", "unix:elsewhere\"").replace("3000", "2000");
    stage.write("host.toml", elsewhere);
    agent.process.signal(Signal::HUP);
    agent.says("listens no more");
    until("the new listener is there", || stage.path("elsewhere").exists());
    assert_eq!(agent.volume().disks[0].shares, 2000);
    assert!(!stage.path("host").exists());

    for load in loads {
        load.finish();
    }
    assert!(!agent.process.log().contains("gave up a connection"), "{}", agent.process.log());
    agent.stop();
}

#[test]
fn the_law_can_be_switched_off_and_on_under_load() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    let text = config("host", "mode = \"parda\"\nperiod = \"100ms\"", &[("vm1", "data")]);
    let agent = stage.agent("host", &text);
    let options = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--verify=crc32c"];
    let load = stage.load("fio", &uri("host", "vm1"), &options);
    for (mode, window) in [("off", None), ("static", Some(64.0)), ("off", None)] {
        stage.write("host.toml", text.replace("mode = \"parda\"", &format!("mode = \"{mode}\"")));
        agent.process.signal(Signal::HUP);
        until(mode, || agent.volume().mode.to_string() == mode);
        assert_eq!(agent.volume().window, window);
        let before = agent.volume().disks[0].writes.ios;
        until("IO goes on", || agent.volume().disks[0].writes.ios > before + 100);
    }
    load.finish();
    agent.stop();
}

#[test]
fn a_host_that_changes_its_slot_is_heard_again_at_once() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let text = |name: &str, slot: u32| {
        let exchange =
            format!("[volume.exchange]\nfile = \"exchange\"\nslot = {slot}\n[[volume.disk]]");
        config(name, "period = \"100ms\"", &[("vm", &format!("{name}.img"))])
            .replace("[[volume.disk]]", &exchange)
    };
    let agents = [("a", 3), ("b", 4)].map(|(name, slot)| {
        stage.sparse(&format!("{name}.img"), 1 << 20);
        stage.agent(name, &text(name, slot))
    });
    let live = || {
        let heard = agents[1].volume().exchange.map(|exchange| exchange.peers);
        heard.iter().flatten().any(|peer| peer.liveness.to_string() == "live")
    };
    until("b hears a", live);
    // Had the new slot the run of the old one, a would not be heard before its numbers were as high again.
    until("many periods pass", || agents[0].volume().ticks > 100);
    let many = agents[0].volume().ticks;
    stage.write("a.toml", text("a", 9));
    agents[0].process.signal(Signal::HUP);
    until("a uses the other slot", || {
        let own = agents[0].volume().exchange.and_then(|exchange| exchange.slots);
        own.is_some_and(|own| own.slot == Some(9))
    });
    let before = agents[1].volume().ticks;
    until("b hears a again", live);
    let took = agents[1].volume().ticks - before;
    assert!(took < many * 9 / 10, "it took {took} periods after {many}");
}

#[test]
fn a_threshold_that_no_window_can_meet_is_named() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(5), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    let law = "period = \"50ms\"\nlatency_threshold = \"1ms\"";
    let text = config("host", law, &[("vm", "nbd+unix:///?socket=array")]);
    let agent = stage.agent("host", &text);
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=4"];
    let load = stage.load("vm", &uri("host", "vm"), &options);
    agent.says("the windows are at their least and the latency still above the threshold");
    load.finish();
}
