//! Directory of a run.

use std::path::{Path, PathBuf};

use parda_scenario::HostIndex;

/// Directory of a run, with its sockets and logs.
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// A run in this directory.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> RunDir {
        RunDir(dir.into())
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Socket of the array's NBD server.
    #[must_use]
    pub fn array(&self) -> PathBuf {
        self.0.join("array.sock")
    }

    /// Socket at which a host serves the disks of its VMs. Its name has the host's number, as a
    /// socket's path must be short.
    #[must_use]
    pub fn disks(&self, host: HostIndex) -> PathBuf {
        self.0.join(format!("h{}.sock", host.0))
    }

    /// Socket at which a host's agent reports its status.
    #[must_use]
    pub fn status(&self, host: HostIndex) -> PathBuf {
        self.0.join(format!("h{}.status", host.0))
    }

    /// Control socket of the array.
    #[must_use]
    pub fn array_control(&self) -> PathBuf {
        self.0.join("array.control")
    }

    /// Socket of the array with a side's copy of the exchange.
    #[must_use]
    pub fn side(&self, side: usize) -> PathBuf {
        self.0.join(format!("side{side}.sock"))
    }

    /// Socket of a host's relay to the exchange, which can be cut.
    #[must_use]
    pub fn exchange(&self, host: HostIndex) -> PathBuf {
        self.0.join(format!("h{}.exchange", host.0))
    }

    pub(crate) fn configuration(&self, host: HostIndex) -> PathBuf {
        self.0.join(format!("h{}.toml", host.0))
    }

    /// File of the tokens with which agents are changed.
    pub(crate) fn tokens(&self) -> PathBuf {
        self.0.join("tokens")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }
}
