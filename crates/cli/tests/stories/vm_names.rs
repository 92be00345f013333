//! VMs of a steered device by the names that platforms give them: the VM that is named has the shares, and what has none is seen. Cgroups
//! are directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use parda_testkit::disk::AttachedDisk;

use crate::stage::{Agent, PARDA, Process, Stage, until, wait_for};

/// Runs a program with the directory `cgroups` in place of the host's cgroups.
const IN_CGROUPS: &[&str] =
    &["unshare", "-m", "sh", "-c", "mount --bind cgroups /sys/fs/cgroup && exec \"$@\"", "sh"];

const PROD: &str = r"machine.slice/machine-qemu\x2d7\x2dprod\x2ddb.scope";
const ORACLE: &str = r"machine.slice/machine-qemu\x2d2\x2dOracleDBprod.scope";
const ONE: &str = r"machine.slice/machine-qemu\x2d3\x2ddb1.scope";
const TWO: &str = r"machine.slice/machine-qemu\x2d4\x2ddb1.scope";
const POD: &str = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1b_2c.slice";

/// A host with these cgroups, and a configuration with these VMs, which is only looked at.
fn host(disk: &AttachedDisk, cgroups: &[&str], vms: &[(&str, &str)]) -> Stage {
    let stage = Stage::new();
    for cgroup in cgroups {
        std::fs::create_dir_all(stage.path("cgroups").join(cgroup)).unwrap();
    }
    stage.write("cgroups/cgroup.controllers", "cpu io memory\n");
    let mut text = format!(
        "host = \"h\"\nstatus = \"unix:h.status\"\n[http]\naddress = \"unix:h.http\"\n[[volume]]\nname = \"san\"\n[volume.control]\n\
         mode = \"observe\"\nperiod = \"100ms\"\n[volume.steer]\ndevice = \"{}\"\n",
        disk.device.display()
    );
    for (name, cgroup) in vms {
        text += &format!("[[volume.steer.vm]]\nname = \"{name}\"\ncgroup = '{cgroup}'\n");
    }
    stage.write("h.toml", text);
    stage
}

fn agent(stage: &Stage) -> Agent {
    stage.restart(IN_CGROUPS, "h")
}

fn check(stage: &Stage) -> String {
    stage.ok(&[IN_CGROUPS, &[PARDA, "check", "h.toml"]].concat())
}

/// VMs and their cgroups.
fn vms(agent: &Agent) -> Vec<(String, String)> {
    let vms = agent.volume().steer.unwrap().vms.into_iter();
    vms.map(|vm| (vm.name, vm.cgroup)).collect()
}

fn until_vms(agent: &Agent, wanted: &[(&str, &str)]) {
    let wanted = wanted.iter().map(|(vm, cgroup)| ((*vm).to_owned(), (*cgroup).to_owned()));
    let wanted: Vec<_> = wanted.collect();
    until(&format!("VMs are {wanted:?}"), || vms(agent) == wanted);
}

/// A QEMU in a cgroup, which libvirt would have started so.
fn qemu(stage: &Stage, cgroup: &str, guest: &str) -> Process {
    let name = format!("guest={guest},debug-threads=on");
    let line = ["qemu-system-x86_64", "-name", &name, "-machine", "none", "-nodefaults"];
    let qemu = stage.start(guest, &[&line[..], &["-display", "none"]].concat());
    let inner = format!("cgroups/{cgroup}/libvirt");
    std::fs::create_dir_all(stage.path(&inner)).unwrap();
    stage.write(&format!("{inner}/cgroup.procs"), format!("{}\n", qemu.pid()));
    qemu
}

#[test]
fn a_vm_has_the_settings_of_its_own_name_and_of_no_other() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let named =
        [("db", "libvirt:db"), ("oracle", "libvirt:Oracle DB (prod)"), ("pod", "kubernetes:1b-2c")];
    let stage = host(&disk, &[PROD, ORACLE, POD], &named);
    let agent = agent(&stage);
    until_vms(&agent, &[("pod", POD), ("oracle", ORACLE)]);
    std::fs::create_dir_all(stage.path("cgroups/machine.slice/machine-lxc\\x2d9\\x2ddb.scope"))
        .unwrap();
    until("db came", || vms(&agent).iter().any(|(vm, _)| vm == "db"));
    agent.stop();
}

#[test]
fn domains_of_one_machine_name_are_told_apart_by_their_qemus_or_refused() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = host(&disk, &[ONE, TWO], &[("a", "libvirt:db_1"), ("b", "libvirt:db1")]);
    let agent = agent(&stage);
    let missed = || agent.volume().steer.unwrap().vms_without_pattern;
    until("both are refused", || missed().len() == 2);
    assert!(vms(&agent).is_empty());
    let why = missed()[0].why.clone().unwrap();
    assert!(why.contains("libvirt:db_1") && why.contains("/run/libvirt/qemu"), "{why}");
    assert!(
        check(&stage).contains("\"libvirt:db_1\" matches a cgroup that may be another domain's")
    );
    let _guests = [qemu(&stage, ONE, "db1"), qemu(&stage, TWO, "db_1")];
    until_vms(&agent, &[("b", ONE), ("a", TWO)]);
    assert!(missed().is_empty());
    agent.stop();
}

#[test]
fn patterns_without_a_vm_and_vms_without_a_pattern_are_seen_everywhere() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = host(&disk, &[PROD], &[("db", "libvirt:db"), ("all", "lxc/*")]);
    let odd = stage.path("cgroups").join(OsStr::from_bytes(b"lxc/odd\xff"));
    std::fs::create_dir_all(odd).unwrap();
    let pattern = r#"VM db: "libvirt:db" matches no cgroup"#;
    let prod = format!("cgroup {PROD} (VM prod-db) has neither shares nor a limit");
    let odd = r"cgroup lxc/odd\xff has neither shares nor a limit: its name is not UTF-8";

    let said = check(&stage);
    for text in [pattern, &prod, odd] {
        assert!(said.contains(&format!("  note: san: {text}")), "{text}: {said}");
    }
    let agent = agent(&stage);
    let status = || stage.ok(&[PARDA, "status", "--socket", "h.status"]);
    let said = wait_for("status has it", || Some(status()).filter(|said| said.contains(pattern)));
    for text in [&prod, odd] {
        assert!(said.contains(&format!("  NOTE: {text}")), "{text}: {said}");
    }
    let get = |path: &str| {
        stage.ok(&["curl", "-sS", "--unix-socket", "h.http", &format!("http://localhost{path}")])
    };
    let metrics = wait_for("metrics have it", || {
        Some(get("/metrics"))
            .filter(|it| it.contains("steer_patterns_without_vm{volume=\"san\"} 2"))
    });
    assert!(metrics.contains("parda_steer_vms_without_pattern{volume=\"san\"} 2"), "{metrics}");
    let state = get("/api/v1/state");
    assert!(
        state.contains(r#""patterns_without_vm":[{"vm":"db","cgroup":"libvirt:db""#),
        "{state}"
    );
    let events = get("/api/v1/events");
    for event in ["pattern_without_vm", "vm_without_pattern"] {
        assert!(events.contains(event), "{event}: {events}");
    }
    // Once, not once a period.
    until("some periods passed", || agent.volume().ticks > 20);
    for text in [pattern, &prod] {
        assert_eq!(agent.process.log().matches(text).count(), 1, "{text}");
    }
    agent.stop();
}

#[test]
fn vms_of_one_name_are_told_apart_in_the_status() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = host(&disk, &["qemu.slice/100.scope", "lxc/100"], &[("guest", "proxmox:*")]);
    let agent = agent(&stage);
    until_vms(&agent, &[("guest/100", "lxc/100"), ("guest/100", "qemu.slice/100.scope")]);
    let said = stage.ok(&[PARDA, "status", "--socket", "h.status"]);
    for key in ["guest/100@lxc/100 ", "guest/100@qemu.slice/100.scope "] {
        assert!(said.contains(key), "{said}");
        stage.ok(&[PARDA, "explain", key.trim(), "--socket", "h.status"]);
    }
    agent.stop();
}
