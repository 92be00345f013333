//! Arguments that several subcommands of `parda steer` have.

use std::path::PathBuf;

use clap::Args;
use parda_steer::knob::DepthMethod;
use parda_steer::steering::SteerError;
use parda_steer::{Device, Journal};
use parda_terminal::Failure;

/// A block device, as it is named on the command line.
#[derive(Args)]
pub(crate) struct DeviceArg {
    /// A block device: a disk, a partition, a logical volume, a multipath device
    #[arg(value_name = "DEVICE")]
    pub(super) device: PathBuf,
}

impl DeviceArg {
    /// Device that the path leads to.
    pub(crate) fn resolve(&self) -> Result<Device, Failure> {
        Device::resolve("/".as_ref(), &self.device).map_err(|e| Failure::usage(e.to_string()))
    }
}

/// Directory of the journal of earlier settings.
#[derive(Args)]
pub(crate) struct StateArg {
    /// Directory of the journal of earlier settings
    #[arg(long, value_name = "DIR", default_value = Journal::PLACE)]
    state: PathBuf,
}

impl StateArg {
    pub(crate) fn journal(&self) -> Journal {
        Journal::at(&self.state)
    }
}

/// Options that say how a queue is steered.
#[derive(Args)]
pub(crate) struct MethodArg {
    /// The kernel's setting that bounds the queue: auto, queue_depth (SCSI), nr_requests
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = method)]
    method: Choice,
}

impl MethodArg {
    pub(crate) fn get(&self) -> Option<DepthMethod> {
        self.method.0
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Choice(Option<DepthMethod>);

fn method(name: &str) -> Result<Choice, &'static str> {
    if name == "auto" {
        return Ok(Choice(None));
    }
    let method = name.parse().map_err(|_| "must be queue_depth, nr_requests or auto")?;
    Ok(Choice(Some(method)))
}

/// Failure for an error of steering. A device of a wrong kind and a depth out of range are usage errors.
pub(super) fn steer_failed(error: SteerError) -> Failure {
    match error {
        SteerError::Refused(_) | SteerError::Depth { .. } => Failure::usage(error.to_string()),
        error => Failure::new(error.to_string()),
    }
}
