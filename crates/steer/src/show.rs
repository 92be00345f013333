//! Description of a device's queues, for people who want to inspect them before steering.

use std::path::PathBuf;

use crate::device::{Device, Queue};
use crate::journal::Original;
use crate::knob::{DepthMethod, Knob};
use crate::multipath::{PathState, states};
use crate::steering::SteerError;

/// One queue of a device, in its current state.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct QueueSettings {
    /// Kernel name of the disk.
    pub name: String,
    /// Kind of the disk: `SCSI (lpfc)`, `blk-mq (nvme)`.
    pub kind: String,
    /// State of the path; always active if there is only one.
    pub state: PathState,
    /// Knob that would be set.
    #[serde(skip)]
    pub method: DepthMethod,
    /// File that would be written.
    pub file: PathBuf,
    /// Current value of the file.
    pub now: u32,
    /// Largest number of outstanding IOs that the value admits.
    pub depth: u32,
    /// Number of hardware queues.
    pub hardware_queues: u32,
    /// Least bound on outstanding IOs that can be set.
    pub least: u32,
    /// Largest bound on outstanding IOs that can be set.
    pub most: u32,
    /// The elevator in force.
    pub scheduler: String,
}

/// Describes each queue of a device. Nothing is written or held. `originals` has the journal's
/// entries, if the device is steered.
pub fn show(
    device: &Device,
    method: Option<DepthMethod>,
    originals: &[Original],
) -> Result<Vec<QueueSettings>, SteerError> {
    let states = states(device, &device.queues);
    let each = device.queues.iter().zip(states);
    each.map(|(queue, state)| one(queue, state, method, originals)).collect()
}

fn one(
    queue: &Queue,
    state: PathState,
    method: Option<DepthMethod>,
    originals: &[Original],
) -> Result<QueueSettings, SteerError> {
    let method = queue.method(method)?;
    let mut knob = Knob::new(queue.clone(), method)?;
    knob.remember(originals);
    let (least, most) = knob.bounds();
    Ok(QueueSettings {
        name: queue.name.clone(),
        kind: queue.describe(),
        state,
        method,
        file: knob.file().to_owned(),
        now: knob.now(),
        depth: knob.in_force(),
        hardware_queues: queue.hardware_queues(),
        least,
        most,
        scheduler: knob.scheduler().to_owned(),
    })
}
