//! VMs whose disks QEMU opens itself: their throttles follow the law. Each is a real QEMU with a virtio disk on an NBD export of
//! the modelled array. Its guest never runs, and IOs come from QEMU's own `qemu-io`, at the disk's device and so behind its
//! throttle.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use parda_control::Source;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::{Agent, LAB, PARDA, Process, Stage, until, wait_for};

/// Options of a disk, and how QEMU names its device.
type Disk = (&'static [&'static str], &'static str);

/// A disk by `-blockdev`, as libvirt has it.
const VIRTIO: Disk = (
    &[
        "-blockdev",
        "driver=nbd,node-name=lun,server.type=unix,server.path=array,export=lun0",
        "-device",
        "virtio-blk-pci,drive=lun,id=disk0",
    ],
    "/machine/peripheral/disk0/virtio-backend",
);

/// A disk by `-drive`, as Proxmox has it.
const SCSI: Disk = (
    &[
        "-drive",
        "file=nbd+unix:///lun0?socket=array,format=raw,if=none,id=drive-scsi0",
        "-device",
        "virtio-scsi-pci",
        "-device",
        "scsi-hd,drive=drive-scsi0,id=scsi0",
    ],
    "scsi0",
);

/// A QEMU, and the load on its disk.
struct Qemu {
    device: &'static str,
    process: Process,
    qmp: Arc<Mutex<BufReader<UnixStream>>>,
    load: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

fn say(qmp: &Mutex<BufReader<UnixStream>>, command: &str, arguments: &Value) -> Option<Value> {
    say_all(qmp, command, std::slice::from_ref(arguments))
}

/// Says all of them before the first answer is read: each wait for an answer is a wait for a processor on a busy machine. Answers with the
/// last answer.
fn say_all(
    qmp: &Mutex<BufReader<UnixStream>>,
    command: &str,
    arguments: &[Value],
) -> Option<Value> {
    let mut qmp = qmp.lock().unwrap();
    let line = |arguments| format!("{}\n", json!({ "execute": command, "arguments": arguments }));
    qmp.get_mut().write_all(arguments.iter().map(line).collect::<String>().as_bytes()).ok()?;
    let mut last = None;
    for _ in arguments {
        last = loop {
            let mut line = String::new();
            qmp.read_line(&mut line).ok().filter(|n| *n > 0)?;
            let mut answer: Value = serde_json::from_str(&line).unwrap();
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(answer) = answer.get_mut("return") {
                break Some(answer.take());
            }
        };
    }
    last
}

impl Qemu {
    /// Starts one with a socket for its agent, `HOST.NAME.qmp`, and one for the story.
    fn start(stage: &Stage, host: &str, name: &str) -> Qemu {
        Qemu::with_disk(stage, host, name, VIRTIO)
    }

    fn with_disk(stage: &Stage, host: &str, name: &str, (disk, device): Disk) -> Qemu {
        let (first, own) = (format!("{host}.{name}.qmp"), format!("{name}.own"));
        let [first, second] = [&first, &own].map(|path| format!("unix:{path},server=on,wait=off"));
        let mut line =
            vec!["qemu-system-x86_64", "-nodefaults", "-display", "none", "-S", "-m", "32"];
        line.extend(["-name", name]);
        line.extend(disk);
        line.extend(["-qmp", &first, "-qmp", &second]);
        let process = stage.start(&format!("qemu-{name}"), &line);
        let stream = wait_for("QEMU listens", || UnixStream::connect(stage.path(&own)).ok());
        let mut qmp = BufReader::new(stream);
        qmp.read_line(&mut String::new()).unwrap();
        let qmp = Arc::new(Mutex::new(qmp));
        say(&qmp, "qmp_capabilities", &json!({})).unwrap();
        Qemu { device, process, qmp, load: None }
    }

    /// Keeps so many random reads at the disk.
    fn load(mut self, depth: u64) -> Qemu {
        let (stop, qmp) = (Arc::new(AtomicBool::new(false)), Arc::clone(&self.qmp));
        let stopped = Arc::clone(&stop);
        let device = self.device;
        let mut random = fastrand::Rng::with_seed(depth);
        let thread = std::thread::spawn(move || {
            let mut begun = 0;
            while !stopped.load(Ordering::Relaxed) {
                let Some(done) = reads(&qmp) else { return };
                let all: Vec<_> = (begun..done + depth)
                    .map(|_| {
                        let at = random.u64(0..65_536) * 16_384;
                        let line = format!("qemu-io -d {device} \"aio_read -q {at} 16k\"");
                        json!({ "command-line": line })
                    })
                    .collect();
                if !all.is_empty() && say_all(&qmp, "human-monitor-command", &all).is_none() {
                    return;
                }
                begun = begun.max(done + depth);
                sleep(Duration::from_millis(3));
            }
        });
        self.load = Some((stop, thread));
        self
    }

    fn reads(&self) -> f64 {
        reads(&self.qmp).unwrap() as f64
    }

    /// Sets limits as an operator does.
    fn limit(&self, iops: u64, more: &Value) {
        let mut all = json!({ "id": self.device, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops_rd": 0, "iops_wr": 0 });
        all["iops"] = iops.into();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        say(&self.qmp, "block_set_io_throttle", &all).unwrap();
    }

    /// Limit of IO/s in force, its burst, and the throttle group.
    fn limits(&self) -> (u64, u64, String) {
        let disk = say(&self.qmp, "query-block", &json!({})).unwrap()[0]["inserted"].take();
        let number = |key: &str| disk[key].as_u64().unwrap_or(0);
        let group = disk["group"].as_str().unwrap_or_default();
        (number("iops"), number("iops_max"), group.to_owned())
    }

    fn is_held(&self) -> bool {
        self.limits().2.starts_with("parda:")
    }
}

fn reads(qmp: &Mutex<BufReader<UnixStream>>) -> Option<u64> {
    say(qmp, "query-blockstats", &json!({}))?[0]["stats"]["rd_operations"].as_u64()
}

impl Drop for Qemu {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.load.take() {
            stop.store(true, Ordering::Relaxed);
            // A load that failed has said so; one at a QEMU that stands still does not end.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

fn array(stage: &Stage) -> Process {
    let line = ["array", "--preset", "cx3-40-raid0", "--drives", "4", "--listen", "unix:array"];
    let array = stage.start("array", &[&[LAB], &line[..]].concat());
    until("the array answers", || stage.path("array").exists());
    array
}

/// The configuration of a host.
fn configured(stage: &Stage, host: &str, control: &str, more: &str) -> String {
    format!(
        "host = \"{host}\"\nstatus = \"unix:{host}.status\"\n[[volume]]\nname = \"array\"\n\
         [volume.control]\nperiod = \"500ms\"\n{control}\n\
         [volume.qemu]\nsockets = \"{}\"\ndisks = [\"lun\", \"scsi*\"]\nprobe = \"nbd+unix:///lun0?socket=array\"\n{more}\n",
        stage.path(&format!("{host}.*.qmp")).display()
    )
}

fn fault(agent: &Agent) -> Option<String> {
    agent.volume().steer.unwrap().fault
}

fn names(agent: &Agent) -> Vec<String> {
    agent.volume().steer.unwrap().vms.into_iter().map(|vm| vm.name).collect()
}

/// A fixed window, for stories in which something is to be held.
const FIXED: &str = "mode = \"static\"\nwindow_max = 2";

#[test]
fn qemus_of_two_hosts_have_iops_by_their_shares() {
    let stage = Stage::new();
    let _array = array(&stage);
    stage.exchange("exchange", 64);
    let db = Qemu::start(&stage, "a", "db");
    let web = Qemu::start(&stage, "a", "web").load(16);
    let batch = Qemu::with_disk(&stage, "b", "batch", SCSI).load(16);
    let idle = Qemu::start(&stage, "b", "idle");
    // An operator has limits there, which are above what the shares give.
    db.limit(5000, &json!({ "iops_max": 6000, "group": "operators" }));
    let db = db.load(16);

    let agents = ["a", "b"].map(|host| {
        let more = "[volume.exchange]\nfile = \"exchange\"\n[[volume.qemu.vm]]\nname = \"d*\"\nshares = 2000";
        stage.agent(host, &configured(&stage, host, "latency_threshold = \"15ms\"", more))
    });
    until("they hear each other", || {
        agents.iter().all(|agent| agent.volume().source == Source::Cluster)
    });
    let rates = || {
        let seconds = 3.0;
        let count = || [db.reads(), web.reads(), batch.reads()];
        let before = count();
        sleep(Duration::from_secs_f64(seconds));
        let now = count();
        let rates = [0, 1, 2].map(|i| ((now[i] - before[i]) / seconds).max(0.1));
        eprintln!("IOPS {rates:.0?}, {:.1?} ms", agents[0].volume().cluster_latency_ms);
        rates
    };
    until("IOPS are as the shares, and the latency is near the threshold", || {
        let [db, web, batch] = rates();
        let latency = agents[0].volume().cluster_latency_ms.unwrap_or(0.0);
        [db / web, db / batch].iter().all(|ratio| (1.6..2.5).contains(ratio))
            && (10.0..25.0).contains(&latency)
    });
    assert!(db.is_held() && web.is_held() && batch.is_held());
    let mut status = String::new();
    until("the status says so", || {
        status = stage.ok(&[PARDA, "status", "--socket", "a.status"]);
        status.contains("a.*.qmp: 2 VMs, 2 disks, throttled: 2")
    });
    for vm in [["db", "2000"], ["web", "1000"]] {
        let is_vm = |line: &str| line.split_whitespace().take(2).eq(vm);
        assert!(status.lines().any(is_vm), "{vm:?}: {status}");
    }
    let beside = stage.ok(&[PARDA, "status", "--socket", "b.status"]);
    assert!(beside.contains(" idle ") && !beside.contains("-0.0"), "{beside}");

    // Shares change while the agent runs.
    let text = String::from_utf8(stage.read("a.toml")).unwrap();
    stage.write("a.toml", text.replace("shares = 2000", "shares = 1000"));
    agents[0].process.signal(Signal::HUP);
    let together = wait_for("IOPS are alike", || {
        let [db, web, batch] = rates();
        let alike = [db / web, db / batch].iter().all(|ratio| (0.75..1.35).contains(ratio));
        alike.then_some(db + web)
    });
    // A VM that ends leaves the array to the others, although all of them are held.
    batch.process.signal(Signal::KILL);
    until("others have more", || {
        let count = || db.reads() + web.reads();
        let before = count();
        sleep(Duration::from_secs(3));
        let now = (count() - before) / 3.0;
        eprintln!("{now:.0} IOPS after {together:.0}");
        now > 1.15 * together
    });

    // The operator lowers a limit meanwhile, and it is kept.
    web.limit(40, &json!({}));
    until("the operator's limit holds", || web.limits().0 == 40 && web.is_held());
    agents.into_iter().for_each(Agent::stop);
    assert_eq!(db.limits(), (5000, 6000, "operators".to_owned()));
    assert_eq!((web.limits().0, web.is_held()), (40, false));
    assert_eq!(idle.limits(), (0, 0, String::new()));
}

#[test]
fn qemus_of_a_tenant_divide_its_limit() {
    let stage = Stage::new();
    let _array = array(&stage);
    let [db, web] = ["db", "web"].map(|name| Qemu::start(&stage, "host", name).load(16));
    let other = Qemu::start(&stage, "host", "other").load(16);
    let more = "[[volume.qemu.vm]]\nname = \"*b\"\ntenant = \"gold\"\n\
                [[volume.tenant]]\nname = \"gold\"\nlimit = { iops = 60 }";
    let text = configured(&stage, "host", "latency_threshold = \"15ms\"", more);
    let agent = stage.agent("host", &text);
    let rates = || {
        let count = || [db.reads(), web.reads(), other.reads()];
        let before = count();
        sleep(Duration::from_secs(3));
        let now = count();
        let rates = [0, 1, 2].map(|i| (now[i] - before[i]) / 3.0);
        eprintln!("IOPS {rates:.0?}");
        rates
    };
    let full = 45.0..63.0;
    until("both have the limit together, and alike", || {
        let [db, web, other] = rates();
        full.contains(&(db + web)) && (0.75..1.35).contains(&(db / web)) && other > 63.0
    });
    until("the status names the limit", || {
        let status = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
        status.contains("VM db: limited by the limit of its tenant gold")
    });
    web.process.signal(Signal::KILL);
    until("the other has it alone", || {
        let before = db.reads();
        sleep(Duration::from_secs(3));
        full.contains(&((db.reads() - before) / 3.0))
    });
    agent.stop();
    assert_eq!(db.limits(), (0, 0, String::new()));
}

#[test]
fn limits_of_qemus_are_as_they_were_after_an_agent_was_killed() {
    let stage = Stage::new();
    let _array = array(&stage);
    let vm = Qemu::start(&stage, "host", "vm");
    // Far above what it does: at half of its limit, its wait may be for that.
    vm.limit(5000, &json!({}));
    let before = vm.limits();
    let vm = vm.load(16);
    // What the VM did before it was held gives it a first limit, while the probe cannot be reached.
    let text = configured(&stage, "host", FIXED, "");
    let agent = stage.agent("host", &text.replace("lun0?socket=array", "lun0?socket=nowhere"));
    until("the VM is held", || vm.is_held());
    until("the probe is missed", || {
        fault(&agent).is_some_and(|fault| fault.contains("cannot be measured"))
    });
    stage.write("host.toml", text);
    agent.process.signal(Signal::HUP);
    until("the probe is read", || fault(&agent).is_none() && vm.is_held());
    agent.process.kill();
    assert!(vm.is_held());
    let restore = [PARDA, "steer", "restore", "host.vm.qmp"];
    let said = stage.ok(&restore);
    assert!(said.contains("host.vm.qmp = disk0 {"), "{said}");
    assert_eq!(vm.limits(), before);

    // The next agent knows what was there as well, also one that only looks.
    let agent = stage.restart(&[], "host");
    until("the VM is held", || vm.is_held());
    let held = stage.fails(&restore);
    assert!(held.contains("is being steered by process"), "{held}");
    agent.process.kill();
    stage.write("host.toml", configured(&stage, "host", "mode = \"observe\"", ""));
    let agent = stage.restart(&[], "host");
    until("limits are as they were", || vm.limits() == before);
    agent.stop();
    assert_eq!(vm.limits(), before);
}

#[test]
fn a_host_that_observes_qemus_says_what_would_be_done_and_sets_nothing() {
    let stage = Stage::new();
    let _array = array(&stage);
    let vm = Qemu::start(&stage, "host", "vm").load(64);
    let control = "mode = \"observe\"\nlatency_threshold = \"5ms\"";
    let rules = "[[volume.qemu.vm]]\nname = \"v?\"\n[[volume.qemu.vm]]\nname = \"mv\"";
    let text = configured(&stage, "host", control, rules).replace("probe =", "# probe =");
    let agent = stage.agent("host", &text);
    until("the name that no QEMU has is seen", || {
        let unused = agent.volume().steer.unwrap().patterns_without_vm;
        unused.iter().map(|pattern| pattern.vm.as_str()).eq(["mv"])
    });
    agent.says("has no QEMU of that name");
    until("it foretells a lower latency", || {
        let outlook = agent.volume().outlook;
        outlook.is_some_and(|outlook| {
            let last = outlook.last;
            last.latency_ms > 8.0 && (4.0..6.0).contains(&last.latency_would_be_ms)
        })
    });
    assert_eq!(vm.limits(), (0, 0, String::new()));
    // Nothing holds IOs, so all that are pending are at the array. Both are means over a period, which a busy machine does not end at once.
    until("all that are pending are at the array", || {
        let volume = agent.volume();
        (0.8..1.2).contains(&(volume.outstanding / volume.steer.unwrap().pending))
    });
    agent.stop();
    assert_eq!(vm.limits(), (0, 0, String::new()));

    let error = stage.parda(&["check", "host.toml"]);
    assert!(error.status.success());
    stage.write("bad.toml", text.replace("mode = \"observe\"", ""));
    let error = stage.fails(&[PARDA, "check", "bad.toml"]);
    assert!(error.contains("probe: is missing: QEMU counts the wait"), "{error}");
}

/// Answers each client at a socket with bytes, and then with nothing.
fn serve(
    stage: &Stage,
    name: &str,
    bytes: impl Fn() -> Box<dyn Iterator<Item = Vec<u8>>> + Send + 'static,
) {
    let listener = UnixListener::bind(stage.path(&format!("host.{name}.qmp"))).unwrap();
    // Ends with the process.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            for part in bytes() {
                if stream.write_all(&part).is_err() {
                    break;
                }
            }
            open.push(stream);
        }
    });
}

#[test]
fn sockets_that_are_silent_lie_or_flood_and_qemus_that_die_or_stand_still_harm_nobody() {
    let stage = Stage::new();
    let _array = array(&stage);
    let vm = Qemu::start(&stage, "host", "vm").load(16);
    let dies = Qemu::start(&stage, "host", "dies").load(16);
    let stops = Qemu::start(&stage, "host", "stops").load(16);
    let once = |lines: &[String]| {
        let bytes = lines.concat().into_bytes();
        move || -> Box<dyn Iterator<Item = Vec<u8>>> { Box::new(std::iter::once(bytes.clone())) }
    };
    let line = |value: &Value| format!("{value}\n");
    let greeting = line(&json!({ "QMP": { "version": {}, "capabilities": [] } }));
    let ok = line(&json!({ "return": {} }));
    serve(&stage, "silent", || Box::new(std::iter::empty()));
    serve(&stage, "http", once(&["HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()]));
    serve(&stage, "flood", || Box::new((0..100).map(|_| vec![b'x'; 1 << 20])));
    // A QEMU that tells of disks which do more than all, less than nothing, and of a name that a terminal would obey.
    let stats = json!([{ "device": "lun", "stats": {
        "rd_operations": u64::MAX, "rd_bytes": -1, "rd_total_time_ns": 1e300, "wr_operations": "many",
    } }]);
    let disk = json!([{ "device": "lun", "inserted": { "file": "lun", "iops": -1, "group": 5 } }, 7, { "qdev": 1 }]);
    let name = line(&json!({ "return": { "name": "\u{1b}[2Jliar\nvm" } }));
    let [disk, stats] = [disk, stats].map(|list| line(&json!({ "return": list })));
    let first = greeting.clone().into_bytes();
    serve(&stage, "events", move || {
        let events = std::iter::repeat_n(b"{\"event\":\"X\"}\n".repeat(1 << 16), 100);
        Box::new(std::iter::once(first.clone()).chain(events))
    });
    serve(&stage, "liar", once(&[greeting.clone(), ok.clone(), name, disk, stats]));
    serve(&stage, "empty", once(&[greeting, ok.clone(), ok.clone(), ok.clone(), ok]));
    // A socket that its program left behind.
    drop(UnixListener::bind(stage.path("host.left.qmp")).unwrap());

    let agent = stage.agent("host", &configured(&stage, "host", FIXED, ""));
    until("VMs are held", || vm.is_held() && dies.is_held() && stops.is_held());
    until("silence is told", || agent.volume().steer.unwrap().qemu.unwrap().silent == 5);
    let log = agent.process.log();
    for said in [
        "host.silent.qmp: does not answer within 500 ms",
        "host.http.qmp: is no QMP socket: ",
        "host.flood.qmp: is no QMP socket: it sends a line of more than 4 MiB",
        "host.events.qmp: does not answer",
        "host.empty.qmp: is no QMP socket: its disks are no list",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(names(&agent).iter().any(|name| name.contains("liar")), "{:?}", names(&agent));
    let status = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
    assert!(!status.contains('\u{1b}') && status.contains("\\u001b[2Jliar\\nvm"), "{status}");

    // One dies and one stands still: the others are held as before.
    dies.process.signal(Signal::KILL);
    stops.process.signal(Signal::STOP);
    until("they are missed", || names(&agent).iter().all(|name| name != "dies" && name != "stops"));
    assert!(fault(&agent).is_some());
    let before = vm.reads();
    sleep(Duration::from_secs(2));
    let rate = (vm.reads() - before) / 2.0;
    let iops = vm.limits().0 as f64;
    assert!(vm.is_held() && rate <= 1.5 * iops, "{rate} IO/s under a limit of {iops}");

    // What cannot be put back now is put back when the QEMU goes on.
    agent.process.signal(Signal::TERM);
    agent.says("host.stops.qmp: limits cannot be set again");
    drop(agent);
    assert_eq!(vm.limits(), (0, 0, String::new()));
    stops.process.signal(Signal::CONT);
    until("it goes on", || stops.is_held());
    stage.ok(&[PARDA, "steer", "restore", "host.stops.qmp"]);
    assert_eq!(stops.limits(), (0, 0, String::new()));
}
