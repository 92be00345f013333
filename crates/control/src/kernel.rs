//! A host at a volume whose queue and gate are the kernel's: the law, the meter that feeds it, and the times at which
//! the kernel's queue gets another depth.
//!
//! What carries a depth to a queue and measures what completes is the driver's: the agent with a device, the simulator
//! with its model of one. The driver calls [`KernelHost::tick`] once per period, sets [`KernelHost::depth`] after it,
//! and again whenever [`KernelHost::next_change`] has come.

use crate::cluster::{Report, View};
use crate::config::{Config, ConfigError};
use crate::depth::{DepthBounds, DepthSchedule};
use crate::governor::{Governor, Measured, VmDemand};
use crate::latency::{Direction, Meter};
use crate::units::{Bytes, Instant, Span, Window};

/// Means over a period of what a kernel's queue did, and the demand of each VM.
#[derive(Clone, Copy, Debug)]
pub struct QueueMeans<'a> {
    /// Length of the period.
    pub elapsed: Span,
    /// Mean of the IOs outstanding.
    pub outstanding: f64,
    /// Demand of each VM.
    pub vms: &'a [VmDemand],
}

/// State machine of such a host.
#[derive(Debug)]
pub struct KernelHost {
    governor: Governor,
    meter: Meter,
    schedule: DepthSchedule,
    /// Whether IOs were outstanding in the last period. The depth of an unused queue is left as it is.
    in_use: bool,
}

impl KernelHost {
    /// A host that has not measured anything yet. Fails if the parameters cannot work.
    pub fn new(config: Config, period: Span) -> Result<KernelHost, ConfigError> {
        let meter = Meter::new(config.size_model, config.reference_size);
        let mut governor = Governor::new(config)?;
        governor.count_ios();
        Ok(KernelHost { governor, meter, schedule: DepthSchedule::new(period), in_use: false })
    }

    /// Changes parameters and period. The depth follows with the next tick. Latencies of the present period are
    /// dropped if their size model has changed.
    pub fn set_config(&mut self, config: Config, period: Span) -> Result<(), ConfigError> {
        let (model, reference) = (config.size_model, config.reference_size);
        self.governor.set_config(config)?;
        self.meter.scale(model, reference);
        self.schedule.set_period(period);
        Ok(())
    }

    /// The law, for what it knows.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Lowers the window to a depth that the kernel has set by itself, as the array reported that it is full.
    pub fn lowered(&mut self, depth: u32) {
        self.governor.lower_to(Window(f64::from(depth)));
    }

    /// Records `ios` completed IOs of about one size, by their sums of bytes and latencies.
    pub fn record(&mut self, direction: Direction, ios: u64, bytes: Bytes, latency: Span) {
        self.meter.add_many(direction, ios, bytes, latency);
    }

    /// Ends a period: finds the new window, and returns the report to publish.
    pub fn tick(&mut self, means: QueueMeans<'_>, view: View) -> Report {
        let QueueMeans { elapsed, outstanding, vms } = means;
        let interval = self.meter.roll();
        let report = self
            .governor
            .tick(Measured { elapsed, interval, outstanding, vms, reserved: 0.0 }, view);
        self.meter.learn(self.governor.lines());
        self.in_use = outstanding > 0.0;
        report
    }

    /// Whether the law sets depths. Else the queue has the depth that it has without parda.
    #[must_use]
    pub fn sets_depths(&self) -> bool {
        self.governor.window().0.is_finite()
    }

    /// The depth to set now, of those that the queue can have, or `None` if the law sets none. Plans the next change.
    pub fn depth(&mut self, now: Instant, bounds: DepthBounds) -> Option<u32> {
        let sets = self.sets_depths();
        self.schedule.changed(now, sets && bounds.cheap && self.in_use);
        sets.then(|| self.schedule.depth(self.governor.window(), bounds))
    }

    /// No depth is set until the next tick, as there is no queue to set it at.
    pub fn pause(&mut self, now: Instant) {
        self.schedule.changed(now, false);
    }

    /// Time at which the depth is to change before the next tick.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Whether the depth is to change.
    #[must_use]
    pub fn change_is_due(&self, now: Instant) -> bool {
        self.schedule.is_due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Totals;
    use crate::law::{LawConfig, Mode};
    use crate::size::SizeModel;

    const SECOND: Span = Span::from_millis(1000);
    const BOUNDS: DepthBounds = DepthBounds { least: 1, most: 64, cheap: true };

    fn config(mode: Mode) -> Config {
        let law = LawConfig { mode, window_max: Window(4.5), ..LawConfig::default() };
        Config { law, ..Config::default() }
    }

    fn ticked(mode: Mode, outstanding: f64, bounds: DepthBounds) -> KernelHost {
        let mut host = KernelHost::new(config(mode), SECOND).unwrap();
        let means = QueueMeans { elapsed: SECOND, outstanding, vms: &[] };
        host.tick(means, View::Peers(Totals::default()));
        host.depth(Instant(0), bounds);
        host
    }

    #[test]
    fn a_depth_changes_within_a_period_where_it_is_cheap_used_and_set() {
        let next = |mode, outstanding, bounds| ticked(mode, outstanding, bounds).next_change();
        let slice = Instant(0) + Span::from_millis(50);
        assert_eq!(next(Mode::Static, 3.0, BOUNDS), Some(slice));
        assert_eq!(next(Mode::Static, 0.0, BOUNDS), None, "nobody uses it");
        assert_eq!(next(Mode::Static, 3.0, DepthBounds { cheap: false, ..BOUNDS }), None);
        for mode in [Mode::Off, Mode::Observe] {
            assert_eq!(next(mode, 3.0, BOUNDS), None);
            assert!(!ticked(mode, 3.0, BOUNDS).sets_depths());
        }
    }

    #[test]
    fn the_mean_depth_of_a_period_is_the_window() {
        let mut host = ticked(Mode::Static, 3.0, BOUNDS);
        let (mut sum, mut changes) = (0, 0);
        while let Some(now) = host.next_change().filter(|now| *now <= Instant(0) + SECOND) {
            assert!(host.change_is_due(now));
            sum += host.depth(now, BOUNDS).unwrap();
            changes += 1;
        }
        assert_eq!((changes, sum), (20, 90), "20 slices of 4.5 IOs");
        host.pause(Instant(0));
        assert_eq!(host.next_change(), None, "there is no queue");
    }

    #[test]
    fn another_size_model_begins_a_new_interval_and_the_same_one_does_not() {
        let ios = |size_model| {
            let mut host = ticked(Mode::Static, 3.0, BOUNDS);
            host.record(Direction::Read, 7, Bytes::kib(28), Span::from_millis(70));
            host.set_config(Config { size_model, ..config(Mode::Static) }, SECOND).unwrap();
            let means = QueueMeans { elapsed: SECOND, outstanding: 3.0, vms: &[] };
            host.tick(means, View::Silent).interval.reads.ios
        };
        let usual = Config::default().size_model;
        let other = if usual == SizeModel::Off { SizeModel::Learned } else { SizeModel::Off };
        assert_eq!((ios(usual), ios(other)), (7, 0));
    }
}
