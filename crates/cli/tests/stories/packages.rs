//! The Debian and RPM packages on machines of their own: installed, upgraded under load, interrupted, downgraded, removed and purged.

use std::path::{Path, PathBuf};
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

/// Makes a package of what `make build` built, with these options of its tool. Its symbols are not counted.
fn make(kind: &str, options: &[&str]) -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let made = run(Command::new(place.join("tools/packages.sh")).arg(kind).args(options));
    place.join(made.lines().find(|line| !line.contains("dbgsym")).unwrap())
}

/// The package that an operator has, from the directory `PARDA_PACKAGES_BEFORE`, where `tools/upgrade.sh` puts it.
fn before(kind: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(std::env::var_os("PARDA_PACKAGES_BEFORE")?).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut ours = paths.filter(|path| {
        path.extension().is_some_and(|e| e == kind)
            && !["dbgsym", "parda-lab"]
                .iter()
                .any(|other| path.display().to_string().contains(other))
    });
    Some(ours.next().expect("a package of the kind in PARDA_PACKAGES_BEFORE"))
}

/// Puts two packages into `/srv`, `before.KIND` and `after.KIND`. The former is of the same program unless there is one from before.
fn packages(stage: &Stage, kind: &str, options: [&[&str]; 2]) {
    // All packages are made of files in one directory.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let put = |package: PathBuf, name: &str| {
        std::fs::copy(package, stage.path(&format!("root/srv/{name}.{kind}"))).unwrap();
    };
    put(before(kind).unwrap_or_else(|| make(kind, options[0])), "before");
    put(make(kind, options[1]), "after");
}

fn debian_packages(stage: &Stage) {
    packages(
        stage,
        "deb",
        [&["--fast", "--deb-revision", "1"], &["--fast", "--deb-revision", "2"]],
    );
}

/// A Debian machine with these packages besides.
fn debian(stage: &Stage, suite: &str, with: &str) {
    let include = format!("--include={with}");
    run(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", &include, suite])
        .arg(stage.path("root")));
}

const BOOTED: &str = "systemd,systemd-sysv,dbus,qemu-utils,init-system-helpers";

/// A client whose requests wait for an agent that is away, and fail if it does not come back. It ends with the file `/srv/enough`.
/// What an operator changed, and how it was.
const HELPERS: &str = r#"
client() {
    rm -f /srv/enough
    (until test -e /srv/enough; do
        qemu-img bench -q -w -c 20000 --image-opts driver=nbd,server.type=unix,server.path=/run/parda/v.sock,export=vm1,reconnect-delay=60,open-timeout=60 || exit 1
    done) &
    load=$!
}
ends_well() {
    kill -0 $load
    touch /srv/enough
    wait $load
}
operators() {
    cd /
    stat -c '%n %a %U:%G %Y' /etc/parda.toml /etc/parda /etc/parda/* /etc/systemd/system/parda.service.d/* /var/lib/parda/*
    sha256sum /etc/parda.toml /etc/parda/* /etc/systemd/system/parda.service.d/* /var/lib/parda/*
}
by_hand() {
    mkdir -p /etc/parda /etc/systemd/system/parda.service.d
    echo secret > /etc/parda/key
    chmod 0700 /etc/parda
    chmod 0600 /etc/parda/key
    printf '[Service]\nReadWritePaths=/srv\n' > /etc/systemd/system/parda.service.d/mine.conf
    printf '# mine\n' >> /etc/parda.toml
    echo image > /var/lib/parda/vm2.img
    operators > /srv/operators
}
unchanged() { operators | diff /srv/operators -; }
# Version 0.1.0 set the mode of the directory, at each boot too.
as_it_was() { chmod 0700 /etc/parda; }
# The agent runs, and not as the process that it was.
another() {
    becomes ActiveState active
    test "$(unit MainPID)" != "$1"
}
# Runs what installs a package, and kills it after these seconds. It is gone, with its lock, once its last IO is.
killed() {
    timeout -s KILL "$@" || :
    while cat /proc/[0-9]*/comm 2> /dev/null | grep -x "$2"; do sleep 0.1; done
}
# How long it was away at its last restart, in microseconds.
away() { echo $(($(unit ActiveEnterTimestampMonotonic) - $(unit ActiveExitTimestampMonotonic))); }
"#;

/// A Debian package is installed.
const INSTALLED: &str = r#"
dpkg -i /srv/before.deb
# Without a configuration it waits for one.
test "$(unit ActiveState) $(unit UnitFileState)" = 'inactive enabled'
getent passwd parda
zcat "$(dpkg -L parda | grep man1/parda-serve.1.gz)" | grep SIGHUP
"#;

/// An agent under load is upgraded, and goes back to the older version.
const UPGRADED: &str = r#"
by_hand
systemctl daemon-reload
systemctl start parda
becomes ActiveState active
systemctl restart parda
becomes ActiveState active
plain=$(away)
client

# The old agent serves while the new files are unpacked, and a restart takes what a restart takes.
before=$(unit MainPID)
dpkg --unpack /srv/after.deb
test "$(unit MainPID) $(unit ActiveState)" = "$before active"
dpkg --configure parda
another "$before"
echo "away for $plain us by a restart, for $(away) us by an upgrade"
test "$(away)" -lt $((plain + 5000000))
unchanged
before=$(unit MainPID)
systemctl reload parda
test "$(unit MainPID) $(unit ActiveState)" = "$before active"

# An agent that the configuration on disk would keep from starting is not restarted.
before=$(unit MainPID)
cp -p /etc/parda.toml /srv/good
echo nonsense >> /etc/parda.toml
dpkg -i /srv/after.deb 2>&1 | grep 'runs on until.*parda.toml:'
test "$(unit MainPID) $(unit ActiveState)" = "$before active"
cp -p /srv/good /etc/parda.toml

# A dpkg that is killed, wherever it is, can be repeated.
for hundredths in 02 04 06 08 10 15 20 25 30 40 50 60 80; do
    case $hundredths in *[05]) package=before;; *) package=after;; esac
    killed 0.$hundredths dpkg -i /srv/$package.deb
done
dpkg --configure -a || :
as_it_was
dpkg -i /srv/after.deb
test "$(dpkg-query -W -f '${Status}' parda)" = 'install ok installed'
becomes ActiveState active
unchanged

# Back to the older version, under the same load.
before=$(unit MainPID)
dpkg -i /srv/before.deb
another "$before"
as_it_was
unchanged
ends_well

"#;

/// The package is upgraded without an agent that runs, removed, purged, and installed beside a unit made by hand.
const ENDED: &str = r#"
# What was stopped, disabled or masked stays so.
systemctl stop parda
dpkg -i /srv/after.deb
test "$(unit ActiveState) $(unit UnitFileState)" = 'inactive enabled'
systemctl disable parda
dpkg -i /srv/after.deb
test "$(unit ActiveState) $(unit UnitFileState)" = 'inactive disabled'
systemctl mask --runtime parda
dpkg -i /srv/after.deb
test "$(unit ActiveState)" = inactive
systemctl unmask --runtime parda
systemctl start parda
becomes ActiveState active

touch /var/lib/parda/state.toml
dpkg -r parda
! systemctl is-active parda
! test -e /usr/bin/parda
test -e /var/lib/parda/state.toml
dpkg -P parda
! test -e /var/lib/parda/state.toml
! test -e /run/parda
unchanged
! systemctl cat parda | grep ExecStart

# With all that is there by hand, and a unit besides that runs.
dpkg-deb -x /srv/after.deb /opt
sed 's|/usr/bin|/opt/usr/bin|' /opt/usr/lib/systemd/system/parda.service > /etc/systemd/system/parda.service
systemctl daemon-reload
systemctl start parda
becomes ActiveState active
before=$(unit MainPID)
client
dpkg -i /srv/after.deb
test "$(unit MainPID) $(unit ActiveState)" = "$before active"
rm /etc/systemd/system/parda.service
systemctl daemon-reload
systemctl restart parda
another "$before"
test "$(readlink "/proc/$(unit MainPID)/exe")" = /usr/bin/parda
ends_well
unchanged
"#;

fn a_debian_package_lives_through(suite: &str) {
    if !machine::is_possible() {
        return;
    }
    let stage = Stage::new();
    debian(&stage, suite, BOOTED);
    debian_packages(&stage);
    machine::tell(&stage, &[], &[HELPERS, INSTALLED, CONFIGURE, UPGRADED, ENDED].concat());
}

#[test]
#[ignore = "make nightly: makes a Debian system, which takes minutes; the unit and all files are in `service`"]
fn a_debian_12_package_is_installed_upgraded_under_load_interrupted_removed_and_purged() {
    a_debian_package_lives_through("bookworm");
}

#[test]
#[ignore = "make nightly: makes a Debian system, which takes minutes; the unit and all files are in `service`"]
fn a_debian_13_package_is_installed_upgraded_under_load_interrupted_removed_and_purged() {
    a_debian_package_lives_through("trixie");
}

#[test]
#[ignore = "make nightly: makes a Debian system, which takes a minute"]
fn a_debian_package_needs_no_systemd_that_runs() {
    if !machine::is_possible() {
        return;
    }
    let stage = Stage::new();
    debian(&stage, "trixie", "systemd-standalone-sysusers");
    debian_packages(&stage);
    let script = CONFIGURE.replace("chown", ": chown")
        + r#"
! test -e /usr/bin/systemctl
dpkg -i /srv/before.deb
getent passwd parda
parda check --help
dpkg -i /srv/after.deb
# One that was made by hand is in force, and the package says so.
mkdir -p /usr/local/lib/systemd/system
touch /usr/local/lib/systemd/system/parda.service
dpkg -i /srv/after.deb 2>&1 | grep 'make uninstall'
test -s /usr/share/doc/parda/parda.cdx.json
test -s /usr/share/doc/parda/docs/installing.md
dpkg -r parda
dpkg -P parda
test -z "$(dpkg-query -W parda 2> /dev/null)"
test -e /etc/parda.toml
"#;
    stage.ok(&["chroot", "root", "sh", "-euxc", &script]);
}

#[test]
#[ignore = "make nightly: makes a Debian system, which takes minutes; the unit and all files are in `service`"]
fn an_rpm_package_is_installed_upgraded_under_load_downgraded_and_removed() {
    if !machine::is_possible() {
        return;
    }
    let stage = Stage::new();
    debian(&stage, "bookworm", &format!("{BOOTED},rpm"));
    packages(
        &stage,
        "rpm",
        [
            &["--payload-compress=none", "--set-metadata=release = '1'"],
            &["--payload-compress=none", "--set-metadata=release = '2'"],
        ],
    );
    let script = HELPERS.to_owned()
        + r#"
# Debian's packages are unknown to rpm.
rpm -i --nodeps /srv/before.rpm
rpm -q --requires parda | grep systemd
# Nothing that another distribution lacks.
rpm -qp --requires /srv/after.rpm | grep -vE '^(/bin/sh|group\(kvm\)|user\(parda\)|systemd|rtld\(|rpmlib\(|ld-linux|lib(c|m|gcc_s)\.so)' | (! grep .)
getent passwd parda
test "$(unit ActiveState)" = inactive
"# + CONFIGURE
        + r#"
by_hand
systemctl daemon-reload
systemctl start parda
becomes ActiveState active
systemctl restart parda
becomes ActiveState active
plain=$(away)
client

before=$(unit MainPID)
rpm -U --nodeps /srv/after.rpm
another "$before"
echo "away for $plain us by a restart, for $(away) us by an upgrade"
test "$(away)" -lt $((plain + 5000000))
rpm -V --nodeps parda
unchanged
systemctl reload parda

# An agent that the configuration on disk would keep from starting is not restarted.
before=$(unit MainPID)
cp -p /etc/parda.toml /srv/good
echo nonsense >> /etc/parda.toml
rpm -U --nodeps --force /srv/after.rpm 2>&1 | grep 'runs on until.*parda.toml:'
test "$(unit MainPID) $(unit ActiveState)" = "$before active"
cp -p /srv/good /etc/parda.toml

# One that is killed, wherever it is, can be repeated.
for hundredths in 02 05 10 15 20 25 30 40 60; do
    killed 0.$hundredths rpm -U --nodeps --force /srv/after.rpm
done
# Not in the same second, after which rpm names its files.
for i in $(seq 30); do rpm -U --nodeps --force /srv/after.rpm && break; sleep 1; done
rpm -V --nodeps parda
becomes ActiveState active
unchanged

before=$(unit MainPID)
rpm -U --nodeps --oldpackage /srv/before.rpm
another "$before"
as_it_was
unchanged
ends_well

systemctl stop parda
rpm -U --nodeps /srv/after.rpm
test "$(unit ActiveState)" = inactive
systemctl start parda
becomes ActiveState active
rpm -e parda
! systemctl is-active parda
! test -e /usr/bin/parda
test -z "$(find /usr -name parda)"
! systemctl cat parda
unchanged
"#;
    machine::tell(&stage, &[], &script);
}
