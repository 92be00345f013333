//! A file system that is full, and one that is read-only. Needs root, to mount one.
use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{exchange, make, publication};
use parda_control::Instant;
use parda_exchange::{Exchange as _, Location, Site, SlotCount, init};
use parda_testkit::disk::until;

/// A file system in memory, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(path: &Path) -> Option<Mounted> {
        mount(&["-t", "tmpfs", "-o", "size=64k", "none"], path).then(|| Mounted(path.to_owned()))
    }

    /// Tried until it works: a child of another test has the files of this process open until it runs its program.
    fn remount(&self, how: &str) {
        let how = format!("remount,{how}");
        until(&how, || mount(&["-o", &how], &self.0));
    }
}

fn mount(arguments: &[&str], path: &Path) -> bool {
    Command::new("mount").args(arguments).arg(path).status().is_ok_and(|status| status.success())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{} is still mounted",
            self.0.display()
        );
    }
}

#[test]
fn a_full_or_read_only_file_system_is_named_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(dir.path()) else {
        println!("SKIPPED: cannot mount a tmpfs here (not root?)");
        return;
    };
    let path = dir.path().join("exchange");
    let filler = dir.path().join("filler");
    // Nothing is left behind that is not an exchange, and where there is room it is finished.
    std::fs::write(&filler, vec![1; 48 * 1024]).unwrap();
    let site = Site::new(Location::Path(path.clone()), None).unwrap();
    let begun = init(&site, SlotCount::new(8).unwrap(), None, Duration::from_secs(9)).unwrap_err();
    assert!(begun.to_string().contains("no space"), "{begun}");
    std::fs::remove_file(&filler).unwrap();
    let mut host = exchange(make(&path, None, 8), "a", 3);
    // Cut short, it must grow.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let mut period = |now| {
        host.collect(Instant(now)).unwrap();
        host.publish(&publication(now as f64)).map_err(|error| error.to_string())
    };

    std::fs::write(&filler, vec![1; 48 * 1024]).unwrap();
    let is = |done: Result<(), String>, fault| {
        let error = done.unwrap_err();
        assert!(error.contains(fault), "{error}");
    };
    is(period(0), "no space left");
    mounted.remount("ro");
    is(period(1), "it is read-only");
    mounted.remount("rw");
    std::fs::remove_file(&filler).unwrap();
    period(2).unwrap();
    mounted.remount("ro");
    is(period(3), "it is read-only");
    mounted.remount("rw");
    // A file that is complete needs no more space.
    std::fs::write(&filler, vec![1; 64 * 1024]).unwrap_err();
    period(4).unwrap();

    // Nothing is held open: this is busy otherwise.
    drop(mounted);
}
