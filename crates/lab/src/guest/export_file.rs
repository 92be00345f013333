//! An export of the array as a file, which FUSE makes of it: nbdfuse.
//!
//! QEMU's own NBD client (7.2) takes up replies one by one, but hands all that is outstanding to the
//! guest, and asks for more, in one go: of d IOs of a guest an array that does one at a time sees
//! (d + 1) / 2. Of what goes to this file it sees all, up to [`UNDER_WAY`].

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::{GuestError, look_until};
use crate::process::Process;

/// What makes the file.
const NBDFUSE: &str = "nbdfuse";

/// Its package, for people.
const PACKAGE: &str = "libnbd-bin";

/// Connections to the array; its threads take any of them.
const CONNECTIONS: &str = "16";

/// How many IOs are under way at the array at a time: as many as FUSE has threads. The others wait.
pub const UNDER_WAY: usize = 10;

/// The file is there at once; a machine with much else to do takes longer.
const WITHIN: Duration = Duration::from_secs(20);

/// An export that is a file. When this is dropped it is one no more.
#[derive(Debug)]
pub struct ExportFile {
    /// Always there, but while this is dropped.
    server: Option<Process>,
    dir: TempDir,
}

impl ExportFile {
    /// Makes a file of the export at a server's unix socket.
    ///
    /// # Errors
    /// There is no nbdfuse, no FUSE, no such export, or it does not answer.
    pub fn mount(socket: &Path, export: &str) -> Result<ExportFile, GuestError> {
        let wrong = |what: String| GuestError::Way { program: NBDFUSE, package: PACKAGE, what };
        let dir = tempfile::Builder::new().prefix("parda-export-").tempdir();
        let dir = dir.map_err(|e| wrong(e.to_string()))?;
        let mut export_file = ExportFile { server: None, dir };
        std::fs::create_dir(export_file.mountpoint()).map_err(|e| wrong(e.to_string()))?;
        let mut nbdfuse = Command::new(NBDFUSE);
        nbdfuse.args(["-C", CONNECTIONS]).arg(export_file.path());
        nbdfuse.arg(format!("nbd+unix:///{export}?socket={}", socket.display()));
        let log = export_file.dir.path().join("log");
        // Killed, it would leave the mount.
        let server = Process::start_tidy(format!("{NBDFUSE} of {export}"), log, nbdfuse);
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

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
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
        // Told to end it unmounts, who still has the file or not.
        self.server = None;
        // If it had died before, nobody did. An error means that it is not mounted.
        let _ = unmount(self.mountpoint(), UnmountFlags::DETACH);
    }
}
