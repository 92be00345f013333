//! A file that is served is nobody else's: QEMU's tools, other agents, and what a killed agent left.

use parda_disk::{Extent, Op};

use crate::fuse::FuseFile;
use crate::stage::{PARDA, Process, Stage, config, until, uri, wait_for};
use parda_testkit::{Client, read, write};

const OFF: &str = "mode = \"off\"";
const SIZE: u64 = 16 << 20;

fn one(host: &str, more: &str) -> String {
    config(host, OFF, &[("vm1", "img")]) + more
}

/// What an agent says that must not serve its disk, when it has said `what`.
fn refused(stage: &Stage, more: &str, what: &str) -> String {
    stage.write("refused.toml", one("refused", more));
    let name = format!("refused-{}", fastrand::u64(..));
    let agent = stage.start(&name, &[PARDA, "serve", "-c", "refused.toml"]);
    until(&format!("the agent says {what:?}"), || agent.log().contains(what));
    let log = agent.log();
    assert!(!log.contains("serving"), "{log}");
    log
}

fn qemu_nbd(stage: &Stage, options: &[&str]) -> Process {
    let socket = format!("--socket={}", stage.path("qemu").display());
    let line = [&["qemu-nbd", "--format=raw", "--persistent", &socket, "img"], options].concat();
    let qemu = stage.start("qemu-nbd", &line);
    until("qemu-nbd answers", || {
        stage.run(&["nbdinfo", "nbd+unix:///?socket=qemu"]).status.success()
    });
    qemu
}

#[test]
fn qemu_and_its_tools_refuse_what_an_agent_serves() {
    let stage = Stage::new();
    stage.sparse("img", SIZE);
    let write = ["qemu-io", "-f", "raw", "-c", "write 0 4k", "img"];
    let socket = format!("--socket={}", stage.path("qemu").display());
    let serve = ["qemu-nbd", "--format=raw", &socket, "img"];
    let daemon = [
        "qemu-storage-daemon",
        "--blockdev=driver=file,node-name=f,filename=img",
        "--nbd-server=addr.type=unix,addr.path=qsd",
        "--export=type=nbd,id=e,node-name=f,name=x,writable=on",
    ];
    let agent = stage.agent("host", &one("host", ""));
    for line in [&write[..], &serve, &daemon] {
        let error = stage.fails(line);
        assert!(error.contains("lock"), "{line:?}: {error}");
    }
    stage.ok(&["qemu-img", "info", "--force-share", "img"]);
    stage.ok(&["qemu-io", "-f", "raw", "-U", "-r", "-c", "read 0 4k", "img"]);
    agent.stop();
    stage.ok(&write);

    let agent = stage.agent("host", &one("host", "read_only = true\n"));
    for line in [&write[..], &serve, &daemon] {
        let error = stage.fails(line);
        assert!(error.contains("lock"), "{line:?}: {error}");
    }
    stage.ok(&["qemu-img", "info", "img"]);
    // Another agent may read it too.
    stage.agent("too", &one("too", "read_only = true\n")).stop();
    agent.stop();
}

#[test]
fn an_agent_refuses_what_qemu_writes_and_reads_beside_it_if_told_so() {
    let stage = Stage::new();
    stage.sparse("img", SIZE);
    let qemu = qemu_nbd(&stage, &[]);
    for more in ["", "read_only = true\n", "direct = \"off\"\n"] {
        refused(&stage, more, "img: another program has it open for writing");
    }
    let shared = "read_only = true\nlock = \"shared\"\n";
    stage.agent("host", &one("host", shared)).stop();
    stage.agent("host", &one("host", "lock = \"shared\"\n")).stop();
    stage.agent("host", &one("host", "lock = \"off\"\n")).stop();
    drop(qemu);
    let qemu = qemu_nbd(&stage, &["--read-only"]);
    stage.agent("host", &one("host", "")).stop();
    drop(qemu);
    stage.agent("host", &one("host", "")).stop();
}

#[test]
fn two_agents_never_write_one_file() {
    let stage = Stage::new();
    stage.sparse("img", SIZE);
    let agent = stage.agent("host", &one("host", ""));
    let log = refused(
        &stage,
        "",
        "img: another agent has it open for writing, on this host or another one: remove",
    );
    assert!(
        log.contains("another agent has it, or the kernel has IO of one that was killed"),
        "{log}"
    );
    stage.ok(&["nbdinfo", &uri("host", "vm1")]);
    agent.stop();
}

/// A file whose first write after [`SlowOnce::arm`] takes until [`SlowOnce::release`] and half a second more; all other IO is fast, so that
/// a write which does not wait for that one overtakes it.
struct SlowOnce<'a> {
    stage: &'a Stage,
    _file: FuseFile,
}

impl SlowOnce<'_> {
    fn new<'a>(stage: &'a Stage, name: &str) -> SlowOnce<'a> {
        stage.sparse("store", SIZE);
        let [store, slow, held] = ["store", "slow", "held"].map(|name| stage.path(name));
        let (store, slow, held) = (store.display(), slow.display(), held.display());
        // Only one `rm` of a file succeeds.
        let write = format!(
            "pwrite=if rm {slow} 2>/dev/null; then while [ -e {held} ]; do sleep 0.02; done; sleep 0.5; fi; \
             dd of={store} bs=64k iflag=fullblock oflag=seek_bytes seek=$4 conv=notrunc status=none"
        );
        let read = format!(
            "pread=dd if={store} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none"
        );
        let log = format!("logfile={}", stage.path("ios").display());
        let size = format!("get_size=echo {SIZE}");
        let server = ["--filter=log", "eval", "thread_model=echo parallel", &log, &size];
        let yes = ["can_multi_conn=exit 0", "can_flush=exit 0", "flush=exit 0"];
        let file = FuseFile::new(stage, name, &[&server[..], &yes, &[&write, &read]].concat());
        SlowOnce { stage, _file: file }
    }

    fn arm(&self) {
        self.stage.write("held", "");
        self.stage.write("slow", "");
    }

    fn release(&self) {
        std::fs::remove_file(self.stage.path("held")).unwrap();
    }

    /// Writes that were begun, and those that were ended.
    fn writes(&self) -> [usize; 2] {
        let log = String::from_utf8(self.stage.read("ios")).unwrap();
        [" Write id=", " ...Write id="].map(|what| log.matches(what).count())
    }
}

#[test]
fn a_write_that_outlives_its_agent_never_lands_over_a_newer_one() {
    let stage = Stage::new();
    let file = SlowOnce::new(&stage, "img");
    for (direct, old, new) in [("on", 1, 2), ("off", 3, 4)] {
        let more = format!("direct = \"{direct}\"\n");
        let agent = stage.agent("host", &one("host", &more));
        let [before, _] = file.writes();
        file.arm();
        let mut client = Client::connect(&stage.path("host"), "vm1");
        client.send(write(0, 4096), &[old; 4096]);
        until("the write is under way", || file.writes()[0] > before);
        // Not waiting for its end: that may be long in coming while the kernel has its write.
        agent.process.signal(rustix::process::Signal::KILL);
        // With another socket: the one of its predecessor is there until that one's IO is done, and
        // would have the next wait as well.
        let next = stage.agent("next", &one("next", &more));
        next.says("another agent has it, or the kernel has IO of one that was killed");
        file.release();
        let socket = stage.path("next");
        let mut client = wait_for("the next serves", || Client::try_connect(&socket, "vm1").ok());
        assert_eq!(client.call(write(0, 4096), &[new; 4096]), Ok(vec![]));
        assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
        until("nothing is under way", || {
            let [begun, ended] = file.writes();
            begun == ended
        });
        // Of the file itself, not of a page cache.
        assert!(
            stage.read("store")[..4096] == [new; 4096],
            "direct {direct}: the old write landed"
        );
        assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![new; 4096]), "direct {direct}");
        next.stop();
        drop(agent);
    }
}

#[test]
fn one_file_by_two_names_is_one_file() {
    let stage = Stage::new();
    stage.sparse("img", SIZE);
    std::fs::hard_link(stage.path("img"), stage.path("hard")).unwrap();
    std::os::unix::fs::symlink("img", stage.path("soft")).unwrap();
    for name in ["img", "./img", "hard", "soft"] {
        let text = config("host", OFF, &[("vm1", "img"), ("vm2", name)]);
        let second = text.replacen(
            "[[volume.disk]]\nname = \"vm2\"",
            "[[volume]]\nname = \"second\"\n[[volume.disk]]\nname = \"vm2\"",
            1,
        );
        let last = second.rfind("unix:host").unwrap();
        let second =
            second[..last].to_owned() + &second[last..].replace("unix:host", "unix:second");
        for text in [&text, &second] {
            stage.write("host.toml", text);
            let error = stage.fails(&[PARDA, "check", "host.toml"]);
            assert!(error.contains("overlaps the disk vm1"), "{error}");
            stage.fails(&[PARDA, "serve", "-c", "host.toml"]);
        }
        // Who only reads may read twice, and regions may lie beside each other.
        let reads = text.replace("[[volume.disk]]", "[[volume.disk]]\nread_only = true");
        stage.agent("host", &reads).stop();
        let mut regions = text.replace("\"vm1\"", "\"vm1\"\nsize = \"1MiB\"");
        regions += "offset = \"1MiB\"\nsize = \"1MiB\"\ndirect = \"off\"\nread_only = true\n";
        let agent = stage.agent("host", &regions);
        let mut client = Client::connect(&stage.path("host"), "vm1");
        assert_eq!(client.call(write(0, 4096), &[1; 4096]), Ok(vec![]));
        agent.stop();
    }
}

#[test]
fn an_image_of_another_format_is_refused_and_served_as_it_is_said() {
    let stage = Stage::new();
    for format in ["qcow2", "vmdk", "vhdx", "vdi", "vpc", "qed", "parallels"] {
        stage.ok(&["qemu-img", "create", "-f", format, "img", "16M"]);
        stage.write("host.toml", one("host", ""));
        let what = format!("img is a {format} image");
        let error = stage.fails(&[PARDA, "check", "host.toml"]);
        assert!(error.contains(&what), "{error}");
        refused(&stage, "", &what);
        std::fs::remove_file(stage.path("img")).unwrap();
    }
    stage.ok(&["qemu-img", "create", "-f", "vpc", "-o", "subformat=fixed", "img", "16M"]);
    refused(&stage, "", "img is a vpc image");
    stage.agent("host", &one("host", "format = \"raw\"\n")).stop();

    std::fs::remove_file(stage.path("img")).unwrap();
    stage.exchange("img", 64);
    refused(&stage, "", "img is an exchange, where hosts meet");

    std::fs::remove_file(stage.path("img")).unwrap();
    stage.ok(&["qemu-img", "create", "-f", "qcow2", "img", "16M"]);
    refused(&stage, "", "img is a qcow2 image");
    let advice = stage
        .fails(&[PARDA, "check", "refused.toml"])
        .replace("/run/vm1.sock", &stage.path("qsd").display().to_string());
    let line = advice.lines().find(|l| l.contains("qemu-storage-daemon")).expect("a command");
    let daemon = stage.start("qsd", &line.split_whitespace().collect::<Vec<_>>());
    until("qemu-storage-daemon listens", || stage.path("qsd").exists());
    let path = advice.lines().find_map(|l| l.trim().strip_prefix("path = \"")).expect("a path");
    let path = path.split('"').next().expect("a path");
    let text = config("host", OFF, &[("vm1", path)]);
    let agent = stage.agent("host", &text);
    let commands = ["-c", "write -P 7 1M 64k", "-c", "flush", "-c", "read -P 7 1M 64k"];
    stage.ok(&[&["qemu-io", "-f", "raw"], &commands[..], &[&uri("host", "vm1")]].concat());
    let mut client = Client::connect(&stage.path("host"), "vm1");
    let extent = Extent { offset: 4096, len: 4096 };
    assert_eq!(client.call(Op::Write { extent, fua: true }, &[5; 4096]), Ok(vec![]));
    agent.stop();
    drop(daemon);
    let reads = ["-c", "read -P 7 1M 64k", "-c", "read -P 5 4k 4k"];
    stage.ok(&[&["qemu-io", "-f", "qcow2"], &reads[..], &["img"]].concat());
}
