//! The device of a steered volume while it is there: its meter, and the depth of its queue.

use std::error::Error;
use std::path::Path;

use parda_control::depth::DepthSchedule;
use parda_control::{Account, DepthBounds, Instant, Window};
use parda_steer::device::Device;
use parda_steer::journal::Journal;
use parda_steer::measure::{self, DeviceReading, Measure};
use parda_steer::steering::{BoundsInForce, Checked, Steering, SteeringEvent};

use crate::config::Steer;

/// Part of its depth from which on a queue counts as full, on average.
const FULL: f64 = 0.9;

/// Reason why a device is not steered. One of a kind that cannot be steered is a [`Refusal`](parda_steer::refusal::SteerRefusal).
pub(crate) type SteerError = Box<dyn Error + Send + Sync>;

/// A device that is there, with its meter and its steering.
pub(super) struct Attached {
    pub(super) device: Device,
    pub(super) meter: Box<dyn Measure>,
    asked: Steer,
    /// `None` while no depth is to be set.
    steering: Option<Steering>,
    /// Number of times that the kernel lowered the depth by itself.
    pub(super) drops: u64,
}

/// Result of a look at the device.
pub(super) struct Look {
    pub(super) reading: DeviceReading,
    /// Whether the queue was full, where the IOs that wait for a place cannot be seen. Requests are only made once there is a place. A
    /// program that waits to submit shows one IO, not all its IOs.
    pub(super) full: bool,
}

impl Attached {
    /// Begins to measure the device. Takes hold of its queue if depths are to be set.
    pub(super) fn start(volume: &str, asked: &Steer, sets: bool) -> Result<Attached, SteerError> {
        let device = Device::resolve(Path::new("/"), &asked.device)?;
        // Also if no depth is to be set any more, or no VM has a cgroup.
        match Journal::at(Journal::PLACE).restore_device(&device.name) {
            Ok(back) => back.iter().for_each(|original| {
                let (file, value) = (original.file.display(), &original.value);
                tracing::info!(volume, "left by an agent that died: {file} is {value} again");
            }),
            Err(error) => {
                tracing::warn!(volume, "{error}; parda steer restore puts back what was set before")
            }
        }
        let meter = measure::open(&device.watched(), asked.measure)?;
        if let Some(why) = meter.because() {
            tracing::warn!(volume, "measured by Little's law: {why}");
        }
        let mut attached =
            Attached { device, meter, asked: asked.clone(), steering: None, drops: 0 };
        if sets {
            attached.take()?;
        }
        tracing::info!(
            volume, device = %asked.device.display(), steered = attached.device.name,
            least = attached.bounds().map(|b| b.least), most = attached.bounds().map(|b| b.most), "steering"
        );
        Ok(attached)
    }

    fn take(&mut self) -> Result<&mut Steering, SteerError> {
        let steering = match self.steering.take() {
            Some(steering) => steering,
            None => Steering::take(&self.device, self.asked.method, &Journal::at(Journal::PLACE))?,
        };
        Ok(self.steering.insert(steering))
    }

    pub(super) fn bounds(&self) -> Option<DepthBounds> {
        self.steering.as_ref().map(Steering::bounds)
    }

    pub(super) fn in_force(&self) -> Option<BoundsInForce> {
        self.steering.as_ref().map(Steering::in_force)
    }

    /// Looks whether all is as it was left. Answers with the depth to which the kernel lowered it by
    /// itself, if it did.
    pub(super) fn check(&mut self, volume: &str) -> Result<Option<u32>, SteerError> {
        let Some(steering) = &mut self.steering else { return Ok(None) };
        let checked = steering.check()?;
        let moved = |e: &SteeringEvent| {
            matches!(e, SteeringEvent::Added { .. } | SteeringEvent::Removed { .. })
        };
        if checked.events.iter().any(moved) {
            self.device = Device::resolve(Path::new("/"), &self.asked.device)?;
            self.meter.watch(&self.device.watched())?;
        }
        Ok(self.lowered(volume, &checked))
    }

    /// The same check between two ticks: of the settings alone, not of the paths.
    pub(super) fn check_knobs(&mut self, volume: &str) -> Result<Option<u32>, SteerError> {
        let Some(steering) = &mut self.steering else { return Ok(None) };
        let checked = steering.check_knobs()?;
        Ok(self.lowered(volume, &checked))
    }

    /// Logs the findings. Returns the same as [`Attached::check`].
    fn lowered(&mut self, volume: &str, checked: &Checked) -> Option<u32> {
        for event in &checked.events {
            tracing::warn!(volume, "{event}");
        }
        self.drops += u64::from(checked.dropped());
        checked.dropped().then_some(checked.in_force.depth)
    }

    /// Measurements since the last look.
    pub(super) fn look(&mut self) -> Result<Look, SteerError> {
        let reading = self.meter.read()?;
        let full = self.steering.as_ref().is_some_and(|steering| {
            let depth = f64::from(steering.in_force().depth);
            !steering.bounds().cheap && reading.outstanding >= FULL * depth
        });
        Ok(Look { reading, full })
    }

    /// Sets the next depth of the law; without one, restores the depth from before.
    pub(super) fn set(
        &mut self,
        now: Instant,
        schedule: &mut DepthSchedule,
        account: &Account,
    ) -> Result<(), SteerError> {
        let decision = account.decision();
        if !decision.has_window() {
            schedule.changed(now, false);
            if let Some(steering) = self.steering.take() {
                steering.release()?;
            }
            return Ok(());
        }
        let steering = self.take()?;
        let in_force = steering.in_force().depth;
        match schedule.turn(now, decision.window, steering.bounds(), account.in_use()) {
            Some(next) if next != in_force => Ok(steering.set(next).map(|_| ())?),
            _ => Ok(()),
        }
    }

    /// Whether a window is smaller than the least depth that the queue can have.
    pub(super) fn cannot_hold(&self, window: Window) -> bool {
        self.bounds().is_some_and(|bounds| window.0 < f64::from(bounds.least))
    }

    pub(super) fn stop(self, volume: &str) {
        let Some(steering) = self.steering else { return };
        match steering.release() {
            Ok(_) => tracing::info!(volume, "what was set before is set again"),
            Err(error) => tracing::error!(
                volume,
                "{error}; parda steer restore puts back what was set before"
            ),
        }
    }
}
