//! An iSCSI target whose only LUN is a file: a private tgtd on the loopback interface.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::error::GuestError;
use super::wait::look_until;
use parda_lab::process::Process;

/// The server, and the program that configures it.
const TGTD: &str = "tgtd";
const TGTADM: &str = "tgtadm";

/// Debian package of both, for messages.
const PACKAGE: &str = "tgt";

/// Number of the server among several. Each server has a socket of its own here, so any number
/// serves.
const CONTROL_PORT: &str = "1";

/// Environment variable with the path of the server's socket, without the number.
const SOCKET: &str = "TGT_IPC_SOCKET";

/// Name of the target.
pub(super) const TARGET: &str = "iqn.2009-02.lab.parda:array";

/// Time for the server to listen. It listens at once, except on a busy machine.
const WITHIN: Duration = Duration::from_secs(20);

/// A running target. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct IscsiTarget {
    process: Process,
    port: u16,
    dir: TempDir,
}

impl IscsiTarget {
    /// Serves a file, opened with O_DIRECT, as a LUN with this serial number.
    ///
    /// # Errors
    /// tgt is missing, does not start, or refuses the file.
    pub(crate) fn serve(file: &Path, serial: &str) -> Result<IscsiTarget, GuestError> {
        let failed = |e: io::Error| wrong(e.to_string());
        let dir = tempfile::Builder::new().prefix("parda-iscsi-").tempdir().map_err(failed)?;
        let port = free_port().map_err(failed)?;
        let mut tgtd = command(TGTD, dir.path());
        // In the foreground, the server ends with the laboratory.
        tgtd.args(["-f", "-C", CONTROL_PORT, "--iscsi"]).arg(format!("portal=127.0.0.1:{port}"));
        let process = Process::start(TGTD.to_owned(), dir.path().join("log"), tgtd);
        let mut target = IscsiTarget { process: process.map_err(failed)?, port, dir };
        let socket = target.dir.path().join(format!("control.{CONTROL_PORT}"));
        let is_there = || socket.exists().then_some(());
        if let Err(what) = look_until(Instant::now() + WITHIN, &mut target.process, is_there) {
            return Err(wrong(format!("{what}. It last said:\n{}", target.process.last_words())));
        }
        let file = file.to_string_lossy();
        target.tell(&["target", "--op", "new", "--targetname", TARGET])?;
        let lun = ["--lun", "1", "-b", &file, "-E", "rdwr", "--bsoflags", "direct"];
        target.tell(&[&["logicalunit", "--op", "new"], lun.as_slice()].concat())?;
        let number = format!("scsi_sn={serial}");
        target.tell(&["logicalunit", "--op", "update", "--lun", "1", "--params", &number])?;
        target.tell(&["target", "--op", "bind", "-I", "ALL"])?;
        Ok(target)
    }

    /// Port of the target on the loopback interface.
    #[must_use]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn tell(&self, what: &[&str]) -> Result<(), GuestError> {
        let mut tgtadm = command(TGTADM, self.dir.path());
        tgtadm.args(["-C", CONTROL_PORT, "--lld", "iscsi", "--tid", "1", "--mode"]).args(what);
        let output = tgtadm.output().map_err(|e| wrong(e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(wrong(format!("tgtadm {}: {}", what.join(" "), says.trim())))
    }
}

/// A command of tgt that uses the socket in this directory.
fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path).env(SOCKET, socket(dir));
    command
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("control")
}

fn wrong(what: String) -> GuestError {
    GuestError::Helper { program: TGTD, package: PACKAGE, what }
}

/// A port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
