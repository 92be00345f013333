//! The Debian and RPM packages: installed, upgraded under load, removed and purged on a Debian machine of their own.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::machine::{self, CONFIGURE};
use crate::stage::Stage;

/// Runs a program that takes its time, minutes on a busy machine. Returns what it says.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a package of what `make build` built, with these options of its tool, in the directory `root/srv` of the stage.
fn package(stage: &Stage, kind: &str, options: &[&str]) {
    // All packages are made of files in one directory.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    assert!(place.join("target/release/parda").exists(), "run `make build` first");
    let made = run(Command::new(place.join("tools/packages.sh")).arg(kind).args(options));
    for made in made.lines() {
        let made = place.join(made);
        std::fs::copy(&made, stage.path("root/srv").join(made.file_name().unwrap())).unwrap();
    }
}

/// A Debian machine with these packages besides.
fn debian(stage: &Stage, with: &str) {
    let include = format!("--include=systemd,systemd-sysv,dbus,qemu-utils,{with}");
    let root = stage.path("root");
    run(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", &include, "bookworm"])
        .arg(root));
}

/// A client whose requests wait for an agent that is away, and fail if it does not come back.
const LOAD: &str = r#"
client() {
    qemu-img bench -q -w -c 60000 --image-opts \
        driver=nbd,server.type=unix,server.path=/run/parda/v.sock,export=vm1,reconnect-delay=60 &
    load=$!
}
"#;

#[test]
#[ignore = "nightly: makes a Debian system, which takes minutes; the unit and all files are in `service`"]
fn a_debian_package_is_installed_upgraded_under_load_removed_and_purged() {
    if !machine::is_possible() {
        return;
    }
    let stage = Stage::new();
    debian(&stage, "init-system-helpers");
    package(&stage, "deb", &["--fast", "--deb-revision", "1"]);
    package(&stage, "deb", &["--fast", "--deb-revision", "2"]);
    let script = r#"
dpkg -i /srv/parda_*-1_*.deb
# Without a configuration it waits for one.
test "$(unit ActiveState) $(unit UnitFileState)" = 'inactive enabled'
getent passwd parda
man=$(dpkg -L parda | grep 'man1/parda-serve.1.gz')
zcat "$man" | grep SIGHUP
"#
    .to_owned()
        + CONFIGURE
        + LOAD
        + r#"
systemctl start parda
becomes ActiveState active
before=$(unit MainPID)
client
dpkg -i /srv/parda_*-2_*.deb
becomes ActiveState active
test "$(unit MainPID)" != "$before"
# The load went on through the upgrade, and ends without an error.
kill -0 $load
wait $load

echo kept > /var/lib/parda/kept
dpkg -r parda
! systemctl is-active parda
! test -e /usr/bin/parda
test -e /etc/parda.toml
test -e /var/lib/parda/kept
dpkg -P parda
! test -e /var/lib/parda
! test -e /run/parda
! test -e /etc/parda
test -e /etc/parda.toml
! systemctl cat parda
"#;
    machine::tell(&stage, &[], &script);
}

#[test]
#[ignore = "nightly: makes a Debian system, which takes minutes; the unit and all files are in `service`"]
fn an_rpm_package_is_installed_upgraded_under_load_and_removed() {
    if !machine::is_possible() {
        return;
    }
    let stage = Stage::new();
    debian(&stage, "rpm");
    package(&stage, "rpm", &["--payload-compress=none", "--set-metadata=release = '1'"]);
    package(&stage, "rpm", &["--payload-compress=none", "--set-metadata=release = '2'"]);
    let script = r#"
# Debian's packages are unknown to rpm.
rpm -i --nodeps /srv/parda-*-1.*.rpm
rpm -q --requires parda | grep systemd
getent passwd parda
test "$(unit ActiveState)" = inactive
"#
    .to_owned()
        + CONFIGURE
        + LOAD
        + r#"
systemctl start parda
becomes ActiveState active
before=$(unit MainPID)
client
rpm -U --nodeps /srv/parda-*-2.*.rpm
becomes ActiveState active
test "$(unit MainPID)" != "$before"
kill -0 $load
wait $load
rpm -V --nodeps parda
rpm -e parda
! systemctl is-active parda
! test -e /usr/bin/parda
test -e /etc/parda.toml
"#;
    machine::tell(&stage, &[], &script);
}
