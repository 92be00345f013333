//! Guests whose disks are an agent's, while that agent is killed, and while it is replaced.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{Bus, Guest, Job, Source};
use rustix::process::{Pid, Signal, kill_process};

use crate::{PARDA, SOON, guest, turn};

/// How long the agent is away after it was killed.
const AWAY: Duration = Duration::from_secs(1);

/// How long QEMU holds a request of a disk whose server is away.
const RECONNECT: u32 = 60;

/// Size of each disk, in bytes.
const SIZE: u64 = 1 << 20;

/// An agent that is killed when dropped.
pub(crate) struct Agent(Child);

impl Agent {
    /// Starts it on the configuration in `dir`, and waits until clients can connect.
    pub(crate) fn start(dir: &Path, sockets: &[&str]) -> Agent {
        let mut serve = Command::new(&*PARDA);
        serve.args(["serve", "-c", "parda.toml"]).current_dir(dir).stdin(Stdio::null());
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let agent = Agent(serve.stderr(log).spawn().unwrap());
        let end = Instant::now() + SOON;
        // QEMU connects to a socket of vhost-user by itself, which takes one front end.
        let serves = |socket: &&str| match *socket {
            "vhost" => dir.join(socket).exists(),
            socket => UnixStream::connect(dir.join(socket)).is_ok(),
        };
        while !sockets.iter().all(serves) {
            let log = || std::fs::read_to_string(dir.join("log")).unwrap();
            assert!(Instant::now() < end, "the agent does not serve: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        agent
    }

    fn end(mut self, by: Signal) {
        kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), by).unwrap();
        let status = self.0.wait().unwrap();
        assert!(by == Signal::KILL || status.success(), "the agent ended with {status}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes all of a disk in random order and reads it back, again and again. fio ends with an error if a
/// request fails, or if a block is not what was written to it last.
fn verify(guest: &Guest, disk: &str) -> Job {
    let device = guest.device(disk).unwrap();
    let fio = format!(
        "exec fio --name=verify --filename={device} --rw=randwrite --bs=4k --size={SIZE} \
         --iodepth=16 --ioengine=libaio --direct=1 --fsync=64 --loops=1000000 --verify=crc32c \
         --verify_fatal=1 --verify_state_save=0 --thread --output-format=json"
    );
    guest.begin(&fio).unwrap()
}

/// Reads a disk again and again, and ends with an error if a request fails.
fn read(guest: &Guest, disk: &str) -> Job {
    let device = guest.device(disk).unwrap();
    let fio = format!(
        "exec fio --name=read --filename={device} --rw=randread --bs=4k --size={SIZE} \
         --ioengine=psync --direct=1 --loops=1000000 --rate_iops=100 --thread"
    );
    guest.begin(&fio).unwrap()
}

/// Waits until so many IOs of the disk `patient` are done that all of it was written and read back since.
fn write_and_verify(dir: &Path, guest: &Guest, load: &Job) {
    let end = Instant::now() + 3 * SOON;
    let ios = || {
        let status = parda_agent::status::ask(&dir.join("status")).unwrap();
        let disks = &status.volumes[0].disks;
        let patient = disks.iter().find(|disk| disk.name == "patient").unwrap();
        (patient.writes.ios, patient.reads.ios)
    };
    // A loop that had begun before, and one that had not.
    let (until, blocks) = (ios(), 2 * SIZE / 4096);
    let until = (until.0 + blocks, until.1 + blocks);
    while ios().0 < until.0 || ios().1 < until.1 {
        let ended = guest.look(load, Duration::from_millis(50)).unwrap();
        assert!(ended.is_none(), "the load ended: {:?}", ended.unwrap());
        assert!(Instant::now() < end, "the load stands still at {:?} of {until:?}", ios());
    }
}

/// Ends a load that has verified what it wrote, without an error of it or of the guest's kernel.
fn verified(guest: &Guest, disk: &str, load: &Job) {
    guest.signal(load, "INT").unwrap();
    let output = guest.look(load, SOON).unwrap().expect("it ends").text();
    let report: serde_json::Value =
        serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
    assert_eq!(report["jobs"][0]["error"], 0, "{output}");
    // The longest pause, as the guest has it.
    let longest = ["read", "write"].map(|kind| &report["jobs"][0][kind]["lat_ns"]["max"]);
    println!("{disk}: longest read and write {longest:?} ns");
    let device = guest.device(disk).unwrap();
    let errors = format!("dmesg | grep -c 'error.*dev {}' || true", &device["/dev/".len()..]);
    assert_eq!(guest.ok(&errors, SOON).unwrap(), "0", "errors in the guest's log");
}

fn has_failed(guest: &Guest, load: &Job) -> bool {
    guest.look(load, SOON).unwrap().is_some_and(|output| !output.success())
}

#[test]
fn a_guest_rides_out_an_agent_that_is_killed_and_one_that_is_replaced() {
    let Some(_turn) = turn() else { return };
    let restarts = if std::env::var_os("PARDA_LONG").is_some() { 20 } else { 1 };
    let dir = tempfile::tempdir().unwrap();
    let mut config = "host = \"host\"\nstatus = \"unix:status\"\n\
                      [[volume]]\nname = \"array\"\n[volume.control]\nmode = \"off\"\n"
        .to_owned();
    for disk in ["patient", "hasty"] {
        std::fs::File::create(dir.path().join(disk)).unwrap().set_len(SIZE).unwrap();
        config += &format!(
            "[[volume.disk]]\nname = \"{disk}\"\npath = \"{disk}\"\nlisten = \"unix:socket\"\n"
        );
    }
    std::fs::write(dir.path().join("parda.toml"), config).unwrap();
    let mut agent = Agent::start(dir.path(), &["socket", "status"]);
    let disk = |name: &str, reconnect| {
        let (socket, export) = (dir.path().join("socket"), name.to_owned());
        Source::Nbd { socket, export, reconnect }
    };
    let config = guest("one").disk("patient", Bus::Virtio, disk("patient", RECONNECT));
    let guest = Guest::boot(config.disk("hasty", Bus::Virtio, disk("hasty", 0))).unwrap();
    let patient = verify(&guest, "patient");
    // The same without `reconnect-delay`: what the other is spared.
    let hasty = read(&guest, "hasty");
    write_and_verify(dir.path(), &guest, &patient);
    assert!(guest.look(&hasty, Duration::ZERO).unwrap().is_none(), "it fails before the kill");
    for round in 0..restarts {
        agent.end(Signal::KILL);
        std::thread::sleep(AWAY);
        agent = Agent::start(dir.path(), &["socket", "status"]);
        assert!(round > 0 || has_failed(&guest, &hasty), "the kill costs an error without a delay");
        write_and_verify(dir.path(), &guest, &patient);
        // An upgrade: the next agent is another process.
        agent.end(Signal::TERM);
        agent = Agent::start(dir.path(), &["socket", "status"]);
        write_and_verify(dir.path(), &guest, &patient);
    }
    verified(&guest, "patient", &patient);
}

/// Sockets of an agent that serves by vhost-user.
const SOCKETS: [&str; 2] = ["vhost", "status"];

/// How often agents are killed and replaced.
fn restarts() -> usize {
    if std::env::var_os("PARDA_LONG").is_some() { 200 } else { 2 }
}

/// A guest whose disk of that size is an agent's by vhost-user.
fn by_vhost_user(dir: &Path, size: u64) -> (Agent, Guest) {
    std::fs::File::create(dir.join("disk")).unwrap().set_len(size).unwrap();
    let config = "host = \"host\"\nstatus = \"unix:status\"\n\
                  [[volume]]\nname = \"array\"\n[volume.control]\nmode = \"off\"\n\
                  [[volume.disk]]\nname = \"patient\"\npath = \"disk\"\nlisten = \"vhost-user:vhost\"\n";
    std::fs::write(dir.join("parda.toml"), config).unwrap();
    let agent = Agent::start(dir, &SOCKETS);
    let source = Source::Vhost { socket: dir.join("vhost") };
    (agent, Guest::boot(guest("one").disk("patient", Bus::Virtio, source)).unwrap())
}

/// Waits until the guest sees this size of its disk, in bytes.
fn sees_size(guest: &Guest, size: u64) {
    let device = guest.device("patient").unwrap();
    let sectors = format!("cat /sys/block/{}/size", &device["/dev/".len()..]);
    let end = Instant::now() + SOON;
    while guest.ok(&sectors, SOON).unwrap() != (size / 512).to_string() {
        assert!(Instant::now() < end, "the guest does not see the disk grow");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_guest_by_vhost_user_sees_nothing_of_an_agent_that_is_killed_and_one_that_is_replaced() {
    let Some(_turn) = turn() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (path, sockets) = (dir.path().join("disk"), &SOCKETS);
    let (mut agent, guest) = by_vhost_user(dir.path(), SIZE);
    let load = verify(&guest, "patient");
    write_and_verify(dir.path(), &guest, &load);
    for _ in 0..restarts() {
        agent.end(Signal::KILL);
        agent = Agent::start(dir.path(), sockets);
        write_and_verify(dir.path(), &guest, &load);
        agent.end(Signal::TERM);
        agent = Agent::start(dir.path(), sockets);
        write_and_verify(dir.path(), &guest, &load);
    }
    verified(&guest, "patient", &load);

    // Discards are done, and a size that has changed is seen while the guest runs.
    let device = guest.device("patient").unwrap();
    guest.ok(&format!("blkdiscard -o 0 -l 65536 {device} && sync"), SOON).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    sees_size(&guest, 2 * SIZE);
    let mark =
        format!("yes parda | dd of={device} bs=4096 seek=300 count=2 iflag=fullblock conv=fsync");
    guest.ok(&mark, SOON).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..65536].iter().all(|byte| *byte == 0), "what was discarded");
    assert!(bytes[300 * 4096..].starts_with(b"parda\nparda\n"), "what was written");
    drop(guest);
}

#[test]
#[ignore = "a second guest by vhost-user: make nightly"]
fn a_guest_by_vhost_user_is_stopped_under_its_limit_and_its_disk_grows_while_its_agent_is_away() {
    let Some(_turn) = turn() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (agent, mut guest) = by_vhost_user(dir.path(), SIZE);
    let set = |value: &str| {
        let mut set = Command::new(&*PARDA);
        set.args(["set", "patient", "--temporary", value, "-c", "parda.toml"])
            .current_dir(dir.path());
        let done = set.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let load = verify(&guest, "patient");
    write_and_verify(dir.path(), &guest, &load);

    // QEMU waits for all 16 requests, which take 16 s by the limit.
    set("limit={ iops = 1 }");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    guest.monitor("stop").unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "it stopped after {:?}", began.elapsed());
    guest.monitor("cont").unwrap();
    set("limit=none");
    write_and_verify(dir.path(), &guest, &load);

    agent.end(Signal::KILL);
    let file = std::fs::File::options().write(true).open(dir.path().join("disk")).unwrap();
    file.set_len(2 * SIZE).unwrap();
    let agent = Agent::start(dir.path(), &SOCKETS);
    sees_size(&guest, 2 * SIZE);
    write_and_verify(dir.path(), &guest, &load);
    verified(&guest, "patient", &load);
    drop((guest, agent));
}

/// Writes files again and again. `/run/sums` has the checksum of each that was written and synced last.
const FILES: &str = "i=0; mkdir -p /run/sums; while :; do
    i=$(((i + 1) % 16)); rm -f /run/sums/$i
    head -c 262144 /dev/urandom >/run/new || exit 1
    cat /run/new >/mnt/$i && sync /mnt/$i && sha1sum </run/new >/run/sum && mv /run/sum /run/sums/$i || exit 1
  done";

/// Adds rows to a database. `/run/row` has the number of the last one that was committed.
const ROWS: &str = "i=0; while :; do i=$((i + 1))
    sqlite3 /mnt/db \"pragma synchronous = full; with r(b) as materialized (select randomblob(4000))
      insert into t select $i, b, sha3(b) from r\" || exit 1
    echo $i >/run/row.new && mv /run/row.new /run/row
  done";

/// Files and the database as `FILES` and `ROWS` left them, each row with its checksum and none missing: prints the last row.
const CHECK: &str = "for sum in /run/sums/*; do
    sha1sum </mnt/${sum##*/} | cmp - $sum || exit 1
  done
  wrong='(select count(*) from t where sha3(b) is not s)'
  [ \"$(sqlite3 /mnt/db 'pragma integrity_check')\" = ok ] &&
    [ \"$(sqlite3 /mnt/db \"select count(*) - max(i) + $wrong from t\")\" = 0 ] && sqlite3 /mnt/db 'select max(i) from t'";

#[test]
#[ignore = "the story before it, with a file system and a database: make nightly"]
fn files_and_a_database_survive_agents_that_are_killed_and_then_the_guest() {
    let Some(_turn) = turn() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (mut agent, mut guest) = by_vhost_user(dir.path(), 64 << 20);
    let device = guest.device("patient").unwrap();
    let mount = format!("modprobe ext4; mount -t ext4 {device} /mnt");
    let create = "sqlite3 /mnt/db 'pragma journal_mode = wal; create table t (i integer primary key, b blob, s blob)'";
    let line =
        format!("mkdir -p /mnt; /tools/bin/mke2fs -q -t ext4 {device} && {mount} && {create}");
    guest.ok(&line, SOON).unwrap();
    let loads = [FILES, ROWS].map(|load| guest.begin(load).unwrap());
    let number = |line: &str| guest.ok(line, SOON).unwrap().trim().parse::<u64>().unwrap();
    let row = || number("cat /run/row 2>/dev/null || echo 0");
    let goes_on = || {
        let (before, end) = (row(), Instant::now() + 3 * SOON);
        while row() < before + 3 {
            for load in &loads {
                let ended = guest.look(load, Duration::from_millis(100)).unwrap();
                assert!(ended.is_none(), "a load ended: {:?}", ended.unwrap());
            }
            assert!(Instant::now() < end, "no row after {before}");
        }
    };
    goes_on();
    for _ in 0..restarts() {
        agent.end(Signal::KILL);
        agent = Agent::start(dir.path(), &SOCKETS);
        goes_on();
    }
    for load in &loads {
        guest.signal(load, "KILL").unwrap();
    }
    let last = row();
    let errors = guest.ok("dmesg | grep -c 'error' || true", SOON).unwrap();
    assert_eq!(errors, "0", "errors in the guest's log");
    let sums = guest.run("cd /run && tar c sums", SOON).unwrap().stdout;
    // A plug that is pulled: what was synced is there, and nothing else need be.
    guest.restart().unwrap();
    guest.put("/run/sums.tar", &sums).unwrap();
    guest.ok("cd /run && tar x -f sums.tar && [ \"$(ls sums)\" ]", SOON).unwrap();
    let recovered = guest.run(&format!("/tools/bin/e2fsck -p {device}"), SOON).unwrap();
    assert!(recovered.status <= 1, "{}{}", recovered.text(), recovered.errors());
    guest.ok(&format!("mkdir -p /mnt; {mount}"), SOON).unwrap();
    let rows: u64 = guest.ok(CHECK, SOON).unwrap().trim().parse().unwrap();
    assert!(rows >= last, "row {last} was committed, and {rows} is the last");
    guest.ok(&format!("umount /mnt && /tools/bin/e2fsck -fn {device}"), SOON).unwrap();
    println!("{} files and {rows} rows are right", guest.ok("ls /run/sums | wc -l", SOON).unwrap());
    drop((guest, agent));
}
