//! Volumes that the kernel or QEMU holds.
use super::*;

const STEERED: &str = r#"host = "db-01"

[[volume]]
name = "san"
exchange = { file = "/dev/mapper/exchange" }

[volume.control]
window_max = 32

[volume.steer]
device = "/dev/mapper/san"
method = "queue_depth"
measure = "little"
shares = 2000
"#;

#[test]
fn a_volume_may_be_steered_in_place_of_served() {
    let config = check(STEERED).unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.device.to_str(), Some("/dev/mapper/san"));
    assert_eq!(steer.method.map(|m| m.to_string()).as_deref(), Some("queue_depth"));
    assert_eq!(steer.vms, Vms::Host(Shares(2000)));
    let plain = check(&STEERED.replace("shares = 2000", "")).unwrap();
    let Work::Steer(steer) = &plain.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.vms, Vms::Host(Shares(1000)));
    let vms = "[[volume.steer.vm]]\nname = \"vms\"\ncgroup = \"proxmox:*\"\nshares = 500\n";
    let groups = check(&format!("{}{vms}", STEERED.replace("shares = 2000", ""))).unwrap();
    let Work::Steer(steer) = &groups.volumes[0].work else { panic!("not steered") };
    let Vms::Groups(patterns) = &steer.vms else { panic!("one VM") };
    assert_eq!((patterns[0].name.as_str(), patterns[0].settings.shares), ("vms", Some(500)));
    check(&STEERED.replace("queue_depth", "auto").replace("little", "auto")).unwrap();
}

const QEMU: &str = r#"host = "kvm-01"

[[volume]]
name = "ceph"

[volume.control]
window_max = 32

[volume.qemu]
sockets = "/run/parda/qmp/*.sock"
disks = ["rbd:*"]
probe = "/dev/rbd0"

[[volume.qemu.vm]]
name = "db-?"
shares = 2000

[[volume.qemu.vm]]
name = "web*"
"#;

#[test]
fn vms_of_qemu_have_shares_by_their_names() {
    let page = include_str!("../../../../../docs/qemu.md");
    let of_page = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let of_page = of_page.replace("\"observe\"", "\"parda\"");
    let Work::Qemu(qemu) = &check(&of_page).unwrap().volumes[0].work else { panic!() };
    assert_eq!((qemu.vms.of(&["db-1"]).shares().0, qemu.disks[0].as_str()), (2000, "*rbd*"));

    let config = check(QEMU).unwrap();
    let Work::Qemu(qemu) = &config.volumes[0].work else { panic!("not QEMU's") };
    let shares = |names: &[&str]| qemu.vms.of(names).shares().0;
    assert_eq!((shares(&["db-1"]), shares(&["x", "db-1"])), (2000, 2000));
    assert_eq!((shares(&["web"]), shares(&["db-10"])), (1000, 1000));
    let observes = QEMU.replace("window_max = 32", "mode = \"observe\"");
    check(&observes.replace("probe = \"/dev/rbd0\"", "")).unwrap();
}

#[test]
fn everything_wrong_with_qemu_is_pointed_at() {
    for (from, to, error) in [
        (
            "/run/parda/qmp/*",
            "qmp/*",
            "parda.toml:10:11: sockets = \"qmp/*.sock\": must be an absolute path",
        ),
        (
            "parda/qmp/*",
            "*/qmp",
            "parda.toml:10:11: sockets = \"/run/*/qmp.sock\": has a pattern in its directory",
        ),
        ("[\"rbd:*\"]", "[]", "parda.toml:11:9: disks: must name the disks"),
        ("/dev/rbd0", "nbd://", "parda.toml:12:9: probe = \"nbd://\": "),
        ("probe = \"/dev/rbd0\"", "", "parda.toml:9:1: probe: is missing: QEMU counts the wait"),
        ("shares = 2000", "shares = 0", "parda.toml:16:10: shares = 0: must be from 1 to 1000000"),
        ("web*", "db-?", "parda.toml:19:8: name = \"db-?\": is also the name of another VM"),
        ("db-?", "", "parda.toml:15:8: name = \"\": must not be empty"),
        ("db-?", "..", "parda.toml:15:8: name = \"..\": is a directory in a URL"),
        (
            "window_max = 32",
            "fairness = \"bytes\"",
            "parda.toml:7:12: fairness = \"bytes\": must be",
        ),
        (
            "[volume.qemu]",
            "[volume.steer]\ndevice = \"/dev/sdx\"\n[volume.qemu]",
            "a volume is either steered",
        ),
    ] {
        let message = check(&QEMU.replace(from, to)).unwrap_err();
        assert!(message.contains(error), "{to}: {message}");
    }
}

#[test]
fn a_steered_vm_has_shares_and_a_limit_that_the_kernel_can_hold() {
    let host = STEERED.replace("shares = 2000\n", "");
    let vm = |setting: &str| {
        check(&format!(
            "{host}[[volume.steer.vm]]\nname = \"db\"\ncgroup = \"libvirt:db\"\n{setting}\n"
        ))
    };
    let config = vm("limit = { iops = 500, bandwidth_reads = \"40MiB\" }").unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    let limit = toml::to_string(&steer.vm("db").unwrap().settings.limit).unwrap();
    assert_eq!(limit, "iops = 500.0\nbandwidth_reads = \"40MiB\"\n");
    for (setting, error) in [
        (
            "limit = { iops = 5, burst = 2, burst_for = \"1s\" }",
            "leave out `burst` and `burst_for`",
        ),
        ("limit = { iops = 50, iops_max = 90 }", "leave out `burst` and `burst_for`, `_max` and"),
        ("limit = { iops = 50, size_iops_sec = 4096 }", "has iops_size, which the kernel's io.max"),
        (
            "limit = { iopz = 50 }",
            "limit = { iopz = 50 }: unknown field `iopz`: did you mean `iops`?",
        ),
        ("limit = { iops = 3 }", "has iops = 3, which must be 4 or more on a steered device"),
        ("limit = { iops_reads = 1 }", "has iops_reads = 1, which must be 2 or more"),
        ("limit = { iops = 0 }", "must be from 1 to"),
        ("tenant = \"gold\"", "is no [[volume.tenant]] of this volume"),
        (
            "reservation = 5",
            "`reservation` is not known here; it is a key of [[volume.tenant]] or [[volume.disk]]",
        ),
        ("shares = 0", "must be from 1 to 1000000"),
    ] {
        let message = vm(setting).unwrap_err();
        assert!(
            message.contains(error) && message.contains("parda.toml:17"),
            "{setting}: {message}"
        );
    }
}

#[test]
fn a_tenant_of_a_steered_vm_has_what_the_kernel_or_qemu_can_hold() {
    let tenant =
        |setting: &str| format!("[[volume.tenant]]\nname = \"gold\"\nshares = 500\n{setting}\n");
    let steered = STEERED.replace("shares = 2000\n", "")
        + "[[volume.steer.vm]]\nname = \"db\"\ncgroup = \"libvirt:db\"\ntenant = \"gold\"\n";
    let steered = |setting: &str| check(&(steered.clone() + &tenant(setting)));
    let qemu = QEMU.replacen("shares = 2000", "shares = 2000\ntenant = \"gold\"", 1);
    let qemu = |setting: &str| check(&(qemu.clone() + &tenant(setting)));
    let config = steered("limit = { iops = 500, bandwidth_reads = \"40MiB\" }").unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.vms.to_string(), "db: 1000 of gold");
    let config = qemu("limit = { iops = 500 }").unwrap();
    let Work::Qemu(of) = &config.volumes[0].work else { panic!("not throttled") };
    assert_eq!(of.vms.of(&["db-1"]).tenant.as_deref(), Some("gold"));
    let burst = "limit = { iops = 5, burst = 2, burst_for = \"1s\" }";
    for (message, error) in [
        (
            steered("reservation = 5"),
            "reservation = 5: cannot be kept for VMs whose IOs the kernel",
        ),
        (steered(burst), "leave out `burst` and `burst_for`"),
        (qemu("reservation = 5"), "reservation = 5: cannot be kept for VMs whose IOs QEMU orders"),
        (
            qemu("limit = { bandwidth = \"1MiB\" }"),
            "must have `iops` alone for VMs whose disks QEMU",
        ),
        (qemu(burst), "must have `iops` alone"),
    ] {
        let message = message.unwrap_err();
        assert!(message.contains(error), "{message}");
    }
    // Without VMs of it here, a tenant may have all that a policy gives it elsewhere.
    check(&(STEERED.to_owned() + &tenant("reservation = 5"))).unwrap();
}

#[test]
fn everything_wrong_with_steering_is_pointed_at() {
    for (from, to, error) in [
        ("/dev/mapper/san", "san", "parda.toml:11:10: device = \"san\": must be an absolute path"),
        ("queue_depth", "nr_request", "parda.toml:12:10: method = \"nr_request\": "),
        ("little", "bpf", "parda.toml:13:11: measure = \"bpf\": "),
        ("shares = 2000", "shares = 0", "parda.toml:14:10: shares = 0: must be from 1 to 1000000"),
        (
            "window_max = 32",
            "fairness = \"bytes\"",
            "parda.toml:8:12: fairness = \"bytes\": must be",
        ),
        ("device =", "devise =", "parda.toml:11:1: devise = \"/dev/mapper/san\": unknown field"),
    ] {
        let text = STEERED.replacen(from, to, 1);
        assert_ne!(text, STEERED);
        let message = check(&text).expect_err(&text);
        assert!(message.contains(error), "{to}: {message}");
    }
    let both =
        format!("{STEERED}[[volume.disk]]\nname = \"a\"\npath = \"/a\"\nlisten = \"unix:/b\"\n");
    let message = check(&both).unwrap_err();
    assert!(message.contains("a volume is either steered or served"), "{message}");
}
