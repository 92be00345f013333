//! The log: whoever reads it late, or not at all, or fills it, delays no IO.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::Signal;

use crate::island::{ISLAND, Island};
use crate::stage::{Agent, PARDA, Stage, config, until, uri};
use parda_testkit::{Client, read};

/// A FIFO that is open for both ways, so that an agent can log to it and nobody has to read.
fn fifo(path: &Path) -> File {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
}

/// Starts an agent whose standard error is the FIFO `log`.
fn agent(stage: &Stage) -> Agent {
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", "mode = \"off\"", &[("vm1", "data")]));
    stage.restart(&["sh", "-c", "exec \"$@\" 2>log", "sh"], "host")
}

/// Says something that is no NBD, and waits until it was heard.
fn bad_handshake(stage: &Stage) {
    let mut stream = UnixStream::connect(stage.path("host")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(&u32::MAX.to_be_bytes());
    let mut greeting = Vec::new();
    // A close with bytes unread is a reset; a time-out is an agent that hangs.
    if let Err(error) = stream.read_to_end(&mut greeting) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the agent hangs: {error}");
    }
}

/// All that is in the FIFO until something is.
fn heard(log: &mut File, what: &str) -> String {
    let mut text = Vec::new();
    until(&format!("the log says {what:?}"), || {
        // It is empty for now.
        let _ = log.read_to_end(&mut text);
        String::from_utf8_lossy(&text).contains(what)
    });
    String::from_utf8(text).unwrap()
}

#[test]
fn a_log_that_nobody_reads_delays_nobody() {
    let stage = Stage::new();
    let mut log = fifo(&stage.path("log"));
    let agent = agent(&stage);
    let mut client = Client::connect(&stage.path("host"), "vm1");
    // Full: the next line would block.
    while log.write(&[b'\n'; 1024]).is_ok() {}
    while log.write(b"\n").is_ok() {}
    let options = ["--rw=randwrite", "--bs=4k", "--size=1m", "--iodepth=8", "--verify=crc32c"];
    let load = stage.load("fio", &uri("host", "vm1"), &options);
    for _ in 0..480 {
        bad_handshake(&stage);
    }
    let started = Instant::now();
    client.call(read(0, 4096), &[]).unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "a read took {:?}", started.elapsed());
    let before = agent.volume().disks[0].writes.ios;
    until("the load goes on", || agent.volume().disks[0].writes.ios > before + 100);
    load.finish();

    let text = heard(&mut log, "more like it were not logged");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() < 200, "a flood of {} lines", lines.len());
    let whole = |line: &&str| line.contains(" INFO ") || line.contains(" WARN ");
    assert!(lines.iter().all(whole), "a line is not whole:\n{text}");
    agent.stop();
    let end = heard(&mut log, "stopped");
    assert!(end.ends_with('\n'), "the last line is not whole: {end:?}");
}

#[test]
fn an_agent_ends_though_nobody_reads_its_log() {
    let stage = Stage::new();
    let mut log = fifo(&stage.path("log"));
    let mut agent = agent(&stage);
    while log.write(&[b'\n'; 1024]).is_ok() {}
    while log.write(b"\n").is_ok() {}
    agent.process.signal(Signal::TERM);
    assert!(agent.process.wait().success());
}

/// Changes of settings are recorded by the log. On a full disk they are made all the same, and it is said that lines are lost.
#[test]
fn a_log_on_a_full_disk_keeps_no_change_from_being_made_and_says_what_it_lost() {
    let stage = Stage::new();
    let island = Island::new(&stage, "1m");
    stage.sparse("data", 1 << 20);
    let text = config("host", "mode = \"off\"", &[("vm1", "data")]);
    stage.write("host.toml", format!("state = \"{ISLAND}/state\"\n{text}"));
    let script = format!("exec \"$@\" 2>>{ISLAND}/log");
    let agent =
        stage.restart(&[&island.enter()[..], &["sh", "-c", &script, "sh"]].concat(), "host");
    let log = || std::fs::read_to_string(island.path("log")).unwrap();
    until("it is in the log", || log().contains("agent_started"));
    let change =
        |line: &[&str]| stage.parda(&[&["set", "vm1"], line, &["-c", "host.toml"]].concat());
    let shares = || agent.volume().disks[0].shares;
    let events = || stage.ok(&[PARDA, "events", "-c", "host.toml"]);

    island.fill();
    // The log's last page has room of its own.
    let mut log_file = File::options().append(true).open(island.path("log")).unwrap();
    while log_file.write(b"\n").is_ok() {}
    let said = change(&["shares=2000"]);
    assert!(!said.status.success() && said.err.contains("cannot be kept"), "{}", said.err);
    assert_eq!(shares(), 1000, "what cannot be kept is refused");
    let said = change(&["shares=3000", "--temporary"]);
    assert!(said.status.success(), "{}", said.err);
    assert_eq!(shares(), 3000);
    until("the loss is said", || events().contains("lines of this log cannot be written"));
    assert!(events().contains("shares = 3000 (before: 1000)"), "{}", events());

    std::fs::remove_file(island.path("filler")).unwrap();
    until("it is said that lines were lost", || log().contains("event=\"log_written\""));
    assert!(!log().contains("shares = 3000"), "{}", log());
    assert!(change(&["shares=2000"]).status.success());
    until("it is in the log again", || log().contains("shares = 2000 (before: 3000)"));
    agent.stop();
}

/// The journal takes the priority of a line from its beginning.
#[test]
fn in_the_journal_every_line_has_its_priority() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", "mode = \"off\"", &[("vm1", "data")]));
    let script = ">log; export JOURNAL_STREAM=$(stat -c %d:%i log); exec \"$@\" 2>log";
    let journal = ["sh", "-c", script, "sh"];
    let log = || String::from_utf8(stage.read("log")).unwrap();
    let agent = stage.restart(&journal, "host");
    bad_handshake(&stage);
    until("the bad handshake is in the log", || log().contains("gave up a connection"));
    agent.stop();
    let text = log();
    assert!(text.lines().all(|line| line.starts_with("<6>")), "{text}");
    let mut check = stage.start("check", &[&journal[..], &[PARDA, "check", "missing"]].concat());
    assert_eq!(check.wait().code(), Some(2));
    assert!(log().starts_with("<3>parda: missing: there is no such file"), "{}", log());
}

#[test]
fn a_filter_that_would_silence_the_log_is_refused() {
    let stage = Stage::new();
    let said = stage.parda(&["--log", "loud", "check", "host.toml"]);
    assert_eq!(said.status.code(), Some(2));
    let expected = "parda: --log \"loud\": \"loud\" is neither a level";
    assert!(said.err.starts_with(expected), "{}", said.err);
}

#[test]
fn what_others_say_cannot_forge_a_line() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    for format in ["text", "json"] {
        let wrapper = ["env", "PARDA_LOG=debug"];
        let mut text = config("host", "mode = \"off\"", &[("vm1", "data")]);
        // A name may hold anything; so may the messages of a server behind us.
        text = text.replace("\"vm1\"", "\"vm1\\n2026 ERROR all is lost\\u001b[31m\\u009b\"");
        stage.write("host.toml", &text);
        let mut line = wrapper.to_vec();
        line.extend([PARDA, "--log-format", format, "serve", "-c", "host.toml"]);
        let who = format!("agent-{format}");
        let mut process = stage.start(&who, &line);
        until("it serves", || process.log().contains("started"));
        process.signal(Signal::TERM);
        assert!(process.wait().success());
        let log = process.log();
        assert!(log.contains("all is lost"), "{log}");
        assert!(!log.lines().any(|line| line.starts_with("2026 ERROR")), "{log}");
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!log.contains(control), "{log:?}");
    }
}
