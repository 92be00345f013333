//! An export of the array as a file in a FUSE mount, by nbdfuse.
//!
//! QEMU's own NBD client (7.2) receives replies one by one, but completes all outstanding IOs to
//! the guest, and takes new ones, in one go. With d IOs of a guest outstanding, an array that
//! serves one at a time sees (d + 1) / 2 of them on average. It sees all IOs to this file, up to 10: the number of FUSE threads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use tempfile::TempDir;

use super::error::GuestError;
use super::wait::look_until;
use parda_lab::export_uri;
use parda_lab::process::Process;

/// Program that mounts the file.
const NBDFUSE: &str = "nbdfuse";

/// Debian package of [`NBDFUSE`], for messages.
const PACKAGE: &str = "libnbd-bin";

/// Number of connections to the array. nbdfuse's threads use any of them.
const CONNECTIONS: &str = "16";

/// Time for nbdfuse to end after it was asked to.
const TIDY: Duration = Duration::from_secs(5);

/// Time for the file to appear. It appears at once, except on a busy machine.
const WITHIN: Duration = Duration::from_secs(20);

/// An export mounted as a file. Dropping this unmounts it.
#[derive(Debug)]
pub(crate) struct ExportFile {
    /// Always present, except while this is dropped.
    server: Option<Process>,
    dir: TempDir,
}

impl ExportFile {
    /// Mounts an export of the server at a unix socket as a file.
    ///
    /// # Errors
    /// nbdfuse, FUSE or the export is missing, or the server does not answer.
    pub(crate) fn mount(socket: &Path, export: &str) -> Result<ExportFile, GuestError> {
        let wrong = |what: String| GuestError::Helper { program: NBDFUSE, package: PACKAGE, what };
        let dir = tempfile::Builder::new().prefix("parda-export-").tempdir();
        let dir = dir.map_err(|e| wrong(e.to_string()))?;
        let mut export_file = ExportFile { server: None, dir };
        std::fs::create_dir(export_file.mountpoint()).map_err(|e| wrong(e.to_string()))?;
        // A killed nbdfuse would leave the mount behind, so it is asked to end, also when this program dies.
        let mut nbdfuse = Command::new("setpriv");
        nbdfuse.args(["--pdeathsig", "TERM", NBDFUSE, "-C", CONNECTIONS]).arg(export_file.path());
        nbdfuse.arg(export_uri(socket, export));
        let log = export_file.dir.path().join("log");
        let server = Process::start(format!("{NBDFUSE} of {export}"), log, nbdfuse);
        let server = export_file.server.insert(server.map_err(|e| wrong(e.to_string()))?);
        let path = export_file.dir.path().join(MOUNTPOINT).join(FILE);
        match look_until(Instant::now() + WITHIN, server, || path.exists().then_some(())) {
            Ok(()) => Ok(export_file),
            Err(what) => {
                let says = server.last_words();
                Err(wrong(format!("{export} {what}. It last said:\n{says}")))
            }
        }
    }

    /// Path of the mounted file.
    #[must_use]
    pub(crate) fn path(&self) -> PathBuf {
        self.mountpoint().join(FILE)
    }

    fn mountpoint(&self) -> PathBuf {
        self.dir.path().join(MOUNTPOINT)
    }
}

const MOUNTPOINT: &str = "export";
const FILE: &str = "disk";

impl Drop for ExportFile {
    fn drop(&mut self) {
        // nbdfuse unmounts when asked to end, whether or not the file is open.
        if let Some(server) = &mut self.server {
            server.signal(Signal::TERM);
            let deadline = Instant::now() + TIDY;
            while server.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.server = None;
        // An nbdfuse that died before left the mount. An error means that nothing is mounted.
        let _ = unmount(self.mountpoint(), UnmountFlags::DETACH);
    }
}
