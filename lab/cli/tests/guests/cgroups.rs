//! VMs of a host as cgroups of a kernel of its own, and what of its window each gets.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{Bus, ExportFile, Guest, GuestConfig, Job, Source};
use tempfile::TempDir;

use crate::{LAB, PARDA, SOON, guest, turn};

/// How long shares may take to settle, and how long they are looked at then.
const SETTLE: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_secs(8);

/// Two drives that serve in order: some 300 IOPS, so that emulation is out of the picture.
const ARRAY: &str = r#"
name = "cgroups"
duration = "1s"
[[phase]]
name = "all"
from = "0s"
to = "1s"
[array]
preset = "drive-7200"
raid = { drives = 2, level = "raid0" }
drive = { queue_depth = 1, scheduling = "fcfs" }
[[host]]
name = "one"
[[host.vm]]
name = "one"
shares = 1000
disk = "8GiB"
workload = { size = "4KiB", read = "100%", random = "100%", outstanding = 1 }
[[host.vm]]
name = "two"
shares = 1000
disk = "8GiB"
workload = { size = "4KiB", read = "100%", random = "100%", outstanding = 1 }
"#;

/// An array that guests share, and where they meet.
struct Shared {
    /// The array's LUNs, by the VMs' names.
    luns: [(&'static str, ExportFile); 2],
    _array: Array,
    dir: TempDir,
}

/// The array's own process.
struct Array(Child);

impl Shared {
    fn new() -> Shared {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("array.toml");
        fs::write(&file, ARRAY).unwrap();
        let exchange = dir.path().join("exchange");
        let mut make = Command::new(&*PARDA);
        make.args(["exchange", "init", "--slots", "4"]).arg(&exchange);
        assert!(make.status().unwrap().success());
        let socket = dir.path().join("array.sock");
        let mut array = Command::new(LAB);
        array.arg("array").arg("--scenario").arg(file).stdout(Stdio::null());
        array.arg("--listen").arg(format!("unix:{}", socket.display()));
        let array = Array(array.spawn().unwrap());
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < SOON, "the array does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let luns = ["one", "two"].map(|lun| (lun, ExportFile::mount(&socket, lun).unwrap()));
        Shared { luns, _array: array, dir }
    }

    /// A guest with the LUN of its name on this bus.
    fn guest(&self, name: &str, bus: Bus) -> GuestConfig {
        let (_, lun) = self.luns.iter().find(|(lun, _)| *lun == name).unwrap();
        let lun = Source::File(lun.path());
        let exchange = Source::File(self.dir.path().join("exchange"));
        guest(name).disk("array", bus, lun).disk("exchange", Bus::Virtio, exchange)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent in a guest, with VMs by their names and settings. Each is a libvirt guest's cgroup.
fn agent(guest: &Guest, vms: &[(&str, &str)]) -> Job {
    let mut config = format!(
        "host = \"{}\"\nstatus = \"unix:/run/parda.sock\"\n[[volume]]\nname = \"array\"\n\
         [volume.control]\nlatency_threshold = \"25ms\"\nwindow_max = 16\nperiod = \"500ms\"\n\
         [volume.exchange]\nfile = \"{}\"\nslots = 4\n[volume.steer]\ndevice = \"{}\"\n",
        guest.name(),
        guest.device("exchange").unwrap(),
        guest.device("array").unwrap()
    );
    for (name, settings) in vms {
        config += &format!(
            "[[volume.steer.vm]]\nname = \"{name}\"\ncgroup = \"libvirt:{name}\"\n\
             {settings}\n"
        );
        guest.ok(&format!("mkdir -p '{}'", cgroup(name)), SOON).unwrap();
    }
    guest.put("/run/parda.toml", config.as_bytes()).unwrap();
    let agent = guest.begin("exec parda serve -c /run/parda.toml").unwrap();
    let up = "until parda status --socket /run/parda.sock >/dev/null 2>&1; do usleep 100000; done";
    if let Err(error) = guest.ok(up, SOON) {
        panic!("{error}: {}", guest.end(&agent).unwrap().errors());
    }
    agent
}

/// Where libvirt has the threads of a guest: below the VM's own cgroup.
fn cgroup(vm: &str) -> String {
    format!(r"/sys/fs/cgroup/machine.slice/machine-qemu\x2d1\x2d{vm}.scope/libvirt/emulator")
}

/// Random reads by a VM, as many at a time as said, which are counted once all has settled.
fn load(guest: &Guest, vm: &str, outstanding: u32) -> Job {
    let command = format!(
        "echo $$ >'{}/cgroup.procs' && exec fio --name={vm} --filename={} --thread --rw=randread \
         --bs=4k --norandommap --direct=1 --ioengine=libaio --iodepth={outstanding} --time_based \
         --ramp_time={} --runtime={} --minimal",
        cgroup(vm),
        guest.device("array").unwrap(),
        SETTLE.as_secs(),
        LOOK.as_secs()
    );
    guest.begin(&command).unwrap()
}

/// IOPS of a load, once it is through.
fn iops(guest: &Guest, load: &Job) -> f64 {
    let within = SETTLE + LOOK + SOON;
    let output = guest.look(load, within).unwrap().expect("the load ends");
    let text = output.text();
    let read = text.split(';').nth(7).and_then(|iops| iops.parse().ok());
    read.unwrap_or_else(|| panic!("fio: {text} {}", output.errors()))
}

fn read(guest: &Guest, path: &str) -> String {
    guest.ok(&format!("cat '{path}'"), SOON).unwrap()
}

/// How often loads are looked at until they are near what is wanted: a busy machine may have one of them wait throughout a look.
const LOOKS: usize = 8;

/// IOPS over IOPS, which `look` measures, are near what is wanted. With room for a machine that has much else to do: without shares they
/// would be far off, in each look.
fn near(what: &str, wanted: f64, tolerance: f64, mut look: impl FnMut() -> f64) {
    let mut seen = Vec::new();
    while seen.len() < LOOKS {
        let got = look();
        eprintln!("{what}: {got:.2}");
        seen.push(got);
        if (got / wanted - 1.0).abs() <= tolerance {
            return;
        }
    }
    panic!("{what}: {seen:.2?}, none of them {wanted:.2} within {tolerance}");
}

/// Two VMs of 2000 and 1000 shares, on a LUN that the bus makes one kind of device or another.
fn two_to_one(bus: Bus, elevator: &str, tolerance: f64) {
    let shared = Shared::new();
    let guest = Guest::boot(shared.guest("one", bus)).unwrap();
    let device = guest.device("array").unwrap();
    let scheduler = format!("/sys/block/{}/queue/scheduler", &device["/dev/".len()..]);
    // Where the kernel can call modprobe, choosing it does that.
    guest.ok("modprobe bfq", SOON).unwrap();
    let before = read(&guest, &scheduler);
    let agent = agent(&guest, &[("db", "shares = 2000"), ("web", "shares = 1000")]);
    near("2000 against 1000 shares", 2.0, tolerance, || {
        let loads = ["db", "web"].map(|vm| load(&guest, vm, 32));
        let [db, web] = loads.map(|load| iops(&guest, &load));
        eprintln!("{db} + {web} IOPS");
        db / web
    });
    let handed_down = "find /sys/fs/cgroup/machine.slice -name io.max";
    assert!(guest.ok(handed_down, SOON).unwrap().contains("db.scope/io.max"));
    eprintln!("{}", guest.ok("parda status --socket /run/parda.sock", SOON).unwrap());
    assert!(read(&guest, &scheduler).contains(elevator), "{}", read(&guest, &scheduler));
    // What was there before is there again.
    guest.signal(&agent, "TERM").unwrap();
    let ended = guest.look(&agent, SOON).unwrap().expect("the agent ends");
    assert!(ended.success(), "{}", ended.errors());
    assert_eq!(read(&guest, &scheduler), before);
    assert_eq!(guest.ok(handed_down, SOON).unwrap(), "", "io is not handed down any more");
    assert_eq!(guest.ok("find /run/parda/steer -name '*.json'", SOON).unwrap(), "");
}

#[test]
fn two_vms_of_a_lun_get_what_their_shares_say() {
    if let Some(_turn) = turn() {
        two_to_one(Bus::Scsi(0), "[bfq]", 0.20);
    }
}

#[test]
fn a_vm_of_a_device_never_exceeds_its_limit_whatever_its_shares() {
    let Some(_turn) = turn() else { return };
    let shared = Shared::new();
    let guest = Guest::boot(shared.guest("one", Bus::Virtio)).unwrap();
    let agent = agent(&guest, &[("db", ""), ("web", "shares = 9000\nlimit = { iops = 44 }")]);
    let bound = || {
        let file = cgroup("web").replace("/libvirt/emulator", "/io.max");
        guest.ok(&format!("cat '{file}' 2>/dev/null || true"), SOON).unwrap()
    };
    let within = |limit: f64, web: f64| {
        eprintln!("{web} IOPS for a limit of {limit}");
        assert!(web <= 1.03 * limit, "{web}");
        // Reads alone have ten elevenths of a limit of both, which is a whole number in a tenth of a second: io.max rounds down.
        web >= 0.7 * limit
    };
    let loads = ["db", "web"].map(|vm| load(&guest, vm, 32));
    let said = "until parda status --socket /run/parda.sock | grep 'VM web: limited by its limit of 44 IO/s'; do usleep 100000; done";
    guest.ok(said, SOON).unwrap();
    let [db, web] = loads.map(|load| iops(&guest, &load));
    assert!(within(44.0, web), "{web} IOPS, {}", bound());
    assert!(db > web, "{db} IOPS: what the limit holds back goes to the other VM");
    guest.ok("parda set web -c /run/parda.toml 'limit={ iops = 88 }'", SOON).unwrap();
    let reached = (0..LOOKS).any(|_| within(88.0, iops(&guest, &load(&guest, "web", 32))));
    assert!(reached, "{}", bound());
    // A lower bound that another program sets meanwhile holds, and is named.
    let array = guest.device("array").unwrap()["/dev/".len()..].to_owned();
    let array = read(&guest, &format!("/sys/block/{array}/dev")).trim().to_owned();
    let vm = cgroup("web").replace("/libvirt/emulator", "");
    guest.ok(&format!("echo '{array} riops=30' >'{vm}/io.max'"), SOON).unwrap();
    let lower = load(&guest, "web", 32);
    for command in ["status --socket /run/parda.sock", "explain web -c /run/parda.toml --over 1s"] {
        let said = "limited by io.max of its cgroup, which another program has set: riops=30";
        let until = format!("until parda {command} | grep '{said}'; do usleep 100000; done");
        if let Err(error) = guest.ok(&until, SOON) {
            let said = guest.ok(&format!("parda {command}"), SOON);
            panic!("{command}: {error}: {said:?}, {}", bound());
        }
    }
    let web = iops(&guest, &lower);
    eprintln!("{web} IOPS for a bound of 30");
    assert!(web <= 1.03 * 30.0, "{web} IOPS, {}", bound());
    guest.ok("parda set -c /run/parda.toml mode=observe", SOON).unwrap();
    let began = Instant::now();
    while bound().contains("iops=8") {
        assert!(began.elapsed() < SOON, "observe holds nothing: {}", bound());
    }
    guest.signal(&agent, "TERM").unwrap();
    let ended = guest.look(&agent, SOON).unwrap().expect("the agent ends");
    assert!(ended.success(), "{}", ended.errors());
    assert_eq!(bound(), format!("{array} rbps=max wbps=max riops=30 wiops=max"));
}

/// The kernel's own lines: what somebody else bounds on the device and on another one, and what a cgroup that is made anew has.
#[test]
#[ignore = "make nightly: with a model of cgroups, the tests of parda-steer hold the same"]
fn what_is_not_limited_stays_and_what_was_there_before_is_put_back_by_the_kernel() {
    let Some(_turn) = turn() else { return };
    let shared = Shared::new();
    let guest = Guest::boot(shared.guest("one", Bus::Virtio)).unwrap();
    let number = |disk: &str| {
        let name = guest.device(disk).unwrap()["/dev/".len()..].to_owned();
        read(&guest, &format!("/sys/block/{name}/dev")).trim().to_owned()
    };
    let (array, other) = (number("array"), number("exchange"));
    let vm = cgroup("web").replace("/libvirt/emulator", "");
    let make = format!("mkdir -p '{}'", cgroup("web"));
    let hand_down = "for dir in /sys/fs/cgroup /sys/fs/cgroup/machine.slice; do echo +io >$dir/cgroup.subtree_control; done";
    let theirs = |line: &str| guest.ok(&format!("echo '{line}' >'{vm}/io.max'"), SOON).unwrap();
    let until = |what: &str| {
        let look =
            format!("until grep -q '^{array} .*{what}' '{vm}/io.max'; do usleep 100000; done");
        if let Err(error) = guest.ok(&look, SOON) {
            panic!("{what}: {error}: {}", read(&guest, &format!("{vm}/io.max")));
        }
    };
    let lines = |line: String| {
        let mut all = [format!("{other} rbps=max wbps=1000000 riops=max wiops=max"), line];
        all.sort();
        all
    };
    let found = || {
        let text = read(&guest, &format!("{vm}/io.max"));
        let mut found: Vec<_> = text.lines().map(str::to_owned).collect();
        found.sort();
        found
    };
    let web = [("web", "limit = { iops_reads = 50 }")];

    guest.ok(&make, SOON).unwrap();
    guest.ok(hand_down, SOON).unwrap();
    theirs(&format!("{other} wbps=1000000"));
    theirs(&format!("{array} riops=999 wiops=77"));
    let before = lines(format!("{array} rbps=max wbps=max riops=999 wiops=77"));
    assert_eq!(found(), before);
    let killed = agent(&guest, &web);
    until("riops=50 wiops=77");
    guest.signal(&killed, "KILL").unwrap();
    guest.look(&killed, SOON).unwrap().expect("the agent ends");
    until("riops=50 wiops=77");
    guest.ok("parda steer restore", SOON).unwrap();
    assert_eq!(found(), before);

    let ends = agent(&guest, &web);
    until("riops=50 wiops=77");
    // It finds the new cgroup with all that is in it.
    guest.signal(&ends, "STOP").unwrap();
    guest.ok(&format!("find '{vm}' -depth -type d -exec rmdir {{}} ';' && {make}"), SOON).unwrap();
    theirs(&format!("{other} wbps=1000000"));
    theirs(&format!("{array} wiops=9"));
    guest.signal(&ends, "CONT").unwrap();
    until("riops=50 wiops=9");
    guest.signal(&ends, "TERM").unwrap();
    let ended = guest.look(&ends, SOON).unwrap().expect("the agent ends");
    assert!(ended.success(), "{}", ended.errors());
    assert_eq!(found(), lines(format!("{array} rbps=max wbps=max riops=max wiops=9")));
}

#[test]
#[ignore = "make nightly: with a model of cgroups, the tests of parda-steer and parda-control hold the same"]
fn vms_of_a_tenant_divide_its_limit_and_have_no_more_together() {
    let Some(_turn) = turn() else { return };
    let shared = Shared::new();
    let guest = Guest::boot(shared.guest("one", Bus::Virtio)).unwrap();
    let gold = "tenant = \"gold\"";
    let tenant = "\n[[volume.tenant]]\nname = \"gold\"\nlimit = { iops = 150 }";
    let vms = [("db", gold), ("web", gold), ("batch", tenant)];
    let agent = agent(&guest, &vms);
    let said = |vm: &str| {
        let said = format!("VM {vm}: limited by the limit of its tenant gold");
        let command = format!(
            "until parda status --socket /run/parda.sock | grep '{said}'; do usleep 100000; done"
        );
        guest.ok(&command, SOON).unwrap();
    };
    // One alone has all of it, but for the eleventh that is for the other direction and the little that is kept for who sleeps.
    let alone = (0..LOOKS).any(|_| {
        let [db, batch] = ["db", "batch"].map(|vm| load(&guest, vm, 32));
        said("db");
        let [db, batch] = [db, batch].map(|load| iops(&guest, &load));
        eprintln!("{db} IOPS alone in its tenant, {batch} without one");
        assert!(db <= 1.03 * 150.0, "{db}");
        db >= 0.7 * 150.0
    });
    assert!(alone, "a VM alone in its tenant has the tenant's limit");
    near("two VMs of a tenant", 1.0, 0.2, || {
        let loads = ["db", "web", "batch"].map(|vm| load(&guest, vm, 32));
        said("web");
        let [db, web, batch] = loads.map(|load| iops(&guest, &load));
        eprintln!("{db} + {web} IOPS of the tenant, {batch} without one");
        assert!(db + web <= 1.03 * 150.0, "{db} + {web}");
        db / web
    });
    eprintln!("{}", guest.ok("parda status --socket /run/parda.sock", SOON).unwrap());
    guest.signal(&agent, "TERM").unwrap();
    let ended = guest.look(&agent, SOON).unwrap().expect("the agent ends");
    assert!(ended.success(), "{}", ended.errors());
}

/// What is still to be reached: caps alone follow the array by one period, and let all through meanwhile.
#[test]
#[ignore = "caps alone do not hold shares where the array is not steady: docs/steering.md. To try it: cargo test --workspace --test guests two_vms_of_a_virtio -- --ignored"]
fn two_vms_of_a_virtio_disk_get_what_their_shares_say() {
    if let Some(_turn) = turn() {
        two_to_one(Bus::Virtio, "[mq-deadline]", 0.30);
    }
}

#[test]
#[ignore = "the same law in crates/steer/tests/steer/cgroups.rs and lab/sim/tests/sim/guests.rs: make nightly"]
fn what_an_idle_vm_leaves_is_not_its_neighbours_alone() {
    let Some(_turn) = turn() else { return };
    let shared = Shared::new();
    let configs = ["one", "two"].map(|name| shared.guest(name, Bus::Scsi(0)));
    let [one, two] = Guest::boot_all(configs).unwrap();
    let agents = [agent(&one, &[("db", ""), ("idle", "")]), agent(&two, &[("app", "")])];
    // Had it its neighbour's share, it would be twice as much.
    near("a VM beside an idle one, against one alone", 1.0, 0.30, || {
        let [db, app] = [load(&one, "db", 32), load(&two, "app", 32)];
        let [db, app] = [iops(&one, &db), iops(&two, &app)];
        eprintln!("{}", one.ok("parda status --socket /run/parda.sock", SOON).unwrap());
        db / app
    });
    // An agent that is killed cannot put anything back; somebody else can.
    one.end(&agents[0]).unwrap();
    let handed_down = "find /sys/fs/cgroup/machine.slice -name io.max";
    assert_ne!(one.ok(handed_down, SOON).unwrap(), "");
    one.ok("parda steer restore", SOON).unwrap();
    assert_eq!(one.ok(handed_down, SOON).unwrap(), "");
}
