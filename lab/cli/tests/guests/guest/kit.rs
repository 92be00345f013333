//! Files that guests boot from: kernel, initramfs and the disk with tools, as `make guest` creates
//! them; and a disk with the program under test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use super::error::GuestError;
use super::machine::Base;
use super::names::QEMU;
pub(crate) use super::names::VARIABLE;

/// Name of the file that `tools/guest.sh` writes last.
const STAMP: &str = "stamp";

/// Directory with the files that guests boot from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kit {
    dir: PathBuf,
}

impl Kit {
    /// The kit in the directory [`VARIABLE`], or else in the build directory of this program.
    ///
    /// # Errors
    /// There is no kit.
    pub(crate) fn find() -> Result<Kit, GuestError> {
        if let Some(dir) = std::env::var_os(VARIABLE) {
            return Kit::at(PathBuf::from(dir));
        }
        let exe = std::env::current_exe().map_err(|_| GuestError::NoKit { at: None })?;
        let mut kits = exe.ancestors().skip(1).map(|dir| dir.join("guest"));
        kits.find_map(|dir| Kit::at(dir).ok()).ok_or(GuestError::NoKit { at: None })
    }

    fn at(dir: PathBuf) -> Result<Kit, GuestError> {
        if dir.join(STAMP).is_file() {
            Ok(Kit { dir })
        } else {
            Err(GuestError::NoKit { at: Some(dir) })
        }
    }

    /// Path of the kernel image.
    #[must_use]
    pub(crate) fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Path of the initramfs, the first file system.
    #[must_use]
    pub(crate) fn initramfs(&self) -> PathBuf {
        self.dir.join("initramfs.gz")
    }

    /// Path of the disk with modules, programs and libraries.
    #[must_use]
    pub(crate) fn tools(&self) -> PathBuf {
        self.dir.join("tools.img")
    }

    /// A disk with this program on it, as `parda`. It is created once for each version of the program,
    /// beside the kit, and replaces that of the previous version.
    ///
    /// # Errors
    /// The program cannot be read, or the disk cannot be written.
    pub(crate) fn disk_with(&self, program: &Path) -> Result<PathBuf, GuestError> {
        let failed = |source| GuestError::Disk { program: program.to_owned(), source };
        let meta = fs::metadata(program).map_err(failed)?;
        let mut path = DefaultHasher::new();
        program.hash(&mut path);
        let of = format!("parda-{:x}-", path.finish());
        let name = format!("{of}{:x}-{:x}-{:x}.img", meta.mtime(), meta.mtime_nsec(), meta.len());
        let image = self.dir.join(&name);
        if image.is_file() {
            return Ok(image);
        }
        let work = tempfile::tempdir_in(&self.dir).map_err(failed)?;
        let (root, unfinished) = (work.path().join("root"), work.path().join("image"));
        fs::create_dir(&root).map_err(failed)?;
        fs::copy(program, root.join("parda")).map_err(failed)?;
        let size = format!("{}k", ((meta.len() * 9 / 8) >> 10) + 2048);
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext2", "-m", "0", "-O", "^resize_inode", "-d"]);
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        mke2fs.arg(&root).arg(&unfinished).arg(size).env("PATH", path);
        let made = mke2fs.output().map_err(failed)?;
        if !made.status.success() {
            let says = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(failed(io::Error::other(says)));
        }
        self.forget(&of, &name);
        fs::rename(&unfinished, &image).map_err(failed)?;
        Ok(image)
    }

    /// Saved state of a booted machine of this base. It is created once for each boot of this machine,
    /// whose clock it depends on, and for each kit, emulator and base.
    ///
    /// # Errors
    /// The machine does not boot, or its state cannot be written.
    pub(super) fn state(
        &self,
        base: Base,
        make: impl FnOnce(&Path) -> Result<(), GuestError>,
    ) -> Result<PathBuf, GuestError> {
        let failed = |source| GuestError::State { dir: self.dir.clone(), source };
        let emulator = Command::new(QEMU).arg("-version").output().map_err(GuestError::NoQemu)?;
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        let stamp = fs::read(self.dir.join(STAMP)).map_err(failed)?;
        let nowhere = Path::new("");
        let command = base.command(self, (nowhere, nowhere), None);
        let mut key = DefaultHasher::new();
        (emulator.stdout, boot, stamp, format!("{command:?}")).hash(&mut key);
        let of = format!("{}-", base.name());
        let name = format!("{of}{:x}.state", key.finish());
        // One process creates the state; others wait for it.
        let lock = File::create(self.dir.join("lock")).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let state = self.dir.join(&name);
        if !state.is_file() {
            let unfinished = state.with_extension("unfinished");
            make(&unfinished)?;
            fs::rename(&unfinished, &state).map_err(failed)?;
            self.forget(&of, &name);
        }
        Ok(state)
    }

    /// Removes files that begin with `beginning`, except for `but`. Guests that run from such a file
    /// keep it open.
    fn forget(&self, beginning: &str, but: &str) {
        let begins = |name: &OsStr| {
            let name = name.to_str();
            name.is_some_and(|name| name.starts_with(beginning) && name != but)
        };
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if begins(&entry.file_name()) {
                // A file that remains only takes up space.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_finished_kit_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let error = Kit::at(dir.path().to_owned()).unwrap_err().to_string();
        assert!(error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(error.contains("make guest"), "{error}");
        fs::write(dir.path().join(STAMP), "x").unwrap();
        assert_eq!(Kit::at(dir.path().to_owned()).unwrap().tools(), dir.path().join("tools.img"));
    }

    #[test]
    fn a_state_is_made_once_for_each_kind_of_machine_and_kit() {
        if Command::new(QEMU).arg("-version").output().is_err() {
            eprintln!("SKIPPED: no {QEMU}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let kit = Kit { dir: dir.path().to_owned() };
        let stamp = |text| fs::write(dir.path().join(STAMP), text).unwrap();
        let [small, large] = [256, 512].map(|memory| {
            let config =
                crate::guest::GuestConfig { memory, ..crate::guest::GuestConfig::new("a") };
            config.base()
        });
        let made = |base| {
            let write = |to: &Path| {
                fs::write(to, "state").unwrap();
                Ok(())
            };
            kit.state(base, write).unwrap()
        };
        let there = |base| kit.state(base, |_| panic!("it is there")).unwrap();
        stamp("x");
        let first = made(small);
        let other = made(large);
        assert_eq!((there(small), there(large)), (first.clone(), other.clone()));
        stamp("y");
        let anew = made(small);
        assert!(anew != first && !first.exists() && other.exists());
    }

    #[test]
    fn a_programs_disk_is_made_once_and_anew_when_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let kit = Kit { dir: dir.path().to_owned() };
        let program = dir.path().join("program");
        fs::write(&program, "one").unwrap();
        let first = kit.disk_with(&program).unwrap();
        let made = fs::metadata(&first).unwrap().modified().unwrap();
        assert_eq!(kit.disk_with(&program).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), made);
        fs::write(&program, "another").unwrap();
        let second = kit.disk_with(&program).unwrap();
        assert!(second != first && second.is_file() && !first.exists());
    }
}
