//! Options of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::dashboards::Dashboards;
use crate::guest::Boot;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// The program of agents, started as `parda serve`.
    pub parda: PathBuf,
    /// The program of arrays, started as `parda-lab array`.
    pub parda_lab: PathBuf,
    /// The program of agents until their host is started again, for upgrades: another version of `parda`.
    pub before: Option<PathBuf>,
    /// The scenario file, for `parda-lab array`.
    pub scenario: PathBuf,
    /// The variant to run, for `parda-lab array`.
    pub variant: Option<String>,
    /// Whether to keep the directory with configurations and logs even if every expectation holds.
    pub keep_logs: bool,
    /// Dashboards of the hosts, in a run that goes on after its timeline until the interrupt.
    pub live: Option<Dashboards>,
    /// Boot parameters for hosts of `kind = "guest"`. `None`: scenarios with such hosts are refused.
    pub guests: Option<Boot>,
    /// Flag that stops the run, set on Ctrl-C.
    pub interrupt: Arc<AtomicBool>,
}
