//! The device of a steered volume, as long as it is there: its meter, and its queue's depth.

use std::path::Path;
use std::time::Duration;

use parda_control::depth::Depth;
use parda_control::law::Mode;
use parda_control::{ConfigError, Window};
use parda_steer::cgroup::ShareError;
use parda_steer::device::Device;
use parda_steer::journal::Journal;
use parda_steer::measure::{self, Measure, MeasureError, Reading};
use parda_steer::refusal::Refusal;
use parda_steer::steering::{self, Bounds, Checked, InForce, Steering, SteeringEvent};

use crate::config::Steer;

/// How often in a period a depth changes that may change that often.
const SLICES: u32 = 20;
/// Not oftener than this: the kernel's own queues take a few IOs to follow.
const SHORTEST_SLICE: Duration = Duration::from_millis(20);

/// A queue that on average holds this part of what it can is full.
const FULL: f64 = 0.9;

/// Reason why a device is not steered.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// It is none that can be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Its queue cannot be set, or not any more.
    #[error(transparent)]
    Set(#[from] steering::SteerError),
    /// Its VMs cannot be held to their shares.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The law's parameters cannot work.
    #[error(transparent)]
    Control(#[from] ConfigError),
}

/// A device that is there.
pub(super) struct Live {
    device: Device,
    meter: Box<dyn Measure>,
    asked: Steer,
    /// None while nothing is to be set.
    steering: Option<Steering>,
    depth: Depth,
    /// How often the kernel lowered the depth by itself.
    drops: u64,
}

/// Result of a look at the device.
pub(super) struct Look {
    pub(super) reading: Reading,
    /// Whether the queue was full, where what waits for a place in it cannot be seen: requests are
    /// only made once there is one, and a program that waits to submit shows one IO, not all it has.
    pub(super) full: bool,
}

/// Whether a law sets anything.
fn sets(mode: Mode) -> bool {
    !matches!(mode, Mode::Off | Mode::Observe)
}

impl Live {
    pub(super) fn start(volume: &str, asked: &Steer, mode: Mode) -> Result<Live, SteerError> {
        let device = Device::resolve(Path::new("/"), &asked.device)?;
        let meter = measure::open(&device.watched(), asked.measure)?;
        if let Some(why) = meter.because() {
            tracing::warn!(volume, "measured by Little's law: {why}");
        }
        let (depth, steering) = (Depth::default(), None);
        let mut live = Live { device, meter, asked: asked.clone(), steering, depth, drops: 0 };
        if sets(mode) {
            live.take()?;
        }
        tracing::info!(
            volume, device = %asked.device.display(), steered = live.device.name,
            least = live.bounds().map(|b| b.least), most = live.bounds().map(|b| b.most), "steering"
        );
        Ok(live)
    }

    fn take(&mut self) -> Result<&mut Steering, SteerError> {
        let steering = match self.steering.take() {
            Some(steering) => steering,
            None => Steering::take(&self.device, self.asked.method, &Journal::at(Journal::PLACE))?,
        };
        Ok(self.steering.insert(steering))
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn bounds(&self) -> Option<Bounds> {
        self.steering.as_ref().map(Steering::bounds)
    }

    pub(super) fn in_force(&self) -> Option<InForce> {
        self.steering.as_ref().map(Steering::in_force)
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    pub(super) fn why_not_ebpf(&self) -> Option<&str> {
        self.meter.because()
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

    /// The same between two ticks: of what is set alone, not of the paths.
    pub(super) fn check_knobs(&mut self, volume: &str) -> Result<Option<u32>, SteerError> {
        let Some(steering) = &mut self.steering else { return Ok(None) };
        let checked = steering.check_knobs()?;
        Ok(self.lowered(volume, &checked))
    }

    /// Says what was found. Answers as [`Live::check`].
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

    /// Sets the next depth that a window asks for.
    pub(super) fn set(&mut self, mode: Mode, window: Window) -> Result<(), SteerError> {
        if !sets(mode) {
            if let Some(steering) = self.steering.take() {
                steering.release()?;
            }
            return Ok(());
        }
        let steering = self.take()?;
        let Bounds { least, most, .. } = steering.bounds();
        let in_force = steering.in_force().depth;
        let next = self.depth.next(window, least, most);
        if next != in_force
            && let Some(steering) = &mut self.steering
        {
            steering.set(next)?;
        }
        Ok(())
    }

    /// How long a depth stands, where it may change several times in a period.
    pub(super) fn slice(&self, period: Duration) -> Option<Duration> {
        self.bounds().filter(|b| b.cheap).map(|_| (period / SLICES).max(SHORTEST_SLICE))
    }

    /// Whether a window is smaller than what the queue can be held to.
    pub(super) fn cannot_hold(&self, mode: Mode, window: Window) -> bool {
        self.bounds().is_some_and(|b| sets(mode) && window.0 < f64::from(b.least))
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
