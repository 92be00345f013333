//! The agent as `make install` installs it, run by a real systemd: the first process of a machine in namespaces (systemd-nspawn) that has this
//! host's programs and an /etc of its own.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::disks::skipped;
use crate::stage::{PARDA, Stage};

/// What each script of a machine begins with.
const PRELUDE: &str = r#"
set -eux
unit() { systemctl show -P "$1" parda; }
# Waits until a property of the unit has this value.
becomes() {
    for i in $(seq 1200); do case "$(unit "$1")" in $2) return;; esac; sleep 0.1; done
    systemctl status --no-pager -l parda; false
}
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

/// A machine's root directory, with `make install` done, and this script as what it runs.
fn machine(stage: &Stage, script: &str) {
    let root = stage.path("root");
    let dirs = [
        "usr",
        "etc/systemd/system",
        "run",
        "var/lib",
        "tmp",
        "proc",
        "sys",
        "dev",
        "srv",
        "local",
    ];
    for dir in dirs {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    for dir in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
    }
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    write("etc/group", "root:x:0:\n");
    write("etc/machine-id", "uninitialized\n");
    write("etc/os-release", "ID=test\n");
    std::fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache")).unwrap();
    // Services of this host's packages that a machine without a network would wait for.
    for unit in ["systemd-networkd-wait-online", "systemd-networkd", "systemd-firstboot"] {
        symlink("/dev/null", root.join(format!("etc/systemd/system/{unit}.service"))).unwrap();
    }
    write(
        "etc/systemd/system/story.service",
        "[Unit]\nDefaultDependencies=no\nAfter=sysinit.target dbus.service\n[Service]\nType=oneshot\n\
         ExecStart=/bin/sh /srv/script\nStandardOutput=file:/srv/said\nStandardError=file:/srv/said\n\
         ExecStopPost=/bin/systemctl poweroff -f\n",
    );
    write("etc/systemd/system/story.target", "[Unit]\nRequires=story.service dbus.service\n");
    write("srv/script", &format!("{PRELUDE}{script}\necho the story is told\n"));

    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (place, program) = (place.display().to_string(), format!("PARDA={PARDA}"));
    let dest = format!("DESTDIR={}", stage.path("installed").display());
    stage.ok(&["make", "-s", "-C", &place, "install", &program, &dest]);
}

/// Boots the machine, which ends when its script does. It must have told all of it.
fn boot(stage: &Stage) {
    let local = format!("--bind={}:/usr/local", stage.path("installed/usr/local").display());
    let name = format!("--machine=parda-{}", std::process::id());
    let line = [
        [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--capability=CAP_BPF,CAP_PERFMON",
        ]
        .as_slice(),
        // What a machine's programs may not do unless it is said: io_uring, for one.
        &["--system-call-filter=@aio @keyring bpf", "--directory=root", "--bind-ro=/usr"],
        &[&local, &name, "systemd.unit=story.target", "systemd.unified_cgroup_hierarchy=1"],
    ];
    let done = stage.run(&line.concat());
    let said = std::fs::read_to_string(stage.path("root/srv/said")).unwrap_or_default();
    assert!(said.ends_with("the story is told\n"), "{}{}\n{said}", done.out, done.err);
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("a machine in namespaces needs root");
    }
    root
}

#[test]
fn an_installed_agent_is_a_service_without_privileges() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let script = r#"
systemctl start parda
becomes StatusText 'volumes: 1; disks: 1; steered devices: 0'
pid=$(unit MainPID)
grep "^Uid:.$(id -u parda)" /proc/$pid/status
grep '^CapBnd:.0*$' /proc/$pid/status
grep '^NoNewPrivs:.1$' /proc/$pid/status
grep '^Seccomp:.2$' /proc/$pid/status

# Members of the socket's group are served, others are refused.
kvm=$(getent group kvm | cut -d: -f3)
as() { setpriv --reuid=65534 --regid="$1" --clear-groups qemu-io -f raw -c "$2" 'nbd+unix:///vm1?socket=/run/parda/v.sock'; }
as "$kvm" 'write -P 7 0 4096'
! as 65534 'read 0 4096'

# A reload is told as done or refused, and the agent goes on.
cp /etc/parda.toml /srv/good
echo nonsense >> /etc/parda.toml
systemctl reload parda
becomes StatusText 'configuration not changed: /etc/parda.toml:*'
cp /srv/good /etc/parda.toml
systemctl reload parda
becomes StatusText 'volumes: 1; *'
test "$(unit MainPID)" = "$pid"

# An agent that is killed, and one that hangs, is started again, and serves what was written.
kill -KILL "$pid"
becomes NRestarts 1
becomes ActiveState active
mkdir -p /run/systemd/system/parda.service.d
printf '[Service]\nWatchdogSec=1\n' > /run/systemd/system/parda.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart parda
kill -STOP "$(unit MainPID)"
becomes NRestarts 1
becomes ActiveState active
as "$kvm" 'read -P 7 0 4096'

systemctl stop parda
test "$(unit ActiveState) $(unit Result)" = 'inactive success'
test -z "$(ls /run/parda)"
"#;
    machine(&stage, script);
    boot(&stage);
}

#[test]
fn a_host_that_steers_adds_a_drop_in() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let script = r#"
mkdir -p /etc/systemd/system/parda.service.d
ln -s /usr/local/share/parda/steer.conf /etc/systemd/system/parda.service.d/
systemctl daemon-reload
systemctl start parda
becomes ActiveState active
# CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF.
grep '^CapBnd:.000000c000200000$' /proc/$(unit MainPID)/status
grep '^Uid:.0' /proc/$(unit MainPID)/status
mkdir -p /run/parda/steer
systemctl stop parda
test "$(unit ActiveState) $(unit Result)" = 'inactive success'
"#;
    machine(&stage, script);
    boot(&stage);
}

/// How exposed a unit is as systemd rates it: 0 to 10.
fn exposure(stage: &Stage, drop_in: bool) -> f64 {
    let units = stage.path("installed/usr/local/lib/systemd/system");
    let dropped = units.join("parda.service.d");
    if drop_in {
        std::fs::create_dir(&dropped).unwrap();
        symlink("../../../../share/parda/steer.conf", dropped.join("steer.conf")).unwrap();
    }
    let root = format!("--root={}", stage.path("installed").display());
    let said = stage.ok(&[
        "systemd-analyze",
        "security",
        "--offline=true",
        &root,
        "--no-pager",
        "parda.service",
    ]);
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).unwrap();
    overall.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
}

#[test]
fn the_unit_is_sound_and_little_exposed() {
    let stage = Stage::new();
    machine(&stage, "");
    let unit = "installed/usr/local/lib/systemd/system/parda.service";
    let text = String::from_utf8(stage.read(unit)).unwrap();
    assert!(text.contains("ExecStart=/usr/local/bin/parda serve"), "{text}");
    let example = "installed/usr/local/share/parda/parda.toml";
    stage.ok(&[PARDA, "check", example]);
    let (serves, steers) = (exposure(&stage, false), exposure(&stage, true));
    assert!(serves < 2.0, "{serves}");
    assert!(steers < 3.5 && steers > serves, "{steers}");
}
