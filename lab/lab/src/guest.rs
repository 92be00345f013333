//! Hosts with a kernel of their own. The product makes none: `lab/cli/tests/guests` does.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use parda_agent::file::File;
use parda_agent::status::{Status, VolumeStatus};
use parda_scenario::{HostIndex, Scenario, VmIndex};
use rustix::process::Signal;

use crate::meter::HostReading;
use crate::run_dir::RunDir;

/// Device in a guest of the LUN that its VMs open.
pub const DISK: &str = "/dev/lab/lun";

/// Reason why a guest failed, for people.
pub type GuestError = Box<dyn Error + Send + Sync>;

/// Boots the guests among these hosts, all at the same time. The array of the run directory answers by then.
pub type Boot = fn(
    &Scenario,
    &[HostIndex],
    &RunDir,
) -> Result<BTreeMap<HostIndex, Box<dyn GuestHost>>, GuestError>;

/// A host of a scenario that is a guest: its kernel, its agent and its VMs' clients. All errors say that one of them is gone.
#[expect(clippy::missing_errors_doc, reason = "said above for all")]
pub trait GuestHost: Debug {
    /// Writes the agent's configuration, with the guest's devices in place of served disks, without a signal to reload it.
    fn configure(&self, file: File) -> Result<(), GuestError>;
    /// Starts the agent with the configuration that was written last.
    fn start_agent(&mut self) -> Result<(), GuestError>;
    /// Sends the agent a signal.
    fn signal_agent(&self, signal: Signal) -> Result<(), GuestError>;
    /// Status of the agent. `None` if it does not answer.
    fn status(&self) -> Option<Status>;
    /// Reading of the host, whose agent has this status of its volume.
    fn reading(&self, volume: VolumeStatus) -> Result<HostReading, GuestError>;
    /// Starts a VM's client, a fio with these arguments, in the VM's cgroup.
    fn start_client(&mut self, id: VmIndex, arguments: &[String]) -> Result<(), GuestError>;
    /// Asks a VM's client to stop and waits for its outstanding IOs.
    fn stop_client(&mut self, id: VmIndex) -> Result<(), GuestError>;
    /// Sends a VM's client a signal.
    fn signal_client(&self, id: VmIndex, signal: Signal) -> Result<(), GuestError>;
    /// Checks that the guest, its agent and its clients live.
    fn check(&mut self) -> Result<(), GuestError>;
    /// Kills the guest as a power failure would.
    fn kill(&mut self);
    /// Boots the guest again.
    fn restart(&mut self) -> Result<(), GuestError>;
    /// Time that the guest ran, and time that it waited for a processor.
    fn ran_and_waited(&self) -> (Duration, Duration);
}
