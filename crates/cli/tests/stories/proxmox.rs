//! Proxmox VE: the storage plugin, whose disks the agents of the nodes serve, and the hook script. Both take shares from the tags of VMs.
//! VMs are files of a directory here, as of /etc/pve. The plugin is run by Debian's perl on a stand-in for Proxmox' storage layer,
//! `proxmox_stand_in.pl`.

mod migration;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use parda_agent::status::DiskStatus;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::{Agent, Done, PARDA, Stage, until, uri};

const BEFORE: &str = r##"host = "pve1"
[[volume]]
name = "local"
[[volume.disk]]
name = "scratch"
path = "scratch.img"
listen = "unix:local.sock"
[[volume]]
name = "san"
[volume.steer]
device = "/dev/mapper/san"
# parda-hook: begin
# parda-hook: end
[[volume.steer.vm]]
name = "others"
cgroup = "proxmox:*"
"##;

fn hook(stage: &Stage, phase: &str) -> Done {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/proxmox/parda-hook");
    let (script, program) = (script.display().to_string(), format!("PARDA={PARDA}"));
    let place = ["env", "PARDA_PVE=pve", "PARDA_TOML=parda.toml", &program];
    let reload = "PARDA_RELOAD=echo reloaded";
    let done = stage.run(&[&place[..], &[reload, &script, "100", phase]].concat());
    assert!(done.status.success(), "a VM must start whatever happens: {}", done.err);
    done
}

/// A volume of the tests, and the name of its disk.
const VOLUME: &str = "san:100/vm-100-disk-0.raw";
const DISK: &str = "san/vm-100-disk-0";

/// The page that says how it is set up: agents and storages of the tests are those of the page.
const PAGE: &str = include_str!("../../../../docs/proxmox.md");

/// Nodes of Proxmox with an agent each, and a storage `san` that they share.
struct Nodes {
    stage: Stage,
    dir: String,
}

impl Nodes {
    /// Directories of the nodes and their storage; no agent is started yet.
    fn new() -> Nodes {
        let stage = Stage::new();
        let dir = stage.path("").canonicalize().unwrap().display().to_string();
        let dir = dir.trim_end_matches('/').to_owned();
        std::fs::create_dir(stage.path("store")).unwrap();
        stage.ok(&[PARDA, "exchange", "init", "store/parda.exchange", "--volume", "san"]);
        let line = PAGE.lines().find_map(|line| line.trim().strip_prefix("pvesm add parda san --"));
        let options = line.unwrap().replace("/mnt/pve/nfs", &format!("{dir}/store"));
        for node in ["a", "b"] {
            std::fs::create_dir_all(stage.path(&format!("pve/nodes/{node}/qemu-server"))).unwrap();
            let options: String =
                options.split(" --").map(|option| format!("\t{option}\n")).collect();
            let own = format!("\tparda-listen {dir}/{node}\n\tparda-config {node}.toml\n");
            stage.write(&format!("{node}.cfg"), format!("parda: san\n{options}{own}"));
        }
        Nodes { stage, dir }
    }

    fn agent(&self, node: &str) -> Agent {
        let text = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let mut text = text.unwrap().to_owned();
        for (from, to) in [
            ("pve1", node),
            ("/run/parda/status.sock", &format!("{node}.status")),
            ("/run/parda/state.toml", &format!("{node}.state")),
            ("/mnt/pve/nfs/", "store/"),
            ("[volume.control]", "[[volume.tenant]]\nname = \"gold\"\n[volume.control]"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            text = text.replace(from, to);
        }
        self.stage.agent(node, &text)
    }

    /// Writes the configuration of the VM.
    fn vm(&self, node: &str, config: &str) {
        self.stage.write(&format!("pve/nodes/{node}/qemu-server/100.conf"), config);
    }

    /// Has a node do something with its storage, on a version of the storage API.
    fn at_version(&self, version: u32, node: &str, line: &[&str]) -> Done {
        let line = Nodes::line(version, node, line);
        self.stage.run(&line.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The command line of that.
    fn line(version: u32, node: &str, line: &[&str]) -> Vec<String> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stand_in = own.join("tests/stories/proxmox_stand_in.pl").display().to_string();
        let plugin = own.join("../../contrib/proxmox/PardaPlugin.pm").display().to_string();
        let version = version.to_string();
        let perl = ["perl", "-T", "-w", &stand_in, &plugin, PARDA, node, &version];
        perl.iter().chain(line).map(|word| (*word).to_owned()).collect()
    }

    /// What it answers. It must succeed, with these warnings.
    fn warned(&self, node: &str, line: &[&str], warnings: &str) -> Value {
        let Done { status, out, err } = self.at_version(15, node, line);
        assert!(status.success(), "{line:?}: {err}");
        match warnings {
            "" => assert_eq!(err, ""),
            warnings => assert!(err.contains(warnings), "{line:?}: {err}"),
        }
        serde_json::from_str(&out).unwrap()
    }

    fn ok(&self, node: &str, line: &[&str]) -> Value {
        self.warned(node, line, "")
    }

    /// What it must fail with.
    fn fails(&self, node: &str, line: &[&str], why: &str) {
        let Done { status, out, err } = self.at_version(15, node, line);
        assert!(!status.success() && err.contains(why), "{line:?}: {why}: {out}{err}");
    }

    fn path(&self) -> String {
        self.ok("a", &["path", VOLUME])[0].as_str().unwrap().to_owned()
    }
}

/// Each form of a drive in Proxmox' schema: old names, the volume anywhere, rates whose bursts differ.
#[test]
fn a_drives_limit_is_read_whatever_its_options_are_called_and_wherever_they_stand() {
    let nodes = Nodes::new();
    let agent = nodes.agent("a");
    nodes.ok("a", &["alloc", "san", "100", "", "4096"]);
    for (line, limit) in [
        (
            "iops_rd=500,iops_rd_max=900,iops_rd_length=30,file=san:100/vm-100-disk-0.raw,size=4M",
            json!({ "iops_reads": 500.0, "iops_reads_max": 900.0, "iops_reads_max_length": "30s" }),
        ),
        (
            "cache=none,volume=san:100/vm-100-disk-0.raw,mbps_wr=0.5,mbps_wr_max=2,bps_wr_length=9,iops=40,iops_max=3000",
            json!({ "iops": 40.0, "iops_max": 3000.0, "bandwidth_writes": "512KiB",
                    "bandwidth_writes_max": "2MiB", "bandwidth_writes_max_length": "9s" }),
        ),
        (
            "discard=on,san:100/vm-100-disk-0.raw,mbps_rd=120,iops_rd=0,iops_wr=7,bps_max_length=5",
            json!({ "iops_writes": 7.0, "bandwidth_reads": "120MiB" }),
        ),
        ("san:100/vm-100-disk-0.raw,bps=2097152", json!({ "bandwidth": "2MiB" })),
    ] {
        nodes.vm("a", &format!("scsi3: {line}\n"));
        nodes.ok("a", &["activate", VOLUME]);
        let settings = disk(&agent).unwrap().settings;
        assert_eq!(serde_json::to_value(settings.limit).unwrap(), limit, "{line}");
        nodes.ok("a", &["deactivate", VOLUME]);
    }
}

/// The volume's disk, if the agent serves it.
fn disk(agent: &Agent) -> Option<DiskStatus> {
    agent.volume().disks.into_iter().find(|disk| disk.name == DISK)
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story, step by step")]
fn a_volume_of_proxmox_is_served_while_it_is_active_with_what_its_vm_is_to_have() {
    let nodes = Nodes::new();
    let agent = nodes.agent("a");
    assert_eq!(nodes.ok("a", &["alloc", "san", "100", "", "4097"]), VOLUME);
    assert_eq!(
        nodes.ok("a", &["alloc", "san", "100", "vm-100-efi.raw", "528"]),
        "san:100/vm-100-efi.raw"
    );
    let listed = nodes.ok("a", &["list", "san", "100"]);
    let listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|v| (&v["volid"], &v["size"])).collect();
    let size = 4100 << 10;
    let efi = (&json!("san:100/vm-100-efi.raw"), &json!(528 << 10));
    assert_eq!(listed, [(&json!(VOLUME), &json!(size)), efi], "a multiple of 4 KiB");
    let mode = |name: &str| {
        let metadata = std::fs::metadata(nodes.stage.path(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("store/images/100"), 0o750, "the agent's group finds it");
    assert_eq!(mode("store/images/100/vm-100-disk-0.raw"), 0o660);

    nodes.vm(
        "a",
        "name: db\ntags: prod;parda-shares-2000;parda-reservation-50;parda-tenant-gold\n\
         scsi0: san:100/vm-100-disk-0.raw,iops_rd=500,iops_rd_max=1000,mbps=1.5,mbps_max=3,size=4M\n\
         [old]\ntags: parda-shares-5\n",
    );
    assert!(disk(&agent).is_none());
    nodes.ok("a", &["activate", VOLUME]);
    let settings = disk(&agent).unwrap().settings;
    let expected = json!({
        "shares": 2000, "burst": 0.0, "latency_target": null, "reservation": 50.0, "tenant": "gold",
        "limit": { "iops_reads": 500.0, "iops_reads_max": 1000.0, "bandwidth": "1536KiB", "bandwidth_max": "3MiB" },
    });
    assert_eq!(serde_json::to_value(settings).unwrap(), expected);

    // QEMU's tools find it by the path of -drive, and by the options of -blockdev.
    let path = nodes.path();
    assert_eq!(path, format!("nbd:unix:{}/a:exportname={DISK}", nodes.dir));
    nodes.stage.ok(&["qemu-io", "-f", "raw", &path, "-c", "write -P 7 4k 4k"]);
    let node = nodes.ok("a", &["blockdev", VOLUME]);
    assert_eq!(node["reconnect-delay"], 60);
    let options = format!("json:{}", json!({ "driver": "raw", "file": node }));
    nodes.stage.ok(&["qemu-io", &options, "-c", "read -P 7 4k 4k"]);
    assert_eq!(nodes.stage.ok(&["nbdinfo", "--size", &uri("a", DISK)]).trim(), size.to_string());

    // What the VM has changes with the next activation, also while a client is connected. Limits that go wait for it to leave.
    let load = nodes.stage.load("vm", &uri("a", DISK), &["--rw=randread", "--bs=4k", "--size=1m"]);
    let reads = || disk(&agent).unwrap().reads.ios;
    let before = reads();
    until("it loads", || reads() > before + 100);
    nodes.vm("a", "tags: parda-shares-300\nscsi0: san:100/vm-100-disk-0.raw,size=4M\n");
    let kept = "keeps its tenant reservation limit until its VM has stopped";
    nodes.warned("a", &["activate", VOLUME], kept);
    assert_eq!(disk(&agent).unwrap().shares, 300);
    // What has clients is neither taken away nor freed.
    for what in ["deactivate", "free"] {
        nodes.fails(
            "a",
            &[what, VOLUME],
            "is served on: clients after 10s: san/vm-100-disk-0 has 1",
        );
        let disk = disk(&agent).unwrap();
        assert!(!disk.drain && disk.clients == 1);
    }
    load.finish();
    until("the client is gone", || disk(&agent).unwrap().clients == 0);
    nodes.ok("a", &["activate", VOLUME]);
    let settings = disk(&agent).unwrap().settings;
    assert!(settings.shares == Some(300) && settings.limit.is_none() && settings.tenant.is_none());

    // The agent of a new version has it again.
    agent.stop();
    let agent = nodes.stage.restart(&[], "a");
    until("it is served again", || nodes.stage.run(&["nbdinfo", &uri("a", DISK)]).status.success());

    nodes.ok("a", &["deactivate", VOLUME]);
    assert!(disk(&agent).is_none());
    nodes.ok("a", &["deactivate", VOLUME]);
    nodes.fails("a", &["resize", VOLUME, "8388608", "1"], "cannot grow while its VM runs");
    nodes.ok("a", &["activate", VOLUME]);
    // A migration that was cut has left the disk on another node.
    let other = nodes.agent("b");
    nodes.ok("b", &["activate", VOLUME]);
    nodes.ok("a", &["resize", VOLUME, "8388000"]);
    nodes.fails("a", &["resize", VOLUME, "4096"], "and cannot shrink");
    other.says("the disk has grown");
    nodes.ok("b", &["deactivate", VOLUME]);
    other.stop();
    nodes.ok("a", &["activate", VOLUME]);
    assert_eq!(nodes.stage.ok(&["nbdinfo", "--size", &uri("a", DISK)]).trim(), "8388608");
    nodes.ok("a", &["free", VOLUME]);
    assert!(disk(&agent).is_none());
    nodes.ok("a", &["free", "san:100/vm-100-efi.raw"]);
    assert_eq!(nodes.ok("a", &["list", "san"]), json!([]));
    assert!(!nodes.stage.path("store/images/100").exists());
    agent.stop();
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story, step by step")]
fn what_proxmox_asks_for_in_vain_is_refused_and_a_wrong_tag_keeps_no_vm_from_starting() {
    let nodes = Nodes::new();
    nodes.fails("a", &["alloc", "san", "100", "", "4096"], "a.toml");
    let agent = nodes.agent("a");
    nodes.ok("a", &["alloc", "san", "100", "", "4096"]);
    agent.stop();
    nodes.fails("a", &["activate", VOLUME], "connection check for storage 'san' failed");
    nodes.fails("a", &["deactivate", VOLUME], "a.status");
    nodes.fails("a", &["free", VOLUME], "connection check");
    let agent = nodes.agent("a");

    // Names.
    for volname in [
        "100/../100/vm-100-disk-0.raw",
        "100/vm-101-disk-0.raw",
        "100/vm-100-disk-0.qcow2",
        "100/vm-100-/../x.raw",
    ] {
        let why = "must be VMID/vm-VMID-NAME.raw";
        for what in ["activate", "free", "path", "size"] {
            nodes.fails("a", &[what, &format!("san:{volname}")], why);
        }
    }
    nodes.fails(
        "a",
        &["alloc", "san", "100", "../../x.raw", "4096"],
        "must be VMID/vm-VMID-NAME.raw",
    );
    nodes.fails("a", &["alloc", "san", "100", "vm-101-disk-0.raw", "4096"], "must be VMID");
    nodes.fails("a", &["alloc", "san", "100", "vm-100-disk-1.qcow2", "4096"], "must be raw");
    nodes.fails("a", &["alloc", "san", "100", "vm-100-disk-0.raw", "4096"], "already exists");
    nodes.fails("a", &["map", VOLUME], "cannot be mapped");
    nodes.fails("a", &["snapshot", VOLUME], "no templates, linked clones, snapshots");
    assert_eq!(nodes.ok("a", &["feature", VOLUME, "copy"]), 1);
    assert_eq!(nodes.ok("a", &["feature", VOLUME, "snapshot"]), Value::Null);

    // Files. A storage that is full after the directory of the VM, and one that is full before: nothing is left there.
    nodes.fails("a", &["activate", "san:100/vm-100-disk-7.raw"], "there is no file");
    for inodes in [3, 2] {
        let full = format!(
            "mount -t tmpfs -o nr_inodes={inodes} none store && mkdir store/images && \"$@\"; \
             code=$?; find store/images -mindepth 1 >&2; exit $code"
        );
        let line = Nodes::line(15, "a", &["alloc", "san", "102", "", "4096"]);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let done =
            nodes.stage.run(&[&["unshare", "-m", "sh", "-c", &full, "sh"], &line[..]].concat());
        assert!(!done.status.success() && done.err.contains("No space left"), "{}", done.err);
        assert!(!done.err.contains("\nstore/images/"), "this is left: {}", done.err);
    }
    nodes.stage.write("secret", vec![0; 4096]);
    let link = nodes.stage.path("store/images/100/vm-100-disk-1.raw");
    std::os::unix::fs::symlink(nodes.stage.path("secret"), link).unwrap();
    nodes.fails("a", &["activate", "san:100/vm-100-disk-1.raw"], "is no file of this storage");
    // Whoever can write to the storage gets nothing of the node by a link.
    let folder = |name: &str| nodes.stage.path(&format!("store/images/{name}"));
    std::os::unix::fs::symlink(folder("100"), folder("101")).unwrap();
    std::fs::hard_link(folder("100/vm-100-disk-0.raw"), folder("100/vm-101-disk-0.raw")).unwrap();
    let linked = "san:101/vm-101-disk-0.raw";
    let why = "store/images/101': is a link, and no directory of this storage";
    for line in [
        &["alloc", "san", "101", "", "4096"][..],
        &["activate", linked],
        &["resize", linked, "8388608"],
        &["free", linked],
    ] {
        nodes.fails("a", line, why);
    }
    assert_eq!(folder("100/vm-101-disk-0.raw").metadata().unwrap().len(), 4 << 20);
    std::fs::remove_file(folder("100/vm-101-disk-0.raw")).unwrap();
    std::fs::remove_file(folder("101")).unwrap();
    nodes.stage.write("store/images/100/other.raw", "");
    assert_eq!(nodes.ok("a", &["list", "san"]).as_array().unwrap().len(), 1, "one is the plugin's");

    // Tags that the agent refuses, or nobody knows; a burst below its rate.
    nodes.vm("a", "tags: parda-shares-0\n");
    nodes.warned(
        "a",
        &["activate", VOLUME],
        "is served with 1000 shares and no more settings: shares = 0",
    );
    assert_eq!(disk(&agent).unwrap().shares, 1000);
    nodes.stage.ok(&[PARDA, "drain", DISK, "-c", "a.toml"]);
    nodes.warned("a", &["activate", VOLUME], "its settings stay as they were: shares = 0");
    assert!(!disk(&agent).unwrap().drain, "a tag keeps no VM out");
    nodes.ok("a", &["deactivate", VOLUME]);
    nodes.vm("a", "");
    // Two at once, as of clones.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| nodes.ok("a", &["activate", VOLUME]));
        }
    });
    nodes.vm("a", "tags: parda-tenant-tin\n");
    nodes.ok("a", &["deactivate", VOLUME]);
    nodes.warned("a", &["activate", VOLUME], "\"tin\": is no [[volume.tenant]]");
    nodes.vm(
        "a",
        "tags: parda-weight-5, parda-shares-many\n\
         virtio1: san:100/vm-100-disk-0.raw,iops_rd=500,iops_rd_max=400\n",
    );
    nodes.warned("a", &["activate", VOLUME], "tag 'parda-weight-5' of VM 100: is none of");
    nodes.warned("a", &["activate", VOLUME], "tag 'parda-shares-many'");
    nodes.warned("a", &["activate", VOLUME], "has iops_reads_max = 400");
    nodes.vm("a", "");

    // A file that another node freed and made anew is opened anew.
    std::fs::remove_file(nodes.stage.path("store/images/100/vm-100-disk-0.raw")).unwrap();
    nodes.stage.sparse("store/images/100/vm-100-disk-0.raw", 8 << 20);
    until("the agent notices", || disk(&agent).unwrap().replaced);
    nodes.ok("a", &["activate", VOLUME]);
    assert_eq!(nodes.stage.ok(&["nbdinfo", "--size", &uri("a", DISK)]).trim(), "8388608");
    nodes.ok("a", &["deactivate", VOLUME]);

    // What a new agent cannot open yet is waited for.
    nodes.ok("a", &["activate", VOLUME]);
    agent.stop();
    let (image, away) = (nodes.stage.path("store/images/100"), nodes.stage.path("away"));
    std::fs::rename(&image, &away).unwrap();
    let agent = nodes.stage.restart(&[], "a");
    until("it looks in vain", || disk(&agent).unwrap().fault.is_some());
    std::fs::rename(&away, &image).unwrap();
    nodes.ok("a", &["activate", VOLUME]);
    nodes.stage.ok(&["nbdinfo", &uri("a", DISK)]);
    nodes.ok("a", &["deactivate", VOLUME]);

    // A name that parda.toml has.
    nodes.stage.sparse("data", 1 << 20);
    let taken = format!(
        "\n[[volume.disk]]\nname = \"{DISK}\"\npath = \"data\"\nlisten = \"unix:{}/a\"\n",
        nodes.dir
    );
    let text = String::from_utf8(nodes.stage.read("a.toml")).unwrap();
    nodes.stage.write("a.toml", text.replace("disk = []", "") + &taken);
    agent.process.signal(Signal::HUP);
    until("it is served", || disk(&agent).is_some());
    nodes.fails("a", &["activate", VOLUME], "the name is taken");
    nodes.fails("a", &["free", VOLUME], "the name is taken");
    assert!(disk(&agent).is_some());

    // A storage that is wrong.
    let storage = String::from_utf8(nodes.stage.read("a.cfg")).unwrap();
    for (from, to, why) in [
        ("parda-volume san", "parda-volume other", "the agent has no volume 'other'"),
        ("parda-volume san", "parda-volume ../x", "does not match"),
        ("\tparda-volume san\n", "", "missing value for required option 'parda-volume'"),
        ("/store", "/nowhere", "does not exist or is unreachable"),
    ] {
        nodes.stage.write("a.cfg", storage.replace(from, to));
        nodes.fails("a", &["list", "san"], why);
    }
    agent.stop();
}

#[test]
fn a_file_that_one_node_frees_is_kept_by_no_other_node() {
    let nodes = Nodes::new();
    let (a, b) = (nodes.agent("a"), nodes.agent("b"));
    nodes.ok("a", &["alloc", "san", "100", "", "4096"]);
    // Proxmox does not deactivate a clone on the node that made it.
    for node in ["a", "b"] {
        nodes.ok(node, &["activate", VOLUME]);
    }
    let status = json!([4u64 << 30, 3u64 << 30, 1 << 30, 1]);
    assert_eq!(nodes.ok("a", &["status", "san"]), status);
    assert!(disk(&a).is_some());
    nodes.ok("b", &["free", VOLUME]);
    assert!(disk(&a).is_some() && disk(&b).is_none());
    assert_eq!(nodes.ok("a", &["status", "san"]), status);
    assert!(disk(&a).is_none());
    assert!(a.volume().disks.is_empty());
    a.stop();
    b.stop();
}

#[test]
fn the_plugin_names_a_version_that_each_proxmox_takes() {
    let nodes = Nodes::new();
    let agent = nodes.agent("a");
    let named = |version| nodes.at_version(version, "a", &["api"]).out.trim().to_owned();
    assert_eq!([9, 10, 12, 15, 99].map(named), ["10", "10", "12", "15", "15"]);
    nodes.ok("a", &["alloc", "san", "100", "", "4096"]);
    let old = nodes.at_version(11, "a", &["activate", VOLUME]);
    assert!(
        old.status.success() && old.err.contains("cannot have QEMU connect again"),
        "{}",
        old.err
    );
    agent.stop();
}

fn configuration(stage: &Stage) -> String {
    String::from_utf8(stage.read("parda.toml")).unwrap()
}

#[test]
fn tags_of_proxmox_are_shares_and_no_fault_keeps_a_vm_from_starting() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("pve")).unwrap();
    stage.write("parda.toml", BEFORE);
    stage.write(
        "pve/100.conf",
        "name: db\ntags: prod;parda-shares-2000\n[old]\ntags: parda-shares-5\n",
    );
    stage.write("pve/101.conf", "name: web\n[old]\ntags: parda-shares-7\n");
    stage.write("pve/102.conf", "tags: xparda-shares-9;parda-shares-3x\n");
    assert_eq!(hook(&stage, "pre-start").out, "");
    assert_eq!(configuration(&stage), BEFORE);
    assert_eq!(hook(&stage, "post-start").out, "reloaded\n");
    let tagged = "# parda-hook: begin\n[[volume.steer.vm]]\nname = \"100\"\n\
                  cgroup = \"proxmox:100\"\nshares = 2000\n# parda-hook: end";
    let after = BEFORE.replace("# parda-hook: begin\n# parda-hook: end", tagged);
    assert_eq!(configuration(&stage), after);
    stage.ok(&[PARDA, "check", "parda.toml"]);
    assert_eq!(hook(&stage, "post-stop").out, "", "nothing has changed");

    // Shares that are refused, and a file without the two lines, change nothing.
    stage.write("pve/101.conf", "tags: parda-shares-0\n");
    let refused = hook(&stage, "post-start");
    assert!(
        refused.err.contains("shares = 0: must be") && refused.out.is_empty(),
        "{}",
        refused.err
    );
    assert_eq!(configuration(&stage), after);
    stage.write("pve/101.conf", "tags: parda-shares-10\n");
    let without = after.replace("# parda-hook: end\n", "");
    stage.write("parda.toml", &without);
    let refused = hook(&stage, "post-start");
    assert!(refused.err.contains("do not stand there once each"), "{}", refused.err);
    assert_eq!(configuration(&stage), without);
    assert!(!stage.path("parda.toml.new").exists());

    stage.write("parda.toml", &after);
    std::fs::remove_file(stage.path("pve/100.conf")).unwrap();
    std::fs::remove_file(stage.path("pve/101.conf")).unwrap();
    assert_eq!(hook(&stage, "post-stop").out, "reloaded\n");
    assert_eq!(configuration(&stage), BEFORE);
}
