//! Guests by vhost-user: an agent that is killed under their load, what the status and the configuration say of them.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parda_bench::driver::{Command, Driver, Shape};
use parda_testkit::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::{Done, LAB, Process, Stage, noise, until, wait_for};

const SIZE: u64 = 8 << 20;
const BLOCK: u32 = 4096;
const SLOTS: u16 = 16;
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn config(direct: &str) -> String {
    format!(
        "host = \"h\"\nstatus = \"unix:h.status\"\n[[volume]]\nname = \"a\"\n[volume.control]\n\
         mode = \"off\"\n[[volume.disk]]\nname = \"vm1\"\npath = \"disk\"\ndirect = \"{direct}\"\n\
         listen = \"vhost-user:vm1.vhost\"\n"
    )
}

/// Writes and reads of blocks, of which each has the number of its last write in all of its bytes.
struct Load {
    driver: Driver,
    random: fastrand::Rng,
    blocks: Vec<u8>,
    /// The block of each slot that is under way, and whether it is written.
    busy: Vec<Option<(usize, bool)>>,
    answered: u64,
}

impl Load {
    fn submit(&mut self) {
        for slot in 0..SLOTS {
            let block = self.random.usize(..self.blocks.len());
            // Two requests of one block at a time have no order.
            if self.busy[usize::from(slot)].is_some()
                || self.busy.iter().flatten().any(|(other, _)| *other == block)
            {
                continue;
            }
            let (sector, len) = (block as u64 * u64::from(BLOCK) / 512, BLOCK);
            let write = self.random.bool();
            let command = if write {
                self.blocks[block] = self.blocks[block].wrapping_add(1);
                let bytes = [self.blocks[block]; BLOCK as usize];
                self.driver.poke(self.driver.data(0, slot), &bytes).unwrap();
                Command::Write { sector, len }
            } else {
                Command::Read { sector, len }
            };
            self.driver.submit(0, slot, command).unwrap();
            self.busy[usize::from(slot)] = Some((block, write));
        }
        self.driver.kick(0).unwrap();
    }

    /// Takes the answers that there are.
    fn take(&mut self) {
        while let Some((slot, status)) = self.driver.answered(0).unwrap() {
            assert_eq!(status, 0, "an IO failed");
            let (block, write) =
                self.busy[usize::from(slot)].take().expect("a request is answered once");
            if !write {
                let mut bytes = [0; BLOCK as usize];
                self.driver.peek(self.driver.data(0, slot), &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == self.blocks[block]), "block {block}");
            }
            self.answered += 1;
        }
    }

    fn run(&mut self, more: u64) {
        let until = self.answered + more;
        while self.answered < until {
            self.submit();
            assert!(self.driver.wait(0, SOON).unwrap(), "no answer");
            self.take();
        }
    }
}

#[test]
fn a_guest_goes_on_when_its_agent_is_killed_under_load() {
    let kills = if std::env::var_os("PARDA_LONG").is_some() { 200 } else { 6 };
    for direct in ["auto", "off"] {
        let stage = Stage::new();
        stage.sparse("disk", SIZE);
        let mut agent = stage.agent("h", &config(direct));
        let shape = Shape { queues: 1, slots: SLOTS, data: BLOCK, indirect: true, event_idx: true };
        let driver = Driver::connect(&stage.path("vm1.vhost"), shape).unwrap();
        let mut load = Load {
            driver,
            random: fastrand::Rng::with_seed(3),
            blocks: vec![0; SIZE as usize / BLOCK as usize],
            busy: vec![None; SLOTS.into()],
            answered: 0,
        };
        load.run(500);
        for kill in 0..kills {
            load.submit();
            if kill % 2 == 0 {
                agent.process.kill();
            } else {
                // A service manager's restart: what is in flight is answered first.
                agent.process.signal(Signal::TERM);
                assert!(agent.process.wait().success());
            }
            agent = stage.restart(&[], "h");
            load.driver.reconnect(&stage.path("vm1.vhost")).unwrap();
            load.run(300);
        }
        while load.busy.iter().any(Option::is_some) {
            assert!(load.driver.wait(0, SOON).unwrap(), "requests were lost");
            load.take();
        }
        assert_eq!(load.driver.perform(Command::Flush, SOON).unwrap(), 0);
        agent.stop();
        let bytes = stage.read("disk");
        for (block, value) in load.blocks.iter().enumerate() {
            let at = block * BLOCK as usize;
            let block = &bytes[at..at + BLOCK as usize];
            assert!(block.iter().all(|byte| byte == value), "block at {at}");
        }
    }
}

/// QEMU that connects to a process which is about to be gone does not come back (7.2), and who connects by NBD waits for a greeting:
/// with the process, its sockets end.
#[test]
fn nobody_reaches_the_socket_of_an_agent_that_was_killed() {
    let stage = Stage::new();
    for disk in ["disk", "disk2"] {
        stage.sparse(disk, SIZE);
    }
    let nbd = "[[volume.disk]]\nname = \"vm2\"\npath = \"disk2\"\nlisten = \"unix:vm2.sock\"\n";
    let mut agent = stage.agent("h", &(config("auto") + nbd));
    for _ in 0..20 {
        let _client = Client::connect(&stage.path("vm2.sock"), "vm2");
        agent.process.kill();
        for socket in ["vm1.vhost", "vm2.sock"] {
            let error = UnixStream::connect(stage.path(socket)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{socket}");
        }
        agent = stage.restart(&[], "h");
    }
}

/// QEMU with the disk of `config` and no guest but its firmware, stopped.
pub(crate) struct Qemu {
    monitor: UnixStream,
    answers: Lines<BufReader<UnixStream>>,
    _process: Process,
}

impl Qemu {
    /// Starts it with so much memory for its guest, and further options.
    pub(crate) fn start(stage: &Stage, memory: &str, more: &str) -> Qemu {
        let ram = memory.split(',').next().unwrap_or_default();
        let line = format!(
            "qemu-system-x86_64 -S -display none -nodefaults -m {memory} -qmp unix:qmp,server=on,wait=off \
             -object memory-backend-memfd,id=ram,size={ram},share=on -machine q35,memory-backend=ram \
             -chardev socket,id=vm1,path=vm1.vhost,reconnect=1 -device vhost-user-blk-pci,chardev=vm1,bootindex=0 {more}"
        );
        let process = stage.start("qemu", &line.split_whitespace().collect::<Vec<_>>());
        let monitor = wait_for("QEMU listens", || UnixStream::connect(stage.path("qmp")).ok());
        let answers = BufReader::new(monitor.try_clone().unwrap()).lines();
        let mut qemu = Qemu { monitor, answers, _process: process };
        qemu.ask("qmp_capabilities", json!({}));
        // It answers once its devices are there.
        qemu.ask("query-status", json!({}));
        qemu
    }

    /// Has it do a command, which must succeed.
    pub(crate) fn ask(&mut self, command: &str, arguments: Value) {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        self.monitor.write_all(line.as_bytes()).unwrap();
        let answer = |line: &std::io::Result<String>| {
            let line = line.as_ref().unwrap();
            assert!(!line.contains("\"error\""), "{command}: {line}");
            line.contains("\"return\"")
        };
        self.answers.find(answer).expect("QEMU ended").unwrap();
    }
}

/// QEMU (7.2) connects again without a handshake while its guest has not started the disk.
#[test]
fn a_guest_starts_its_disk_after_its_agent_was_replaced() {
    let stage = Stage::new();
    stage.sparse("disk", SIZE);
    let agent = stage.agent("h", &config("auto"));
    let mut qemu = Qemu::start(&stage, "64M", "");
    agent.process.kill();
    let agent = stage.restart(&[], "h");
    until("QEMU is back", || agent.volume().disks[0].clients == 1);
    qemu.ask("cont", json!({}));
    until("the firmware reads the disk", || agent.volume().disks[0].reads.ios > 0);
}

/// Without slots for memory, QEMU takes eight regions, of which a guest without DIMMs has some already.
#[test]
fn a_guest_gets_dimms_while_it_has_its_disk() {
    let stage = Stage::new();
    // A boot sector that reads the next sector for ever.
    let mut disk = vec![0; SIZE as usize];
    let code = [
        0x31, 0xdb, 0x8e, 0xc3, 0xbb, 0x00, 0x80, // to 0:8000
        0xb8, 0x01, 0x02, 0xb9, 0x02, 0x00, 0xb6, 0x00, 0xb2, 0x80, 0xcd,
        0x13, // read sector 2
        0xeb, 0xeb, // again
    ];
    disk[..code.len()].copy_from_slice(&code);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    stage.write("disk", &disk);
    let agent = stage.agent("h", &config("auto"));
    let mut qemu = Qemu::start(&stage, "64M,slots=16,maxmem=2G", "");
    qemu.ask("cont", json!({}));
    let reads = || agent.volume().disks[0].reads.ios;
    until("the guest reads", || reads() > 10);
    for n in 0..12 {
        let (memory, dimm) = (format!("m{n}"), format!("d{n}"));
        let backend = json!({ "qom-type": "memory-backend-memfd", "id": memory, "size": 128 << 20, "share": true });
        qemu.ask("object-add", backend);
        qemu.ask("device_add", json!({ "driver": "pc-dimm", "id": dimm, "memdev": memory }));
        let before = reads();
        until("the guest goes on", || reads() > before + 10);
    }
    let disk = &agent.volume().disks[0];
    assert_eq!((disk.clients, disk.errors), (1, 0));
}

#[test]
fn a_guest_is_a_client_in_the_status_and_its_reads_can_be_measured() {
    let stage = Stage::new();
    let before = noise(SIZE as usize);
    stage.write("disk", &before);
    let agent = stage.agent("h", &config("auto"));
    let clients = || agent.volume().disks[0].clients;
    assert_eq!(clients(), 0);
    let pid = agent.process.pid().to_string();
    let line = ["bench", "vhost-user", "vm1.vhost", "--depth", "16", "--time", "1s", "--json", "-"];
    let bench = stage.start("bench", &[&[LAB], &line[..], &["--server-pid", &pid]].concat());
    until("the client is seen", || clients() == 1);
    let mut bench = bench;
    let status = bench.wait();
    let Done { status, out, err } = bench.done(status);
    assert!(status.success(), "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let number = |key: &str| answer[key].as_f64().unwrap_or_else(|| panic!("{key} in {out}"));
    assert!(number("reads") > 100.0 && number("p50_us") <= number("p99_us"), "{out}");
    until("the client has gone", || clients() == 0);
    assert!(agent.volume().disks[0].reads.ios as f64 >= number("reads"));
    assert_eq!(stage.read("disk"), before);
}

/// An NBD server that takes no other requests than those of its block sizes, and a disk on it.
fn behind_nbdkit(stage: &Stage, [min, preferred, max]: [&str; 3]) -> Process {
    let sizes = [
        format!("blocksize-minimum={min}"),
        format!("blocksize-preferred={preferred}"),
        format!("blocksize-maximum={max}"),
    ];
    let line = ["nbdkit", "-f", "-U", "server", "--filter=blocksize-policy", "memory", "256M"];
    let line =
        [&line[..], &sizes.each_ref().map(String::as_str), &["blocksize-error-policy=error"]];
    let server = stage.start("nbdkit", &line.concat());
    until("nbdkit listens", || stage.path("server").exists());
    let path = format!("nbd+unix:///?socket={}", stage.path("server").display());
    stage.write(
        "h.toml",
        config("auto").replace("path = \"disk\"\ndirect = \"auto\"", &format!("path = \"{path}\"")),
    );
    server
}

#[test]
fn a_guest_has_the_blocks_of_the_server_behind_its_disk_and_may_ask_for_more_at_once() {
    for (sizes, block, physical, min_io, opt_io) in [
        (["1", "4K", "64K"], 512, 3, 8, 128),
        (["4K", "64K", "64K"], 4096, 0, 16, 16),
        (["512", "512", "512"], 512, 0, 1, 1),
        (["1", "32M", "32M"], 512, 3, u16::MAX, 0),
        (["1", "4K", "32M"], 512, 3, 8, 0),
    ] {
        let stage = Stage::new();
        let _server = behind_nbdkit(&stage, sizes);
        let agent = stage.restart(&[], "h");
        let shape = Shape { queues: 1, slots: 1, data: 40 << 20, indirect: true, event_idx: true };
        let mut driver = Driver::connect(&stage.path("vm1.vhost"), shape).unwrap();
        let space = driver.config(60).unwrap();
        let number = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        let topology = (number(20), space[24], number(26) as u16, number(28));
        assert_eq!(topology, (block, physical, min_io, opt_io), "{sizes:?}");
        // Smaller blocks take a request for each.
        let lens = if sizes[2] == "512" { &[1 << 20][..] } else { &[1 << 20, 32 << 20] };
        for len in lens {
            let (bytes, sector) = (noise(*len), u64::from(block) / 512);
            let len = *len as u32;
            driver.poke(driver.data(0, 0), &bytes).unwrap();
            assert_eq!(
                driver.perform(Command::Write { sector, len }, SOON).unwrap(),
                0,
                "{sizes:?}"
            );
            driver.poke(driver.data(0, 0), &vec![0; bytes.len()]).unwrap();
            assert_eq!(
                driver.perform(Command::Read { sector, len }, SOON).unwrap(),
                0,
                "{sizes:?}"
            );
            let mut read = vec![0; bytes.len()];
            driver.peek(driver.data(0, 0), &mut read).unwrap();
            assert!(read == bytes, "{sizes:?}");
        }
        assert_eq!(agent.volume().disks[0].errors, 0);
        agent.stop();
    }
}

#[test]
fn a_disk_whose_blocks_no_guest_has_is_refused_at_the_start() {
    let stage = Stage::new();
    let _server = behind_nbdkit(&stage, ["64K", "64K", "32M"]);
    let agent = stage.restart(&[], "h");
    agent.says("multiples of 65536 bytes only, and no guest has blocks of more than 4096");
    // By NBD its clients are told.
    let text = std::fs::read_to_string(stage.path("h.toml")).unwrap();
    stage.write("h.toml", text.replace("vhost-user:vm1.vhost", "unix:vm1.sock"));
    agent.process.signal(Signal::HUP);
    until("the disk is served", || UnixStream::connect(stage.path("vm1.sock")).is_ok());
    agent.says("disk_up");
    agent.stop();
}

#[test]
fn a_socket_of_vhost_user_is_for_one_disk() {
    let stage = Stage::new();
    stage.sparse("disk", SIZE);
    stage.sparse("other", SIZE);
    let two =
        "[[volume.disk]]\nname = \"vm2\"\npath = \"other\"\nlisten = \"vhost-user:vm1.vhost\"\n";
    stage.write("h.toml", config("auto") + two);
    let Done { status, err, .. } = stage.parda(&["check", "h.toml"]);
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(
        err.contains("h.toml:15:10: listen = \"vhost-user:vm1.vhost\": is another disk's"),
        "{err}"
    );
    let absolute = format!("vhost-user:{}", stage.path("vm1.vhost").display());
    for other in ["unix:vm1.vhost", &absolute] {
        stage.write("h.toml", config("auto") + &two.replace("vhost-user:vm1.vhost", other));
        let Done { status, err, .. } = stage.parda(&["check", "h.toml"]);
        assert_eq!(status.code(), Some(2), "{err}");
        assert!(err.contains("is the socket of vhost-user:vm1.vhost"), "{err}");
    }
    // Its memory is shared on this host: nothing of it is encrypted.
    let tls = "[[listener]]\naddress = \"vhost-user:vm1.vhost\"\n[listener.tls]\n\
               certificate = \"c\"\nkey = \"k\"\n";
    stage.write("h.toml", config("auto") + tls);
    let Done { status, err, .. } = stage.parda(&["check", "h.toml"]);
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains("tls") && err.contains("is for NBD"), "{err}");
}
