//! A threshold that is found while working: it goes where throughput stops growing, by no more than
//! its step, on no thin data, the same on all hosts, and then stays there.

use crate::common;

use common::{Cluster, VmSpec};
use parda_control::law::LawConfig;
use parda_control::threshold::{Learner, Observation, Why};
use parda_control::{Auto, Config, Span, Thresholds, Tuning, Window};
use proptest::prelude::*;

/// An array held at a threshold: throughput min(N / service, peak), with a knee as round as arrays
/// have it.
#[derive(Clone, Debug)]
struct Curve {
    peak: f64,
    /// Latency of a single IO, in seconds.
    service: f64,
    /// Standard deviation of one period's throughput, relative.
    noise: f64,
    random: u64,
}

impl Curve {
    fn new(peak: f64, service: f64, noise: f64) -> Curve {
        Curve { peak, service, noise, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Nearly normal, of variance one.
    fn draw(&mut self) -> f64 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            sum += (self.random >> 11) as f64 / (1u64 << 53) as f64;
        }
        sum
    }

    /// X = peak · N / (N³ + h³)^⅓ with h = peak · service, so L = (N³ + h³)^⅓ / peak.
    fn throughput(&self, outstanding: f64) -> f64 {
        let half = self.peak * self.service;
        self.peak * outstanding / (outstanding.powi(3) + half.powi(3)).cbrt()
    }

    fn latency_of(&self, outstanding: f64) -> f64 {
        outstanding / self.throughput(outstanding)
    }

    fn outstanding(&self, latency: f64) -> f64 {
        let half = self.peak * self.service;
        ((latency * self.peak).powi(3) - half.powi(3)).max(1.0).cbrt()
    }

    /// A period in which the law holds it at `threshold`.
    fn held(&mut self, threshold: f64) -> Observation {
        // The law's window comes from the latency of the period before, which has noise of its own.
        let outstanding = self.outstanding(threshold) * (1.0 + 0.5 * self.noise * self.draw());
        let rate = self.throughput(outstanding) * (1.0 + self.noise * self.draw());
        Observation {
            throughput: rate.ln(),
            total: rate,
            latency: outstanding / rate,
            outstanding,
            windows: outstanding,
            in_use: true,
            least: 1.0,
            ..Observation::default()
        }
    }

    /// Where throughput is `part` of the peak: the latency there.
    fn latency_at(&self, part: f64) -> f64 {
        // From X = part · peak: N³ (1 − part³) = part³ h³.
        let half = self.peak * self.service;
        let outstanding = part * half / (1.0 - part.powi(3)).cbrt();
        outstanding / (part * self.peak)
    }
}

fn alone() -> Thresholds {
    Thresholds::default()
}

fn learner(start: f64) -> Learner {
    Learner::new(Auto::default(), Span::from_secs(start), false)
}

/// Lets it work for so many periods beside what `seen` makes of the threshold; the threshold after each.
fn run_by(
    learner: &mut Learner,
    periods: usize,
    mut seen: impl FnMut(usize, f64) -> Observation,
) -> Vec<f64> {
    let period = |period| {
        learner.period(&alone(), Some(&seen(period, learner.threshold().secs())));
        learner.threshold().secs()
    };
    (0..periods).map(period).collect()
}

fn run(learner: &mut Learner, curve: &mut Curve, periods: usize) -> Vec<f64> {
    run_by(learner, periods, |_, threshold| curve.held(threshold))
}

fn mean(trace: &[f64]) -> f64 {
    trace.iter().sum::<f64>() / trace.len() as f64
}

/// Lets it work beside an outsider that always has so many outstanding.
fn run_beside(learner: &mut Learner, curve: &mut Curve, outsider: f64, periods: usize) -> Vec<f64> {
    run_by(learner, periods, |_, threshold| {
        let seen = curve.held(threshold);
        let (total, outstanding) = (seen.total - outsider / threshold, seen.outstanding - outsider);
        Observation { throughput: total.ln(), total, outstanding, ..seen }
    })
}

#[test]
fn it_follows_a_capacity_that_halves_and_returns() {
    let mut curve = Curve::new(3000.0, 0.010, 0.015);
    let mut learner = learner(0.015);
    let go = |learner: &mut Learner, curve: &mut Curve, periods| {
        mean(&run(learner, curve, periods)[periods - 20..])
    };
    let before = go(&mut learner, &mut curve, 300);
    // Every drive takes twice as long: the same outstanding, twice the latency.
    (curve.peak, curve.service) = (1500.0, 0.020);
    let slow = go(&mut learner, &mut curve, 100);
    assert!((1.4..3.0).contains(&(slow / before)), "{before} {slow} {:?}", learner.estimate());
    let throughput = curve.throughput(curve.outstanding(slow));
    assert!(throughput > 0.92 * curve.peak, "{throughput}");
    (curve.peak, curve.service) = (3000.0, 0.010);
    let again = go(&mut learner, &mut curve, 60);
    assert!((0.6..1.5).contains(&(again / before)), "{before} {again} {:?}", learner.estimate());
}

#[test]
fn half_the_drives_leave_the_threshold_where_it_is() {
    let mut curve = Curve::new(3000.0, 0.010, 0.015);
    let mut learner = learner(0.020);
    let before = mean(&run(&mut learner, &mut curve, 300)[280..]);
    curve.peak = 1500.0;
    let after = mean(&run(&mut learner, &mut curve, 300)[280..]);
    assert!((0.65..1.5).contains(&(after / before)), "{before} {after} {:?}", learner.estimate());
}

#[test]
fn an_outsider_that_comes_does_not_take_it_up() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.025);
    let mut go = |learner: &mut Learner, outsider, periods| {
        run_beside(learner, &mut curve, outsider, periods)
    };
    let found = mean(&go(&mut learner, 0.0, 300)[280..]);
    // It has 40 of about 75 outstanding.
    let beside = go(&mut learner, 40.0, 600);
    let highest = beside[200..].iter().copied().fold(0.0, f64::max);
    assert!(highest < 1.3 * found, "{found} to {highest}: {:?}", learner.estimate());
    assert_eq!(learner.estimate().why, Why::Outsider);
    let again = mean(&go(&mut learner, 0.0, 300)[280..]);
    assert!((0.6..1.5).contains(&(again / found)), "{again}: {:?}", learner.estimate());
}

#[test]
fn light_load_moves_nothing() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.030);
    let trace = run_by(&mut learner, 300, |_, _| Observation {
        windows: 64.0,
        in_use: false,
        ..curve.held(0.011)
    });
    assert!(trace.iter().all(|threshold| *threshold == 0.030));
    assert_eq!(learner.estimate().why, Why::Light);
    learner.period(&alone(), None);
    assert_eq!(learner.threshold().secs(), 0.030);
}

#[test]
fn load_that_goes_away_during_a_try_ends_it_where_it_began() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.020);
    while matches!(learner.estimate().why, Why::Gathers | Why::Joins) {
        run(&mut learner, &mut curve, 1);
    }
    assert!(learner.threshold().secs() != 0.020, "it tries");
    run_by(&mut learner, 20, |_, _| Observation { in_use: false, ..curve.held(0.011) });
    assert_eq!(learner.threshold().secs(), 0.020);
}

#[test]
fn throughput_of_a_few_ios_moves_nothing_for_good() {
    // Three IOs a second scatter by more than half.
    let mut curve = Curve::new(3.0, 0.010, 0.58);
    let mut learner = learner(0.020);
    let trace = run_by(&mut learner, 2000, |_, threshold| {
        let seen = curve.held(threshold);
        Observation { throughput: seen.total.max(1.0).ln(), latency: threshold, ..seen }
    });
    assert!((0.010..0.040).contains(&mean(&trace)), "{}", mean(&trace));
}

#[test]
fn other_hosts_or_ios_during_a_try_do_not_look_like_an_array_that_gives_more_for_more() {
    for periods in [1, 4, 10] {
        let mut curve = Curve::new(3000.0, 0.010, 0.01);
        let mut learner = learner(0.025);
        let found = mean(&run(&mut learner, &mut curve, 300)[280..]);
        let trace = run_by(&mut learner, 1200, |period, threshold| {
            let mut seen = curve.held(threshold);
            // For some periods one of two pauses: half the throughput, and half outstanding.
            if (period / periods) % 2 == 0 {
                (seen.class, seen.throughput) = (1, seen.throughput - 0.7);
                seen.outstanding *= 0.5;
            }
            seen
        });
        let ratio = mean(&trace[1000..]) / found;
        assert!((0.6..1.5).contains(&ratio), "{periods}: {ratio}, {:?}", learner.estimate());
    }
}

#[test]
fn what_other_hosts_lose_counts() {
    // Half of what is outstanding is theirs, always: they lose what the others win.
    let mut curve = Curve::new(3000.0, 0.001, 0.01);
    let mut learner = learner(0.030);
    run_by(&mut learner, 600, |_, threshold| {
        let (seen, theirs) = (curve.held(threshold), 45.0 / threshold);
        let ours = (seen.total - theirs).max(1.0);
        Observation { throughput: 0.5 * (ours.ln() + theirs.ln()), ..seen }
    });
    let threshold = learner.threshold().secs();
    assert!(threshold < 0.040, "{threshold}: {:?}", learner.estimate());
}

/// Throughput of an array where one number of IOs is outstanding at any threshold, and takes as long.
fn stuck(outstanding: f64, latency: f64) -> Observation {
    Observation {
        throughput: (outstanding / latency).ln(),
        total: outstanding / latency,
        latency,
        outstanding,
        windows: outstanding,
        in_use: true,
        least: 1.0,
        ..Observation::default()
    }
}

#[test]
fn a_threshold_that_no_window_can_meet_rises() {
    let mut learner = learner(0.004);
    // One IO at a time takes 10 ms.
    run_by(&mut learner, 100, |_, _| stuck(1.0, 0.010));
    let threshold = learner.threshold().secs();
    assert!((0.0066..0.015).contains(&threshold), "{threshold}");
}

#[test]
fn a_threshold_that_bounds_nobody_falls_until_it_does() {
    // Windows at their most, and well used: flash.
    // In one case a host that has all it wants is not backlogged.
    for class in [1, 0] {
        let mut learner = learner(0.030);
        let mut curve = Curve::new(200_000.0, 0.0002, 0.002);
        run_by(&mut learner, 400, |_, threshold| {
            let held = threshold <= 0.000_64;
            let seen = if held { curve.held(threshold) } else { stuck(128.0, 0.000_64) };
            Observation { class: if held { 1 } else { class }, ..seen }
        });
        let threshold = learner.threshold().secs();
        assert!((0.0003..0.000_9).contains(&threshold), "{class}: {threshold}");
    }
}

#[test]
fn a_host_that_does_not_lead_follows_by_steps() {
    let mut learner = learner(0.030);
    let others = Thresholds {
        leader: Some(Span::from_millis(60)),
        anyone: Some(Span::from_millis(60)),
        ..alone()
    };
    let mut known = learner.clone();
    // One that starts takes it at once.
    known.period(&others, None);
    assert_eq!((known.threshold(), known.tuning()), (Span::from_millis(60), Tuning::Joining));
    run(&mut learner, &mut Curve::new(3000.0, 0.010, 0.01), 3);
    assert_eq!(learner.tuning(), Tuning::Auto);
    for ms in [36.0, 43.2, 51.84, 60.0, 60.0] {
        learner.period(&others, None);
        assert!((learner.threshold().secs() * 1e3 - ms).abs() < 1e-4, "{ms}");
        assert!(!learner.estimate().leads);
    }
}

#[test]
fn a_number_on_one_host_pins_all_and_a_host_that_says_nothing_stops_them() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.030);
    run(&mut learner, &mut curve, 3);
    let pinned = Thresholds {
        pinned: Some(Span::from_millis(25)),
        leader: Some(Span::from_millis(80)),
        ..alone()
    };
    for _ in 0..3 {
        learner.period(&pinned, Some(&curve.held(0.025)));
    }
    assert_eq!((learner.threshold(), learner.estimate().why), (Span::from_millis(25), Why::Pinned));
    let unsaid = Thresholds { unsaid: true, leader: Some(Span::from_millis(80)), ..alone() };
    for _ in 0..50 {
        learner.period(&unsaid, Some(&curve.held(0.025)));
    }
    assert_eq!((learner.threshold(), learner.estimate().why), (Span::from_millis(25), Why::Unsaid));
}

#[test]
fn what_was_learned_before_a_restart_is_where_it_goes_on() {
    let mut learner = learner(0.030);
    let others = Thresholds { before: Some(Span::from_millis(12)), ..alone() };
    learner.period(&others, None);
    assert_eq!(learner.threshold(), Span::from_millis(12));
}

fn config(auto: Option<Auto>) -> Config {
    let law = LawConfig { window_max: Window(256.0), ..LawConfig::default() };
    Config { law, auto, ..Config::default() }
}

fn secs(s: u64) -> Span {
    Span::from_millis(1000 * s)
}

#[test]
fn all_hosts_have_one_threshold_whoever_leads() {
    let auto = config(Some(Auto::default()));
    let mut cluster = Cluster::new(7, 8, Span::from_millis(2), secs(1));
    for shares in [2000, 1000, 500] {
        cluster.add_host(auto.clone(), &[VmSpec { shares, outstanding: 128 }]);
    }
    let same = |cluster: &Cluster, hosts: [usize; 2], what: &str| {
        let [a, b] = hosts.map(|host| cluster.threshold(host));
        // One may have heard of a move, and the other not yet.
        assert!((a / b - 1.0).abs() < 0.21, "{what}: {a} {b}");
        a == b
    };
    let mut apart = 0;
    for second in 0..400 {
        cluster.run(secs(1));
        apart += usize::from(!same(&cluster, [0, 2], &format!("second {second}")));
    }
    assert!(cluster.estimate(0).unwrap().leads && !cluster.estimate(1).unwrap().leads);
    assert!(cluster.estimate(0).unwrap().moves > 0);
    assert!(apart < 60, "{apart} of 400 s");
    // The next one takes over, from where its predecessor was.
    let before = cluster.threshold(1);
    cluster.kill(0);
    cluster.run(secs(30));
    assert!(cluster.estimate(1).unwrap().leads);
    assert_eq!(cluster.threshold(1), before);
    // A host that comes to them takes theirs at once.
    let late = cluster.add_host(auto, &[VmSpec { shares: 1000, outstanding: 128 }]);
    cluster.run(secs(5));
    same(&cluster, [1, late], "a host that came late");
    // A number on one of them is everybody's.
    cluster.set_config(2, config(None));
    cluster.run(secs(30));
    assert_eq!((cluster.threshold(1), cluster.threshold(late)), (0.030, 0.030));
}

#[test]
fn switching_keeps_what_is_in_force_until_something_is_learned() {
    let mut cluster = Cluster::new(7, 8, Span::from_millis(2), secs(1));
    let host = cluster.add_host(config(None), &[VmSpec { shares: 1000, outstanding: 128 }]);
    let at = |ms| {
        let law = LawConfig { threshold: Span::from_millis(ms), ..config(None).law };
        Config { law, ..config(None) }
    };
    cluster.set_config(host, at(12));
    cluster.set_config(host, config(Some(Auto::default())));
    assert_eq!(cluster.threshold(host), 0.012);
    let start = Some(Span::from_millis(20));
    let told = Config { auto: Some(Auto { start, ..Auto::default() }), ..at(20) };
    cluster.set_config(host, told);
    assert_eq!(cluster.threshold(host), 0.020);
    cluster.set_config(host, at(15));
    assert_eq!((cluster.threshold(host), cluster.estimate(host)), (0.015, None));
}

/// What a cluster may go through.
#[derive(Clone, Copy, Debug)]
enum Weather {
    Held,
    Light,
    Idle,
    Silent,
    Slow(f64),
    Leader(f64),
    Pinned(f64),
    Wild(f64, f64, f64),
}

fn weather() -> impl Strategy<Value = Weather> {
    let latency = || 1e-5..1.0;
    prop_oneof![
        20 => Just(Weather::Held),
        1 => Just(Weather::Light),
        1 => Just(Weather::Idle),
        1 => Just(Weather::Silent),
        1 => (0.2..5.0).prop_map(Weather::Slow),
        1 => latency().prop_map(Weather::Leader),
        1 => latency().prop_map(Weather::Pinned),
        1 => (latency(), 1.0..1e4, 1.0..1e6).prop_map(|(l, n, x)| Weather::Wild(l, n, x)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// From far below and far above it goes to the knee of any array, and stays there.
    #[test]
    fn it_goes_to_the_knee_and_stays(
        start in 0.002..0.095,
        peak in 100.0..1e5,
        service in 0.001..0.030,
        noise in 0.0..0.02,
        seed in 1..u64::MAX,
    ) {
        let mut curve = Curve { random: seed, ..Curve::new(peak, service, noise) };
        let mut learner = learner(start);
        run(&mut learner, &mut curve, 800);
        let late = mean(&run(&mut learner, &mut curve, 400));
        // 93 % of the peak is at 1.7 times the service time, 99 % at 3.2 times.
        prop_assert!(late > curve.latency_at(0.90), "{late} {:?}", learner.estimate());
        // One IO is always outstanding. Where it takes longer than that, no window meets the knee.
        let highest = curve.latency_at(0.995).max(1.5 * curve.latency_of(1.0));
        prop_assert!(late < highest, "{late} {:?}", learner.estimate());
    }

    /// Whatever happens, no move is larger than the step, and none leaves the bounds.
    #[test]
    fn no_move_is_larger_than_a_step_nor_beyond_a_bound(
        script in prop::collection::vec((weather(), 1..40usize), 1..40),
        peak in 50.0..1e5,
        service in 1e-4..0.05,
        noise in 0.0..0.2,
        step in 0.02..0.5,
        start in 1e-4..0.1,
        seed in 1..u64::MAX,
    ) {
        let auto = Auto { step, ..Auto::default() };
        let mut learner = Learner::new(auto, Span::from_secs(start), false);
        let mut curve = Curve { random: seed, ..Curve::new(peak, service, noise) };
        for _ in 0..3 {
            learner.period(&alone(), None);
        }
        for (weather, periods) in script {
            if let Weather::Slow(by) = weather {
                (curve.peak, curve.service) = (peak / by, service * by);
            }
            for _ in 0..periods {
                let before = learner.threshold().secs();
                let seen = curve.held(before);
                let told = |secs| Some(Span::from_secs(secs));
                match weather {
                    Weather::Held | Weather::Slow(_) => learner.period(&alone(), Some(&seen)),
                    Weather::Light => {
                        let seen = Observation { in_use: false, ..seen };
                        learner.period(&alone(), Some(&seen));
                    }
                    Weather::Idle => learner.period(&alone(), None),
                    Weather::Silent => learner.stay(Why::Silent),
                    Weather::Leader(secs) => {
                        learner.period(&Thresholds { leader: told(secs), ..alone() }, Some(&seen));
                    }
                    Weather::Pinned(secs) => {
                        learner.period(&Thresholds { pinned: told(secs), ..alone() }, Some(&seen));
                    }
                    Weather::Wild(latency, outstanding, rate) => {
                        let seen = Observation { latency, outstanding, throughput: rate.ln(), ..seen };
                        learner.period(&alone(), Some(&seen));
                    }
                }
                let now = learner.threshold().secs();
                prop_assert!((1e-4..=0.1).contains(&now), "{}", now);
                let moved = (now / before).max(before / now);
                prop_assert!(moved <= 1.0 + step + 1e-4, "{} to {}", before, now);
                if matches!(weather, Weather::Idle | Weather::Silent) {
                    prop_assert_eq!(now, before);
                }
            }
        }
    }
}
