//! An NBD export as a file, made by nbdfuse: a file system that is slow or fails when told to.

use std::path::PathBuf;
use std::process::Command;

use parda_testkit::disk::listens;
use rustix::process::Signal;

use crate::stage::{Process, Stage, until};

/// A file that is an export of nbdkit; unmounted when dropped.
pub(crate) struct FuseFile {
    path: PathBuf,
    // Dropped, and so killed, in this order.
    nbdfuse: Process,
    nbdkit: Process,
}

impl FuseFile {
    /// Makes the file `name` of what nbdkit serves when it is started with these arguments.
    pub(crate) fn new(stage: &Stage, name: &str, nbdkit: &[&str]) -> FuseFile {
        let socket = format!("{name}.sock");
        let server = [&["nbdkit", "-f", "-U", &socket, "--threads=16"], nbdkit].concat();
        let server = stage.start(&format!("{name}.nbdkit"), &server);
        until("nbdkit listens", || listens(&stage.path(&socket)));
        stage.sparse(name, 0);
        let uri = format!("nbd+unix:///?socket={}", stage.path(&socket).display());
        let path = stage.path(name);
        let file = path.display().to_string();
        let line = ["nbdfuse", "-C", "8", &file, &uri];
        let fuse = stage.start(&format!("{name}.nbdfuse"), &line);
        until("nbdfuse has the file", || path.metadata().is_ok_and(|m| m.len() > 0));
        FuseFile { path, nbdfuse: fuse, nbdkit: server }
    }

    /// What the file's content comes from.
    pub(crate) fn server(&self) -> &Process {
        &self.nbdkit
    }

    /// The file system: no call to the file is answered by another.
    pub(crate) fn file_system(&self) -> &Process {
        &self.nbdfuse
    }
}

/// A server that answers nothing, and goes on when this is dropped.
pub(crate) struct Halted<'a>(&'a Process);

impl Halted<'_> {
    pub(crate) fn new(server: &Process) -> Halted<'_> {
        server.signal(Signal::STOP);
        Halted(server)
    }
}

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        // Before its server is gone: a mount of nobody cannot even be looked at.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
