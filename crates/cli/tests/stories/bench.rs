//! `parda-lab bench`: what it measures of a real agent, and what it will not write to.

use serde_json::Value;

use crate::stage::{Done, Stage, noise, wait_for};

const MIB: usize = 1 << 20;
const URI: &str = "nbd+unix:///vm1?socket=nbd";

fn agent(disk: &str) -> String {
    format!(
        "host = \"h\"\nstatus = \"unix:h.status\"\n[[volume]]\nname = \"a\"\n[volume.control]\n\
         mode = \"off\"\n[[volume.disk]]\nname = \"vm1\"\npath = \"{disk}\"\nlisten = \"unix:nbd\"\n"
    )
}

#[test]
fn an_agent_is_measured_and_not_a_byte_of_its_disk_changes() {
    let stage = Stage::new();
    let before = noise(8 * MIB);
    stage.write("disk", &before);
    let agent = stage.agent("h", &agent("disk"));
    let pid = agent.process.pid().to_string();
    let options = ["--depth", "16", "--connections", "2", "--time", "300ms", "--warmup", "50ms"];
    let line = [&["bench", "nbd", URI, "--server-pid", &pid, "--json", "-"], &options[..]].concat();
    // A run in which neither side was without a processor for most of the time.
    let (out, answer) = wait_for("a run with what is outstanding", || {
        let Done { status, out, err } = stage.lab(&line);
        assert!(status.success(), "{err}");
        let answer: Value = serde_json::from_str(&out).unwrap();
        let number = |key: &str| answer[key].as_f64().unwrap_or_else(|| panic!("{key} in {out}"));
        let iops = number("reads") / number("seconds");
        // What is outstanding, by Little's law, is the depth of both connections.
        let outstanding = iops * number("mean_us") / 1e6;
        eprintln!("{iops:.0} IOPS, {outstanding:.1} of 32 outstanding");
        let worked = number("server_cpu_us_per_io") > 0.0;
        let fair = iops > 100.0 && (16.0..=64.0).contains(&outstanding) && worked;
        fair.then_some((out, answer))
    });
    let number = |key: &str| answer[key].as_f64().unwrap_or_else(|| panic!("{key} in {out}"));
    assert_eq!((number("depth"), number("connections"), number("bs")), (16.0, 2.0, 4096.0));
    let iops = number("reads") / number("seconds");
    assert!((number("iops") / iops - 1.0).abs() < 1e-6, "{out}");
    assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("p999_us"), "{out}");
    assert!(number("client_cpu_us_per_io") > 0.0, "{out}");

    let Done { status, out, err } = stage.lab(&[&["bench", "nbd", URI], &options[..]].concat());
    assert!(status.success() && out.contains("IOPS") && out.contains("p99.9"), "{out}{err}");
    assert_eq!(stage.read("disk"), before);
}

#[test]
fn it_writes_only_to_what_is_named_again_and_plainly_unused() {
    let stage = Stage::new();
    stage.write("used", noise(8 * MIB));
    let used = stage.agent("h", &agent("used"));
    let write = |allow: &[&str]| {
        let line = ["bench", "nbd", URI, "--op", "randwrite", "--depth", "4", "--time", "200ms"];
        stage.lab(&[&line[..], allow].concat())
    };
    let allow = format!("--allow-writes={URI}");
    let Done { status, err, .. } = write(&[&allow]);
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains("it holds data at byte 0"), "{err}");
    assert_eq!(stage.read("used"), noise(8 * MIB));
    drop(used);

    stage.sparse("h.img", 8 * MIB as u64);
    let _fresh = stage.agent("h", &agent("h.img"));
    let Done { status, err, .. } = write(&[]);
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains("--allow-writes=nbd+unix:///vm1?socket=nbd"), "{err}");
    let Done { status, err, .. } = write(&["--allow-writes=nbd+unix:///vm2?socket=nbd"]);
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains("not what --allow-writes names"), "{err}");
    assert!(stage.read("h.img").iter().all(|b| *b == 0));
    for _ in 0..2 {
        let Done { status, err, .. } = write(&[&allow]);
        assert!(status.success(), "{err}");
    }
    let after = stage.read("h.img");
    assert!(after[4096..MIB].iter().chain(&after[7 * MIB..]).all(|b| *b == 0), "the ends");
    let written = after[MIB..7 * MIB].chunks(4096).filter(|b| b.iter().any(|b| *b != 0)).count();
    assert!(written > 10, "{written} blocks were written");
}

#[test]
fn mistakes_are_named() {
    let stage = Stage::new();
    stage.sparse("disk", 8 * MIB as u64);
    let _agent = stage.agent("h", &agent("disk"));
    let fails = |arguments: &[&str], code: i32| {
        let Done { status, out, err } = stage.lab(&[&["bench", "nbd"], arguments].concat());
        assert_eq!(status.code(), Some(code), "{arguments:?}: {out}{err}");
        err
    };
    assert!(fails(&["/dev/sda"], 2).contains("must begin with nbd://"));
    assert!(fails(&[URI, "--bs", "33m"], 2).contains("from 1 byte to 32m"));
    assert!(fails(&[URI, "--depth", "0"], 2).contains("--depth"));
    assert!(fails(&[URI, "--time", "1ms"], 2).contains("10ms at least"));
    assert!(fails(&[URI, "--allow-writes=x"], 2).contains("only reads"));
    assert!(fails(&[URI, "--offset", "9m"], 2).contains("has no 4096 bytes from 9437184"));
    assert!(fails(&["nbd+unix:///vm9?socket=nbd"], 1).contains("no export \"vm9\""));
    assert!(fails(&["nbd+unix:///vm1?socket=nobody"], 1).contains("cannot connect"));
    assert!(fails(&[URI, "--server-pid", "4294967295"], 1).contains("process 4294967295"));
}
