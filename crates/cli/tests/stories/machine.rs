//! A machine in namespaces whose first process is a real systemd (systemd-nspawn), gone with its story.

use std::os::unix::fs::symlink;
use std::sync::{Mutex, PoisonError};

use crate::stage::Stage;
use parda_testkit::disk::skipped;

/// Held by the one machine that runs: two of them have the same cgroups, and each removes those of units that ended.
static ALONE: Mutex<()> = Mutex::new(());

/// What each script begins with.
const PRELUDE: &str = r#"
set -eux
trap '{ [ $? = 0 ] || journalctl --no-pager --lines=40 --unit=parda; } 2>/dev/null' EXIT
unit() { systemctl show -P "$1" parda; }
# Waits until a property of the unit has this value.
becomes() {
    for i in $(seq 1200); do case "$(unit "$1")" in $2) return;; esac; sleep 0.1; done
    systemctl status --no-pager -l parda; false
}
"#;

/// A configuration and its disk.
pub(crate) const CONFIGURE: &str = r#"
cat > /etc/parda.toml <<END
host = "h"
status = "unix:/run/parda/status.sock"
[[volume]]
name = "v"
[[volume.disk]]
name = "vm1"
path = "/srv/vm1.img"
listen = "unix:/run/parda/v.sock"
[[listener]]
address = "unix:/run/parda/v.sock"
mode = "0660"
group = "kvm"
END
truncate -s 1M /srv/vm1.img
chown parda /srv/vm1.img
"#;

/// Whether there can be machines here; said aloud if not.
pub(crate) fn is_possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("a machine in namespaces needs root");
    }
    root
}

/// A root directory, `root`, whose programs are this host's, to be bound to `/usr`.
pub(crate) fn of_this_host(stage: &Stage) {
    let root = stage.path("root");
    for dir in ["usr", "etc", "run", "var/lib", "tmp", "proc", "sys", "dev", "srv"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    for dir in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
    }
    stage.write("root/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    stage.write("root/etc/group", "root:x:0:\n");
    stage.write("root/etc/machine-id", "uninitialized\n");
    stage.write("root/etc/os-release", "ID=test\n");
    std::fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache")).unwrap();
}

/// Boots the machine of the directory `root`, which runs the script and ends with it. All of it must succeed.
pub(crate) fn tell(stage: &Stage, binds: &[&str], script: &str) {
    let units = stage.path("root/etc/systemd/system");
    std::fs::create_dir_all(&units).unwrap();
    // Services that a machine without a network would wait for.
    for unit in ["systemd-networkd-wait-online", "systemd-networkd", "systemd-firstboot"] {
        symlink("/dev/null", units.join(format!("{unit}.service"))).unwrap();
    }
    stage.write(
        "root/etc/systemd/system/story.service",
        "[Unit]\nDefaultDependencies=no\nAfter=sysinit.target dbus.service\n[Service]\nType=oneshot\n\
         ExecStart=/bin/sh /srv/script\nStandardOutput=file:/srv/said\nStandardError=file:/srv/said\n\
         ExecStopPost=/bin/systemctl poweroff -f\n",
    );
    let target = "[Unit]\nRequires=story.service dbus.service\n";
    stage.write("root/etc/systemd/system/story.target", target);
    stage.write("root/srv/script", format!("{PRELUDE}{script}\necho the story is told\n"));

    let name = format!("--machine=parda-{}", fastrand::u64(..));
    let line = [
        ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"].as_slice(),
        // What a machine's programs may not do unless it is said: io_uring, for one.
        &["--capability=CAP_BPF,CAP_PERFMON", "--system-call-filter=@aio @keyring bpf"],
        &["--private-network", "--directory=root", &name],
        binds,
        &["systemd.unit=story.target", "systemd.unified_cgroup_hierarchy=1"],
    ];
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = stage.run(&line.concat());
    drop(alone);
    let said = std::fs::read_to_string(stage.path("root/srv/said")).unwrap_or_default();
    assert!(said.ends_with("the story is told\n"), "{}{}\n{said}", done.out, done.err);
}
