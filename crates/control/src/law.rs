//! The window that follows from latency: eq. 2, as published and normalised.
//!
//! ```text
//! w(t+1) = (1 − γ) · w(t) + γ · ( L_threshold / CAL(t) · w(t) + β ),   w ≤ w_max
//! ```
//!
//! As published, the latency settles at L_threshold + Σβ / throughput. Its distance from the threshold depends on the number of hosts and
//! on the array. The normalised law determines the free constant from the exchange: λ, the window per share that would put the array at its
//! threshold ([`crate::cluster`]). Its state is p, the host's own window *per share* ([`Law::window_per_share()`]), which converges to λ:
//!
//! ```text
//! p(t+1) = (1 − γ) · p(t) + γ · λ
//! ```
//!
//! A late round takes the steps that it missed: 1 − γ to the power of the time since the last round, over the period. The fixed point is p
//! = λ on all hosts, and latency = L_threshold, for any number of hosts. p has no upper bound: demand bounds a host that cannot use its
//! window, and p grows only while a VM could use more. The slice of each VM follows from p ([`crate::slices`]).

use libm::pow;

use crate::cluster::{Load, MAX_RISE};
use crate::latency::Signal;
use crate::mechanism::{Mechanism, on};
use crate::units::{Span, Window};

/// Rule for the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// No window: every IO goes at once, in order of arrival.
    Off,
    /// The window is [`LawConfig::window_max`] and stays there.
    Static,
    /// Eq. 2 to the letter, β = `beta_per_share` · shares (the papers leave this K open).
    Published {
        /// K, in slots per share.
        beta_per_share: f64,
    },
    /// Eq. 2 normalised by the exchange's data.
    Parda,
    /// No window, as with [`Mode::Off`]. The law computes the window that it would set, from the present outstanding IOs.
    Observe,
}

impl Mode {
    /// The default of [`LawConfig::window_max`], in slots. 64 is the queue depth of a LUN, as the papers have it. By shares a host of a
    /// hundred VMs is due more than that.
    #[must_use]
    pub fn window_max(self) -> Window {
        match self {
            Mode::Published { .. } | Mode::Static => Window(64.0),
            Mode::Off | Mode::Parda | Mode::Observe => Window(256.0),
        }
    }

    /// Default of [`LawConfig::gamma`]. 0.8 is the value of FAST '09, whose period is 2 s. An array answers a window with a new latency
    /// within two seconds, as a write cache fills or drains. A faster law swings.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        match self {
            Mode::Published { .. } => 0.8,
            Mode::Off | Mode::Static | Mode::Parda | Mode::Observe => 0.5,
        }
    }
}

/// Hosts whose latency drives the window (PARDA §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Estimation {
    /// The mean over all hosts, weighted by IO count.
    #[default]
    Global,
    /// One's own only. Diverges where the array treats hosts differently, as PARDA §4 shows.
    Local,
}

/// Parameters of the law.
#[derive(Clone, Debug, PartialEq)]
pub struct LawConfig {
    /// Rule for the window.
    pub mode: Mode,
    /// Hosts whose latency drives the window.
    pub estimation: Estimation,
    /// Which IOs' latency drives it.
    pub signal: Signal,
    /// L_threshold: target of the device latency.
    pub threshold: Span,
    /// α of eq. 1 in [0, 1): the weight of the past.
    pub alpha: f64,
    /// γ of eq. 2 in (0, 1]: fraction of the way that one period covers.
    pub gamma: f64,
    /// Time between two steps, unless a round takes longer.
    pub period: Span,
    /// The window never falls below this, in IOs; above 0, and below 1 for large clusters.
    pub window_min: Window,
    /// The window never rises above this, in IOs.
    pub window_max: Window,
    /// The window before anything is known, in slots.
    pub window_start: Window,
    /// Least total of the cluster's windows at any latency, in IOs. Below one IO the cluster's IOs no longer wait for each other, and a
    /// smaller window only loses throughput.
    pub cluster_min: f64,
    /// Time between two IOs of a backlogged VM after which its next one goes out of turn, whatever its shares.
    pub hold_max: Span,
    /// Fewer IOs than this in an interval do not move the latency estimate.
    pub min_ios: u32,
}

impl Default for LawConfig {
    fn default() -> LawConfig {
        LawConfig {
            mode: Mode::Parda,
            estimation: Estimation::Global,
            signal: Signal::All,
            threshold: Span::from_millis(30),
            alpha: 0.002,
            gamma: Mode::Parda.gamma(),
            period: Span::from_millis(1000),
            window_min: Window(0.001),
            window_max: Mode::Parda.window_max(),
            window_start: Window(4.0),
            cluster_min: 1.0,
            hold_max: Span::from_millis(10_000),
            min_ios: 4,
        }
    }
}

/// Latency is at the threshold within this factor.
const NEAR: f64 = 1.5;

/// The windows per share that the exchange and a sum over hosts can carry.
const PER_SHARE: (f64, f64) = (1e-12, 1e5);

/// Input of one step of the law.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// L in seconds: CAL(t). `None` without a measurement of the array.
    pub latency: Option<f64>,
    /// λ: the window per share at which the cluster would meet its threshold, if known.
    pub lambda: Option<f64>,
    /// Sum of the shares of the host's VMs, scaled down for VMs that are idle.
    pub shares: f64,
    /// Sum of the shares of all VMs of the host, idle or not.
    pub all: f64,
    /// Sum of the shares that divide `cluster_min`. Active shares while a VM of the cluster is backlogged, else all.
    pub cluster: f64,
    /// The cluster is heard for the first time.
    pub joins: bool,
    /// Time since the last step.
    pub elapsed: Span,
}

/// A window per share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PerShare {
    /// p, the state of the law.
    Known(f64),
    /// This window, over the sum of the host's shares.
    Divided(f64),
}

impl PerShare {
    /// The window per share of a host of so many shares.
    pub(crate) fn of(self, all: f64) -> f64 {
        match self {
            PerShare::Known(per_share) => per_share,
            PerShare::Divided(window) => window / all,
        }
    }
}

/// The law's state for one host and one volume.
#[derive(Clone, Debug)]
pub struct Law {
    config: LawConfig,
    /// Slots that an IO takes, on average: bounds are in IOs.
    unit: f64,
    /// Slots that an IO of any host takes, on average.
    cluster_unit: f64,
    window: f64,
    /// p, the host's own window per share: the state of the law. `None` before the first step.
    window_per_share: Option<f64>,
    beta: f64,
    /// Outstanding IOs of the cluster while latency was at the threshold.
    usual: f64,
}

impl Law {
    /// Initial state of the law.
    #[must_use]
    pub fn new(config: LawConfig) -> Law {
        let window = start(&config);
        Law {
            config,
            unit: 1.0,
            cluster_unit: 1.0,
            window,
            window_per_share: None,
            beta: 0.0,
            usual: 0.0,
        }
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &LawConfig {
        &self.config
    }

    /// Changes the parameters. The window is kept as far as they allow.
    pub fn set_config(&mut self, config: LawConfig) {
        let same_mode = kin(self.config.mode) == kin(config.mode);
        self.config = config;
        let (least, most) = self.bounds();
        let kept = self.window.clamp(least, most);
        let keeps = same_mode && !matches!(self.config.mode, Mode::Off | Mode::Static);
        self.window = if keeps { kept } else { start(&self.config) };
        if matches!(self.config.mode, Mode::Static) {
            self.window = most;
        }
        self.window_per_share = self.window_per_share.filter(|_| same_mode);
    }

    /// Changes the threshold alone.
    pub fn set_threshold(&mut self, threshold: Span) {
        self.config.threshold = threshold;
    }

    /// Says how many slots an IO takes on average.
    pub fn set_unit(&mut self, unit: f64) {
        self.unit = unit;
        if matches!(self.config.mode, Mode::Static) {
            self.window = self.bounds().1;
        }
    }

    /// Counts in other slots from now on. `factor`: slots of now for one of before, of this host's IOs; `cluster`: of all hosts' IOs.
    /// `unit`: slots that an IO of this host takes on average.
    pub fn convert(&mut self, factor: f64, cluster: f64, unit: f64) {
        self.set_unit(unit);
        self.usual *= cluster;
        if !matches!(self.config.mode, Mode::Off | Mode::Static) {
            let (least, most) = self.bounds();
            self.window = (self.window * factor).clamp(least, most);
            self.window_per_share = self.window_per_share.map(|per_share| per_share * factor);
        }
    }

    /// Says the same of all hosts' IOs.
    pub fn set_cluster_unit(&mut self, unit: f64) {
        self.cluster_unit = unit;
    }

    /// The least and the largest window, in slots.
    #[must_use]
    pub fn bounds(&self) -> (f64, f64) {
        (self.config.window_min.0 * self.unit, self.config.window_max.0 * self.unit)
    }

    /// w(t). With [`Mode::Observe`]: the window that the law would set.
    #[must_use]
    pub fn window(&self) -> Window {
        Window(self.window)
    }

    /// β as last used, in slots.
    #[must_use]
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Window per share for slices: p. In modes without p, the window divided by `all`, the sum of the host's shares.
    #[must_use]
    pub fn window_per_share(&self, all: f64) -> f64 {
        self.per_share().of(all)
    }

    /// The same before the sum of the shares is known.
    pub(crate) fn per_share(&self) -> PerShare {
        match (self.config.mode, self.window_per_share) {
            (Mode::Parda | Mode::Observe, Some(per_share)) => PerShare::Known(per_share),
            _ => PerShare::Divided(self.window),
        }
    }

    /// Lowers the window, if it is larger: the array itself said that it is full.
    pub fn lower_to(&mut self, window: Window) {
        if !matches!(self.config.mode, Mode::Off | Mode::Static) {
            let lower = self.window.min(window.0).max(self.bounds().0);
            self.window_per_share =
                self.window_per_share.map(|per_share| per_share * lower / self.window);
            self.window = lower;
        }
    }

    /// L_threshold over a latency: the factor by which windows could be larger. Windows that bound no VM must not grow. Under light load
    /// the array's latency would take them to their maximum, from where all VMs would wake at once. The total does not shrink below
    /// [`LawConfig::cluster_min`], or below the slots needed `beside` an outsider.
    #[must_use]
    pub fn headroom(&mut self, latency: f64, cluster: &Load, beside: f64) -> f64 {
        let headroom = self.config.threshold.secs() / latency;
        let least = self.config.cluster_min * self.cluster_unit;
        let least = if on(Mechanism::ClusterMin) { least } else { 0.0 };
        let grows = !on(Mechanism::GrowthInUse)
            || match self.config.mode {
                Mode::Parda => cluster.limited,
                _ => cluster.in_use,
            };
        if grows && (1.0 / NEAR..NEAR).contains(&headroom) {
            self.usual += 0.5 * (cluster.outstanding - self.usual);
        }
        let usual = if on(Mechanism::Recovery) { self.usual } else { 0.0 };
        let least = if headroom > NEAR {
            least.max(usual.min(MAX_RISE * cluster.outstanding))
        } else {
            least
        };
        let least = least / cluster.outstanding;
        let rise = if on(Mechanism::RiseBound) { MAX_RISE } else { f64::INFINITY };
        let most = if grows { rise.max(usual / cluster.outstanding) } else { 1.0 };
        let beside = if on(Mechanism::Outsider) && grows { beside } else { 0.0 };
        headroom.max(least).min(most).max(beside / cluster.outstanding)
    }

    /// One period: w(t) becomes w(t + 1).
    pub fn step(&mut self, input: Input) -> Window {
        let LawConfig { gamma, period, threshold, .. } = self.config;
        let (least, most) = self.bounds();
        match self.config.mode {
            Mode::Off | Mode::Static => return Window(self.window),
            Mode::Published { beta_per_share } => {
                self.beta = beta_per_share * input.shares;
                if let Some(latency) = input.latency {
                    let grown = threshold.secs() / latency * self.window;
                    self.window = (1.0 - gamma) * self.window + gamma * (grown + self.beta);
                }
            }
            Mode::Parda | Mode::Observe => {
                let per_share = self.window_per_share(input.all.max(1.0));
                let per_share = match input.lambda.filter(|_| input.latency.is_some()) {
                    None => per_share,
                    // A host that joins starts at the window that its peers have per share.
                    Some(lambda) if input.joins && on(Mechanism::Joining) => lambda,
                    Some(lambda) => {
                        let kept = pow(1.0 - gamma, input.elapsed.secs() / period.secs());
                        kept * per_share + (1.0 - kept) * lambda
                    }
                };
                // `cluster_min` divides by shares where reservations hold the latency above the threshold. The same for hosts that remain
                // when others fall asleep, before an IO of their own has been done.
                let left = match input.cluster > 0.0 && on(Mechanism::ClusterMin) {
                    true => self.config.cluster_min * self.cluster_unit / input.cluster,
                    false => 0.0,
                };
                let lowest = left.max(PER_SHARE.0);
                let per_share = per_share.max(lowest).min(PER_SHARE.1);
                self.window_per_share = Some(per_share);
                let acts = self.config.mode == Mode::Parda;
                let beta = input.lambda.unwrap_or(per_share) * input.shares;
                self.beta = if acts { beta } else { 0.0 };
                self.window = per_share * input.shares;
            }
        }
        self.window = self.window.clamp(least, most);
        Window(self.window)
    }
}

/// Modes that share window state: an acting host begins with the window that it found as an observer.
fn kin(mode: Mode) -> u8 {
    match mode {
        Mode::Off => 0,
        Mode::Static => 1,
        Mode::Published { .. } => 2,
        Mode::Parda | Mode::Observe => 3,
    }
}

fn start(config: &LawConfig) -> f64 {
    match config.mode {
        Mode::Off => f64::INFINITY,
        Mode::Static => config.window_max.0,
        _ => config.window_start.0.clamp(config.window_min.0, config.window_max.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn config(mode: Mode) -> LawConfig {
        LawConfig { mode, window_max: Window(1e4), ..LawConfig::default() }
    }

    fn input(latency: Option<f64>, lambda: Option<f64>, shares: f64) -> Input {
        let elapsed = LawConfig::default().period;
        Input { latency, lambda, shares, all: shares, cluster: 1e9, joins: false, elapsed }
    }

    /// Hosts at an array that completes `rate` IO/s as soon as enough are outstanding.
    fn settle(mode: Mode, shares: &[f64], rate: f64, periods: usize) -> (Vec<f64>, f64) {
        let mut laws: Vec<Law> = shares.iter().map(|_| Law::new(config(mode))).collect();
        let mut latency = 0.0;
        for _ in 0..periods {
            let total: f64 = laws.iter().map(|l| l.window().0).sum();
            latency = (total / rate).max(0.005);
            let cluster = Load { outstanding: total, limited: true, ..Load::default() };
            let headroom = laws[0].headroom(latency, &cluster, 0.0);
            let lambda = headroom * total / shares.iter().sum::<f64>();
            for (law, &s) in laws.iter_mut().zip(shares) {
                law.step(input(Some(latency), Some(lambda), s));
            }
        }
        (laws.iter().map(|l| l.window().0).collect(), latency)
    }

    #[test]
    fn the_published_law_settles_above_the_threshold_by_sum_beta_over_rate() {
        let k = 0.004;
        let shares = [1000.0, 500.0, 500.0];
        let (windows, latency) =
            settle(Mode::Published { beta_per_share: k }, &shares, 1000.0, 2000);
        let want = 0.030 + k * 2000.0 / 1000.0;
        assert!((latency - want).abs() < 1e-4, "{latency} {want}");
        assert!((windows[0] / windows[1] - 2.0).abs() < 1e-3);
    }

    #[test]
    fn the_normalised_law_lands_on_the_threshold_for_any_number_of_hosts() {
        for n in [1, 2, 4, 16, 64, 256] {
            let shares: Vec<f64> = (0..n).map(|i| 500.0 * (1 + i % 3) as f64).collect();
            let (windows, latency) = settle(Mode::Parda, &shares, 1500.0, 60);
            assert!((latency - 0.030).abs() < 1e-5, "{n} hosts: {latency}");
            for (w, s) in windows.iter().zip(&shares) {
                let want = 45.0 * s / shares.iter().sum::<f64>();
                assert!((w - want).abs() < 0.01 * want, "{n} hosts: {w} {want}");
            }
        }
    }

    #[test]
    fn without_a_latency_the_window_stays() {
        let mut law = Law::new(config(Mode::Parda));
        let w = law.window();
        assert_eq!(law.step(input(None, Some(1.0), 1.0)), w);
    }

    #[test]
    fn a_host_that_joins_takes_its_peers_window_per_share() {
        let mut law = Law::new(config(Mode::Parda));
        let joins = Input { joins: true, ..input(Some(0.03), Some(0.02), 1000.0) };
        assert_eq!(law.step(joins), Window(20.0));
        let later = law.step(input(Some(0.03), Some(0.01), 1000.0));
        assert!((later.0 - 15.0).abs() < 1e-9, "{later}");
    }

    #[test]
    fn a_round_that_is_late_takes_the_steps_that_it_missed() {
        let begun = || {
            let mut law = Law::new(config(Mode::Parda));
            law.step(Input { joins: true, ..input(Some(0.03), Some(0.02), 1000.0) });
            law
        };
        let to = input(Some(0.03), Some(0.01), 1000.0);
        let (mut often, mut late) = (begun(), begun());
        for _ in 0..3 {
            often.step(to);
        }
        let late = late.step(Input { elapsed: Span::from_millis(3000), ..to });
        assert!((often.window().0 - late.0).abs() < 1e-9, "{late}");
    }

    #[test]
    fn shares_that_change_move_the_window_at_once() {
        let mut law = Law::new(config(Mode::Parda));
        law.step(Input { joins: true, ..input(Some(0.03), Some(0.02), 1000.0) });
        assert!((law.step(input(Some(0.03), Some(0.02), 500.0)).0 - 10.0).abs() < 1e-9);
    }

    #[test]
    fn windows_grow_only_in_use_and_shrink_only_while_something_of_ours_waits() {
        let mut law = Law::new(LawConfig::default());
        let cluster = |outstanding, limited| Load { outstanding, limited, ..Load::default() };
        assert_eq!(law.headroom(0.001, &cluster(40.0, true), 0.0), MAX_RISE);
        assert_eq!(law.headroom(0.001, &cluster(40.0, false), 0.0), 1.0);
        assert_eq!(law.headroom(0.060, &cluster(40.0, false), 0.0), 0.5);
        // Down to one IO in the whole cluster, and back up to it.
        assert_eq!(law.headroom(0.300, &cluster(4.0, true), 0.0), 0.25);
        assert_eq!(law.headroom(0.300, &cluster(0.8, true), 0.0), 1.25);
    }

    #[test]
    fn an_array_that_recovers_is_used_as_before_at_once() {
        let mut law = Law::new(LawConfig::default());
        let cluster = |outstanding| Load { outstanding, limited: true, ..Load::default() };
        (0..20).for_each(|_| _ = law.headroom(0.030, &cluster(90.0), 0.0));
        assert!(
            (law.headroom(0.006, &cluster(1.0), 0.0) - 5.0).abs() < 1e-9,
            "by what latency says"
        );
        assert!(
            (law.headroom(0.001, &cluster(9.0), 0.0) - 10.0).abs() < 0.01,
            "as far as it was known"
        );
        assert_eq!(law.headroom(0.001, &cluster(90.0), 0.0), MAX_RISE);
    }

    #[test]
    fn an_array_that_says_it_is_full_lowers_the_window_and_nothing_else() {
        let mut law = Law::new(config(Mode::Parda));
        law.lower_to(Window(9.0));
        assert_eq!(law.window(), Window(4.0));
        law.lower_to(Window(3.0));
        assert_eq!(law.window(), Window(3.0));
        law.lower_to(Window(0.0));
        assert_eq!(law.window(), LawConfig::default().window_min);
        let mut fixed = Law::new(config(Mode::Static));
        fixed.lower_to(Window(3.0));
        assert_eq!(fixed.window(), Window(1e4));
    }

    #[test]
    fn bounds_hold() {
        let mut law = Law::new(LawConfig::default());
        let bounds = LawConfig::default().window_min.0..=256.0;
        for lambda in [1e-12, 1e-6, 1.0, 1e6] {
            for _ in 0..100 {
                assert!(bounds.contains(&law.step(input(Some(0.03), Some(lambda), 1.0)).0));
            }
        }
    }
}
