//! The agent as `make install` installs it, run by a real systemd.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::machine::{self, CONFIGURE};
use crate::stage::{PARDA, Stage};

/// Does `make install` into the stage's directory `installed`.
fn install(stage: &Stage) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (place, program) = (place.display().to_string(), format!("PARDA={PARDA}"));
    let dest = format!("DESTDIR={}", stage.path("installed").display());
    stage.ok(&["make", "-s", "-C", &place, "install", &program, &dest]);
}

/// Tells a story on a machine with this host's programs, and what was installed.
fn tell(script: &str) {
    let stage = Stage::new();
    if !machine::is_possible() {
        return;
    }
    install(&stage);
    machine::of_this_host(&stage);
    let local = format!("--bind={}:/usr/local", stage.path("installed/usr/local").display());
    machine::tell(&stage, &["--bind-ro=/usr", &local], &format!("{CONFIGURE}{script}"));
}

/// Rights of the agent's user, and what its unit lets it write.
const RIGHTS: &str = r#"
# Root's check is the user's, whom the unit names with its groups.
check() { parda check 2>&1; }
chown root /srv/vm1.img
lacks() { check | grep "note: vm1: /srv/vm1.img: Permission denied .*.setfacl -m u:$(id -u "$1"):rw /srv/vm1.img"; }
lacks parda
mkdir -p /etc/systemd/system/parda.service.d
printf '[Service]\nUser=nobody\n' > /etc/systemd/system/parda.service.d/group.conf
systemctl daemon-reload
lacks nobody
chmod 0660 /srv/vm1.img
printf '[Service]\nSupplementaryGroups=root\n' > /etc/systemd/system/parda.service.d/group.conf
systemctl daemon-reload
check | grep good
! check | grep note
rm /etc/systemd/system/parda.service.d/group.conf
systemctl daemon-reload
chmod 0600 /etc/parda.toml
! check
printf '[Service]\nUser=nobody-of-us\n' > /etc/systemd/system/parda.service.d/group.conf
systemctl daemon-reload
check | grep 'does not know the user or a group of parda.service'
rm /etc/systemd/system/parda.service.d/group.conf
systemctl daemon-reload
chmod 0644 /etc/parda.toml
chown parda /srv/vm1.img
! check | grep note

# What the unit keeps from the agent is named with the line that gives it.
mkdir /data
mv /srv/vm1.img /data
sed -i s,/srv/,/data/, /etc/parda.toml
systemctl start parda
parda status | grep 'Read-only file system .*below .Service. the line ReadWritePaths=/data'
printf '[Service]\nReadWritePaths=/data\n' > /etc/systemd/system/parda.service.d/data.conf
systemctl daemon-reload
systemctl restart parda
becomes StatusText 'volumes: 1; disks: 1; steered devices: 0'
systemctl stop parda
mv /data/vm1.img /srv
sed -i s,/data/,/srv/, /etc/parda.toml
"#;

#[test]
fn an_installed_agent_is_a_service_without_privileges() {
    let serves = r#"
systemctl start parda
becomes StatusText 'volumes: 1; disks: 1; steered devices: 0'
pid=$(unit MainPID)
grep "^Uid:.$(id -u parda)" /proc/$pid/status
grep '^CapBnd:.0*$' /proc/$pid/status
grep '^NoNewPrivs:.1$' /proc/$pid/status
grep '^Seccomp:.2$' /proc/$pid/status
grep '^Max core file size *0 *0 ' /proc/$pid/limits

# Members of the socket's group are served, others are refused.
kvm=$(getent group kvm | cut -d: -f3)
as() { setpriv --reuid=65534 --regid="$1" --clear-groups qemu-io -f raw -c "$2" 'nbd+unix:///vm1?socket=/run/parda/v.sock'; }
as "$kvm" 'write -P 7 0 4096'
! as 65534 'read 0 4096'

# A reload is told as done, or fails, and the agent goes on.
cp /etc/parda.toml /srv/good
echo nonsense >> /etc/parda.toml
! systemctl reload parda
becomes StatusText 'configuration not changed: /etc/parda.toml:*'
becomes ActiveState active
parda status | grep 'RELOAD REFUSED: .*/etc/parda.toml:'
echo nonsense > /etc/parda.toml
! systemctl reload parda
cp /srv/good /etc/parda.toml
systemctl reload parda
! parda status | grep REFUSED
becomes StatusText 'volumes: 1; *'
test "$(unit MainPID)" = "$pid"

# An agent that is killed, and one that hangs, is started again, and serves what was written.
kill -KILL "$pid"
becomes NRestarts '[1-9]*'
becomes ActiveState active
mkdir -p /run/systemd/system/parda.service.d
printf '[Service]\nWatchdogSec=2\n' > /run/systemd/system/parda.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart parda
kill -STOP "$(unit MainPID)"
# On a busy machine one that does not hang may be too late as well.
becomes NRestarts '[1-9]*'
systemctl service-watchdogs no
becomes ActiveState active
as "$kvm" 'read -P 7 0 4096'

systemctl stop parda
test "$(unit ActiveState) $(unit Result)" = 'inactive success'
test -z "$(ls /run/parda)"
"#;
    tell(&format!("{RIGHTS}{serves}"));
}

#[test]
fn a_host_that_steers_adds_a_drop_in() {
    tell(
        r#"
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
"#,
    );
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
    install(&stage);
    let unit = "installed/usr/local/lib/systemd/system/parda.service";
    let text = String::from_utf8(stage.read(unit)).unwrap();
    assert!(text.contains("ExecStart=/usr/local/bin/parda serve"), "{text}");
    let example = "installed/usr/local/share/parda/parda.toml";
    // A host has the group with its udev, if at all.
    let text = String::from_utf8(stage.read(example)).unwrap();
    assert!(text.contains("group = \"kvm\""), "{text}");
    stage.write(example, text.replace("group = \"kvm\"", "group = \"root\""));
    stage.ok(&[PARDA, "check", example]);
    let (serves, steers) = (exposure(&stage, false), exposure(&stage, true));
    assert!(serves < 2.0, "{serves}");
    assert!(steers < 3.5 && steers > serves, "{steers}");
}
