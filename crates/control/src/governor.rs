//! One period of one host at one volume: from the host's measurements and the others' reports to its new
//! window and its own report.
//!
//! Only means over the period are known here, no IOs, queue or gate. [`Period`](crate::period::Period) has the one of a host.

mod demand;
mod threshold;

use crate::absent::Absent;
use crate::cluster::{Asked, Bounded, Governed, Load, Report, Source, Totals, Tuning, View};
use crate::config::{Config, ConfigError};
use crate::forecast::{Forecast, Outlook};
use crate::latency::{Average, Flows, Interval};
use crate::law::{Estimation, Input, Law, Mode, PerShare};
use crate::objective::{Effect, Wants};
use crate::outsider::{Detector, LoadsSeen, OutsiderPolicy, needed};
use crate::rate::Weight;
use crate::reservation::Room;
use crate::settings::{Ballot, Settings};
use crate::size::{Fit, Line, SizeModel};
use crate::threshold::{Auto, Estimate, Learner};
use crate::units::{Shares, Span, Window};

pub use self::demand::VmDemand;
pub(crate) use self::demand::reweighed;
use self::demand::{all_shares, bounded, saturated, used_shares};

/// Rounds in a row that may fail before the others count as silent: a peer is given as many.
pub const SILENT: u32 = 2;

/// Periods after which what absent hosts asked for on behalf of their VMs is forgotten.
const ASKED: u32 = 5;

/// What a host measured in a period.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Length of the period.
    pub elapsed: Span,
    /// Completed IOs and their latencies at the array.
    pub interval: Interval,
    /// Mean outstanding slots at the array.
    pub outstanding: f64,
    /// Demand of each of the host's VMs.
    pub vms: &'a [VmDemand],
    /// What VMs with a reservation would have outstanding if nothing were short, in slots.
    pub reserved: f64,
}

/// The law of one host at one volume, with what it remembers from period to period.
#[derive(Debug)]
pub struct Governor {
    config: Config,
    /// Values in force of the settings that all hosts must have alike.
    settings: Settings,
    /// Votes of the others when they were last heard.
    others: Ballot,
    /// Whether slots are IOs whatever the votes say, as the host's queue can count nothing else.
    counts_ios: bool,
    /// Thresholds that the others asked for then on behalf of VMs with a latency objective, and that this host asks for.
    asked: Asked,
    wants: Wants,
    /// Effect of objectives on the threshold.
    effect: Effect,
    /// The volume's own threshold.
    own: Span,
    average: Average,
    /// How the latency of reads and of writes depends on their size, by all that is heard.
    sizes: [Fit; 2],
    law: Law,
    /// Sum of the shares of its VMs, as of the last period.
    shares: Shares,
    /// The window per share that VMs' slices are measured by, as of the last period.
    window_per_share: f64,
    /// How much more than its shares the host weighs, where shares are of throughput.
    weight: Weight,
    /// Hosts that fell silent.
    absent: Absent,
    /// Source of the latency of the last period.
    source: Source,
    /// Last contents of the exchange, and the rounds of silence since.
    last: Option<(Totals, u32)>,
    /// Whether the exchange was ever heard, and the cluster since the law acts as it does.
    heard: bool,
    joined: bool,
    /// Part of all reservations that the cluster can do.
    reserves: f64,
    /// Slots that an IO takes, on average over some periods.
    unit: f64,
    /// What this host, and all that are heard, completed in the last period.
    flows: [Flows; 2],
    /// Periods left in which reports are counted in mixed units.
    mixed: u32,
    outlook: Outlook,
    /// Finds the threshold, where no operator says it.
    learner: Option<Learner>,
    /// Looks for load that is not under control.
    detector: Detector,
}

impl Governor {
    /// A law that has seen nothing.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn new(config: Config) -> Result<Governor, ConfigError> {
        config.validate()?;
        let learner = config.auto.map(|auto| learner(auto, config.law.threshold));
        let mut law = Law::new(config.law.clone());
        if let Some(learner) = &learner {
            law.set_threshold(learner.threshold());
        }
        Ok(Governor {
            average: Average::new(config.law.alpha),
            sizes: Default::default(),
            law,
            learner,
            shares: Shares(0),
            window_per_share: f64::INFINITY,
            weight: Weight::default(),
            absent: Absent::default(),
            source: Source::Local,
            last: None,
            heard: false,
            joined: false,
            reserves: 1.0,
            unit: 1.0,
            flows: Default::default(),
            mixed: 0,
            outlook: Outlook::default(),
            settings: config.settings(),
            others: Ballot::default(),
            counts_ios: false,
            asked: Asked::default(),
            wants: Wants::default(),
            effect: Effect::default(),
            own: config.law.threshold,
            detector: Detector::default(),
            config,
        })
    }

    /// Changes the parameters.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, config: Config) -> Result<(), ConfigError> {
        config.validate()?;
        if config.law.alpha != self.config.law.alpha {
            self.average = Average::new(config.law.alpha);
        }
        let in_force = self.threshold();
        self.law.set_config(config.law.clone());
        let before = self.config.auto;
        self.learner = match (config.auto, self.learner.take()) {
            (None, _) => None,
            (Some(auto), Some(mut kept))
                if before.is_some_and(|before| before.start == auto.start) =>
            {
                kept.set_auto(auto);
                Some(kept)
            }
            // It goes on from the number that was in force, unless it is told where to begin.
            (Some(auto), _) => Some(learner(auto, auto.start.unwrap_or(in_force))),
        };
        if config.size_model != self.config.size_model {
            self.sizes = Default::default();
        }
        if config.law.mode != self.config.law.mode {
            // An observer that begins to act joins the others: what it has outstanding until then is no
            // measure of what it is to have.
            self.joined = false;
            // Nor is what the array does without windows one of what it does at the threshold.
            self.detector = Detector::default();
        }
        if config.law != self.config.law {
            self.outlook = Outlook::default();
        }
        self.config = config;
        self.agree();
        Ok(())
    }

    /// Makes slots IOs, whatever the votes say: for a kernel's queue.
    pub fn count_ios(&mut self) {
        self.counts_ios = true;
        self.agree();
    }

    /// Values in force of the settings that all hosts must have alike.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The window in force. Infinite where there is none.
    #[must_use]
    pub fn window(&self) -> Window {
        if self.observes() { Window(f64::INFINITY) } else { self.law.window() }
    }

    /// The threshold in force.
    #[must_use]
    pub fn threshold(&self) -> Span {
        self.law.config().threshold
    }

    /// Capacity of the cluster for reservations.
    #[must_use]
    pub fn room(&self) -> Room {
        let (scale, latency) = (self.reserves, self.latency());
        Room { scale, latency, threshold: self.own_threshold() }
    }

    /// State of the search for the threshold, if it is found while working.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        self.learner.as_ref().map(Learner::estimate)
    }

    /// Whether the law only observes.
    pub(crate) fn observes(&self) -> bool {
        self.config.law.mode == Mode::Observe
    }

    /// The forecast of observe mode.
    #[must_use]
    pub fn outlook(&self) -> Option<&Outlook> {
        Some(&self.outlook).filter(|_| self.observes())
    }

    /// Lowers the window, if it is larger: the array itself said that it is full (QUEUE_FULL).
    pub fn lower_to(&mut self, window: Window) {
        self.law.lower_to(window);
    }

    /// L, the latency that the window rests on, in seconds: CAL(t).
    #[must_use]
    pub fn latency(&self) -> Option<f64> {
        self.average.secs()
    }

    /// How the latency of reads and of writes depends on their size, with [`SizeModel::Learned`]: by the
    /// IOs of all hosts that are heard, so that hosts of one size each learn it from one another.
    #[must_use]
    pub fn lines(&self) -> [Option<Line>; 2] {
        self.sizes.each_ref().map(Fit::line)
    }

    fn learn_sizes(&mut self, heard: &Flows, secs: f64) {
        if self.config.size_model == SizeModel::Learned {
            let [reads, writes] = &mut self.sizes;
            reads.period(heard.reads.sizes.times(secs));
            writes.period(heard.writes.sizes.times(secs));
        }
    }

    /// The window per share that VMs' slices are measured by, in slots, as of the last period. Infinite before
    /// the first.
    #[must_use]
    pub fn window_per_share(&self) -> f64 {
        self.window_per_share
    }

    /// The least and the largest window, in slots.
    #[must_use]
    pub fn bounds(&self) -> (f64, f64) {
        self.law.bounds()
    }

    /// How much more than its shares the host weighs, and its window per share.
    pub(crate) fn per_share(&self) -> (f64, PerShare) {
        (self.weight.factor(), self.law.per_share())
    }

    /// Whether slices bound what VMs have outstanding.
    pub(crate) fn binds(&self) -> bool {
        matches!(self.config.law.mode, Mode::Parda)
    }

    /// Drops the forecast, as the VMs are others than in the last period.
    pub fn vms_changed(&mut self) {
        self.outlook = Outlook::default();
    }

    /// Ends a period: finds the new window from the measurements and the others' reports. Returns the report to
    /// publish.
    #[allow(clippy::too_many_lines, reason = "one period in the order of its steps")]
    pub fn tick(&mut self, measured: Measured<'_>, view: View) -> Report {
        let Measured { elapsed, interval, outstanding, vms, reserved } = measured;
        let view = self.last_heard(view);
        let missing = match &view {
            View::Peers(peers) => Some(peers.missing),
            View::Silent => None,
        };
        let mut totals = match view {
            View::Peers(peers) if self.config.law.estimation == Estimation::Global => peers,
            _ => Totals::default(),
        };
        // Fractions of a share are a share: a host with VMs has one at least.
        self.shares = Shares((all_shares(vms) + 0.999) as u32);
        if self.source == Source::Cluster && missing.is_some() {
            (self.others, self.asked) = (totals.ballot, totals.governed.asked);
            if self.observes() {
                self.others = self.others.plus(totals.observing_ballot);
                self.asked = self.asked.plus(totals.observing.asked);
            }
        } else if self.absent.periods() > ASKED {
            // The hosts that asked may be dead.
            self.asked = Asked::default();
        }
        self.wants.floor = self.config.objective_floor;
        self.agree();
        self.measure_unit(interval, elapsed);
        let (active, wanted) = self.active_shares(vms);
        let bounded = bounded(vms, self.law.bounds().1);
        let mean = self.weight.mean().unwrap_or(f64::INFINITY);
        let mut own = Report {
            elapsed,
            interval,
            outstanding,
            window: self.law.window(),
            beta: self.law.beta(),
            shares: self.shares,
            active,
            bounded,
            governed: match self.config.law.mode {
                Mode::Published { .. } | Mode::Parda => Governed::Yes,
                Mode::Observe => Governed::Observes,
                Mode::Off | Mode::Static => Governed::No,
            },
            source: self.source,
            threshold: self.config.law.threshold,
            tuning: self.learner.as_ref().map_or(Tuning::Pinned, Learner::tuning),
            settings: Some(self.config.settings()),
            wants: self.wants,
            saturated: saturated(vms, bounded == Bounded::Slices, mean),
            reserved,
            pending: vms.iter().map(|vm| vm.pending).sum(),
            beside: self.detector.beside(),
            ..Report::default()
        };
        let signal = self.settings.signal;
        let observes = self.observes();
        let load = |totals: &Totals| match observes {
            true => totals.governed.plus(totals.observing),
            false => totals.governed,
        };
        let others = load(&totals).shares;
        totals.add_own(&own);
        self.flows = [interval.per_second(elapsed), totals.flows];
        if self.config.law.estimation == Estimation::Global {
            self.absent.period(&load(&totals), others, missing);
        }
        self.heard |= missing.is_some();
        let source = self.find_source(missing.is_some());
        (self.source, own.source) = (source, source);
        let all = source == Source::Cluster;
        let wanted = wanted * self.weigh(&own, &totals, source);
        self.learn_sizes(&totals.flows, elapsed.secs());
        let ours = interval.per_second(elapsed).heard(signal);
        let heard = self.absent.flow(ours, totals.flows.heard(signal), all);
        self.average.add(&heard, elapsed.secs(), self.config.law.min_ios);
        let mut load = load(&totals);
        if !all {
            load = load.plus(self.absent.load());
        }
        let beside = self.look_for_others(&totals, &load, source);
        (own.finding, own.beside) = (self.detector.finding(), self.detector.beside());
        self.learn(&totals, source, &own);
        // While nobody does IO, there is nothing to act on: what was last measured is no news.
        let latency = self.latency().filter(|_| heard.ios > 0.0);
        if all {
            self.effect.period((load.rate - load.asked.rate).max(0.0), load.wants);
        }
        let headroom = latency.map_or(1.0, |latency| self.law.headroom(latency, &load, beside));
        if let (true, Some(latency)) = (all, latency) {
            let (prefer, Load { outstanding, reserved, .. }) = (self.config.prefer, load);
            self.reserves = Room::scale(latency, self.own, prefer, outstanding, reserved);
        }
        let towards = match all {
            true if self.settings.costs.is_some() => headroom,
            true => load.rise(headroom),
            false => Absent::headroom(headroom),
        };
        let lambda = latency.and_then(|_| load.lambda(towards)).filter(|_| self.mixed == 0);
        self.mixed = self.mixed.saturating_sub(1);
        let joins = all && lambda.is_some() && !core::mem::replace(&mut self.joined, true);
        let weighed = self.weight.factor() * all_shares(vms);
        let cluster = if load.limited { load.active.min(load.shares) } else { load.shares };
        let input =
            Input { latency, lambda, shares: wanted, all: weighed, cluster, joins, elapsed };
        let window = self.law.step(input);
        own.window = if window.0.is_finite() { window } else { Window(0.0) };
        own.beta = self.law.beta();
        if let Some(learner) = &self.learner {
            (own.threshold, own.tuning) = (learner.threshold(), learner.tuning());
        }
        let weight = self.weight.factor();
        self.window_per_share = self.law.window_per_share(weight * all_shares(vms)) * weight;
        if let (true, Some(latency)) = (observes, latency) {
            // Of what is pending a part may wait in a queue that is not ours.
            let pending: f64 = vms.iter().map(|vm| vm.pending).sum();
            let there = if pending > outstanding { outstanding / pending } else { 1.0 };
            self.outlook.add(Forecast::new(
                elapsed,
                Span::from_secs(latency),
                headroom,
                load.outstanding,
                window,
                vms.iter()
                    .map(|vm| (there * vm.pending, vm.used.min(vm.counts * self.window_per_share))),
            ));
        }
        own
    }

    /// What was heard last, in the first rounds of silence: one failed read says nothing about the peers.
    fn last_heard(&mut self, view: View) -> View {
        match view {
            View::Peers(peers) => self.last = Some((peers, 0)),
            View::Silent => {
                self.last = self.last.map(|(last, silent)| (last, silent + 1));
                self.last = self.last.filter(|(_, silent)| *silent <= SILENT);
            }
        }
        self.last.map_or(View::Silent, |(last, _)| View::Peers(last))
    }

    /// Looks for load that is not under control, where all hosts are heard. Returns the outstanding IOs, in slots, that the hosts need
    /// beside it.
    fn look_for_others(&mut self, totals: &Totals, load: &Load, source: Source) -> f64 {
        let all = totals.flows.all();
        // Slots may be other than IOs.
        let pending = (load.pending / load.outstanding).max(1.0) * all.latency;
        if source != Source::Cluster || totals.missing > 0.0 {
            self.detector.pause();
        } else {
            self.detector.period(&LoadsSeen {
                rate: all.ios,
                outstanding: all.latency,
                reads: totals.flows.reads.ios / all.ios,
                size: all.bytes / all.ios,
                threshold: self.own.secs(),
                pending,
                raised: load.beside() > 0.0,
                answers: self.config.outsider == OutsiderPolicy::Compete
                    && self.config.law.mode == Mode::Parda
                    && self.learner.is_none(),
            });
        }
        needed(pending, load.beside()) * load.outstanding / all.latency
    }

    /// Takes in throughput, where shares are of that. Answers by what factor the host's weight changes.
    fn weigh(&mut self, own: &Report, totals: &Totals, source: Source) -> f64 {
        let before = self.weight.factor();
        let published = matches!(self.config.law.mode, Mode::Published { .. });
        let costs = self.settings.costs.filter(|_| !published);
        if costs.is_none() {
            self.weight = Weight::default();
        } else if source == Source::Cluster {
            // Who does not hear the others goes on with what it weighed last.
            let all = totals.governed.saturated.plus(totals.observing.saturated);
            self.weight.balance(own.saturated, all);
        }
        self.law.set_cluster_unit(costs.map_or(1.0, |costs| costs.mean(&totals.flows)));
        self.weight.factor() / before
    }

    /// Bounds are in IOs, whatever slots are.
    fn measure_unit(&mut self, interval: Interval, elapsed: Span) {
        let flows = interval.per_second(elapsed);
        match self.settings.costs {
            Some(costs) if flows.all().ios > 0.0 => {
                self.unit += (costs.mean(&flows) - self.unit) / 4.0;
            }
            Some(_) => {}
            None => self.unit = 1.0,
        }
        self.law.set_unit(self.unit);
    }

    /// Source of the latency.
    fn find_source(&self, works: bool) -> Source {
        let local = self.config.law.estimation == Estimation::Local;
        if local || !self.heard {
            Source::Local
        } else if works && self.absent.hears_most(f64::from(self.shares.0)) {
            Source::Cluster
        } else {
            Source::LastGood
        }
    }

    /// The host's shares as its VMs use them: those to report, and those its window rests on.
    fn active_shares(&self, vms: &[VmDemand]) -> (f64, f64) {
        let weight = self.weight.factor();
        let all = weight * all_shares(vms);
        let window_per_share = self.law.window_per_share(all);
        let used = used_shares(vms, weight, window_per_share);
        let mut active = used.active;
        if let Mode::Parda = self.config.law.mode {
            // What a host cannot have outstanding is the others'.
            active = active.min(self.law.bounds().1 / window_per_share);
        }
        // While every VM has what it wants, the window only waits for one to want more: it may
        // then have its whole share at once. As soon as one VM could use more than its share, what
        // its neighbours leave of theirs is not its to take (PARDA §3).
        (active, if used.at_slice { used.wanted } else { all.max(1.0) })
    }
}

fn learner(auto: Auto, begin: Span) -> Learner {
    Learner::new(auto, begin, auto.start.is_some())
}

#[cfg(test)]
mod tests;
