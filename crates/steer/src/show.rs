//! What a device's queues are like, for people who want to know before they steer them.

use std::path::PathBuf;

use crate::device::{Device, Queue};
use crate::journal::Original;
use crate::knob::{Knob, Method};
use crate::multipath::{PathState, states};
use crate::steering::SteerError;

/// One queue of a device, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// As the kernel calls it.
    pub name: String,
    /// What it is: `SCSI (lpfc)`, `blk-mq (nvme)`.
    pub kind: String,
    /// Whether it carries IOs; always so where there is one path only.
    pub state: PathState,
    /// What would be set on it.
    pub method: Method,
    /// The file that would be written.
    pub file: PathBuf,
    /// What it holds.
    pub now: u32,
    /// Most IOs in flight that this lets through.
    pub depth: u32,
    /// How many hardware queues it has.
    pub hardware_queues: u32,
    /// The least IOs in flight that it could be held to.
    pub least: u32,
    /// The most.
    pub most: u32,
    /// The elevator in force.
    pub scheduler: String,
}

/// Looks at each queue of a device. Nothing is written or held. `originals`: what the journal has
/// of it, if it is steered.
pub fn show(
    device: &Device,
    method: Option<Method>,
    originals: &[Original],
) -> Result<Vec<Shown>, SteerError> {
    let states = states(device, &device.queues);
    let each = device.queues.iter().zip(states);
    each.map(|(queue, state)| one(queue, state, method, originals)).collect()
}

fn one(
    queue: &Queue,
    state: PathState,
    method: Option<Method>,
    originals: &[Original],
) -> Result<Shown, SteerError> {
    let method = queue.method(method)?;
    let mut knob = Knob::new(queue.clone(), method)?;
    knob.remember(originals);
    let (least, most) = knob.bounds();
    Ok(Shown {
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
