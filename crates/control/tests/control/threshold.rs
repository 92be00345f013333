//! A threshold that is found while working: it goes where throughput stops growing, by no more than
//! its step, on no thin data, the same on all hosts, and then stays there.

use crate::common;

use common::{Cluster, VmSpec};
use parda_control::law::LawConfig;
use parda_control::threshold::{Learner, Observation, Step, Why};
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

    fn outstanding(&self, latency: f64) -> f64 {
        let half = self.peak * self.service;
        ((latency * self.peak).powi(3) - half.powi(3)).max(1.0).cbrt()
    }

    /// A period of a second in which the law holds it at `threshold`.
    fn held(&mut self, threshold: f64) -> Observation {
        // The law's window comes from the latency of the period before, which has noise of its own.
        let outstanding = self.outstanding(threshold) * (1.0 + 0.5 * self.noise * self.draw());
        let rate = self.throughput(outstanding) * (1.0 + self.noise * self.draw());
        Observation {
            rate,
            total: rate,
            ios: rate,
            latency: outstanding / rate,
            outstanding,
            windows: outstanding,
            in_use: true,
            least: 1.0,
            size: 8192.0,
            reads: 0.7,
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

/// Lets it work for so many periods; the threshold after each.
fn run(learner: &mut Learner, curve: &mut Curve, periods: usize) -> Vec<f64> {
    let period = |_| {
        let seen = curve.held(learner.threshold().secs());
        learner.period(&alone(), Some(&seen));
        learner.threshold().secs()
    };
    (0..periods).map(period).collect()
}

/// How often the threshold that it keeps, tries left out, turns round.
fn turns(trace: &[f64]) -> usize {
    // A try comes back to where it began; what is kept is not come back from in the next 60.
    let kept: Vec<f64> = trace.windows(60).map(|w| w.iter().copied().fold(0.0, f64::max)).collect();
    let moves: Vec<bool> = kept.windows(2).filter(|w| w[0] != w[1]).map(|w| w[1] > w[0]).collect();
    moves.windows(2).filter(|w| w[0] != w[1]).count()
}

#[test]
fn it_goes_to_the_knee_from_below_and_from_above_and_stays() {
    for noise in [0.0, 0.01, 0.02] {
        for start in [0.008, 0.030, 0.095] {
            let mut curve = Curve::new(3000.0, 0.010, noise);
            let mut learner = learner(start);
            run(&mut learner, &mut curve, 200);
            let trace = run(&mut learner, &mut curve, 600);
            let mean = trace.iter().sum::<f64>() / trace.len() as f64;
            let throughput = curve.throughput(curve.outstanding(mean)) / curve.peak;
            let what = format!("noise {noise}, from {start}: {mean}, {throughput}");
            assert!(throughput > 0.95, "{what}");
            // A latency that is 1.6 times the service time has 90 % of the peak, 2.3 times 97 %.
            assert!(mean < curve.latency_at(0.995), "{what}");
            assert!(turns(&trace) <= 8, "{what}: {} turns", turns(&trace));
        }
    }
}

#[test]
fn it_follows_a_capacity_that_halves_and_returns() {
    let mut curve = Curve::new(3000.0, 0.010, 0.015);
    let mut learner = learner(0.015);
    run(&mut learner, &mut curve, 200);
    let before = learner.threshold().secs();
    // Every drive takes twice as long: the same outstanding, twice the latency.
    (curve.peak, curve.service) = (1500.0, 0.020);
    run(&mut learner, &mut curve, 100);
    let estimate = learner.estimate();
    assert!((1.5..3.0).contains(&(learner.threshold().secs() / before)), "{estimate:?}");
    let throughput = curve.throughput(curve.outstanding(learner.threshold().secs()));
    assert!(throughput > 0.95 * curve.peak, "{throughput}");
    assert_eq!(estimate.drifts, 1);
    assert!(estimate.drift.is_some_and(|drift| drift < -0.4), "{estimate:?}");
    (curve.peak, curve.service) = (3000.0, 0.010);
    run(&mut learner, &mut curve, 150);
    let again = learner.threshold().secs() / before;
    assert!((0.6..1.5).contains(&again), "{again}: {:?}", learner.estimate());
    assert_eq!(learner.estimate().drifts, 2);
}

#[test]
fn half_the_drives_leave_the_threshold_where_it_is() {
    let mut curve = Curve::new(3000.0, 0.010, 0.015);
    let mut learner = learner(0.020);
    run(&mut learner, &mut curve, 200);
    let before = learner.threshold().secs();
    curve.peak = 1500.0;
    run(&mut learner, &mut curve, 200);
    let ratio = learner.threshold().secs() / before;
    assert!((0.65..1.5).contains(&ratio), "{ratio}: {:?}", learner.estimate());
}

#[test]
fn few_ios_move_nothing() {
    let mut curve = Curve::new(3.0, 0.010, 0.0);
    let mut learner = learner(0.020);
    // 200 IOs at 3 a second take 67 periods.
    let trace = run(&mut learner, &mut curve, 60);
    assert!(trace.iter().all(|t| *t == 0.020), "{trace:?}");
    assert_eq!(learner.estimate().why, Why::Gathers);
}

#[test]
fn light_load_moves_nothing() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.030);
    for _ in 0..300 {
        let mut seen = curve.held(0.011);
        seen.windows = 64.0;
        seen.in_use = false;
        learner.period(&alone(), Some(&seen));
        assert_eq!(learner.threshold().secs(), 0.030);
    }
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
    for _ in 0..20 {
        let seen = Observation { in_use: false, ..curve.held(0.011) };
        learner.period(&alone(), Some(&seen));
    }
    assert_eq!(learner.threshold().secs(), 0.020);
}

#[test]
fn a_try_during_which_other_ios_come_says_nothing() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.012);
    while matches!(learner.estimate().why, Why::Gathers | Why::Joins) {
        run(&mut learner, &mut curve, 1);
    }
    for _ in 0..12 {
        let mut seen = curve.held(learner.threshold().secs());
        (seen.size, seen.reads) = (65536.0, 0.2);
        learner.period(&alone(), Some(&seen));
        if learner.threshold().secs() == 0.012 {
            break;
        }
    }
    assert_eq!(learner.estimate().last.unwrap().0.why, Why::Mix);
}

#[test]
fn hosts_that_pause_do_not_look_like_an_array_that_gives_more_for_more() {
    for periods in [1, 4] {
        let mut curve = Curve::new(3000.0, 0.010, 0.01);
        let mut learner = learner(0.025);
        run(&mut learner, &mut curve, 200);
        let found = learner.threshold().secs();
        for period in 0..1200 {
            let mut seen = curve.held(learner.threshold().secs());
            // For some periods one of two pauses: half the throughput, and half outstanding.
            if (period / periods) % 2 == 0 {
                (seen.who, seen.rate) = (1, 0.5 * seen.rate);
                seen.outstanding *= 0.5;
            }
            learner.period(&alone(), Some(&seen));
        }
        let ratio = learner.threshold().secs() / found;
        assert!((0.6..1.5).contains(&ratio), "{periods}: {ratio}, {:?}", learner.estimate());
    }
}

#[test]
fn a_threshold_that_just_bounds_nobody_is_compared_with_one_that_does() {
    // 512 outstanding are all that is wanted: 2.56 ms. The knee is far below.
    let mut curve = Curve::new(200_000.0, 0.0002, 0.002);
    let mut learner = learner(0.0028);
    for _ in 0..400 {
        let now = learner.threshold().secs();
        let mut seen = curve.held(now.min(0.00256));
        // A host that has all it wants does not want more.
        (seen.who, seen.used) = if now < 0.00256 { (1, 8) } else { (0, 0) };
        seen.windows = curve.outstanding(now);
        learner.period(&alone(), Some(&seen));
    }
    let threshold = learner.threshold().secs();
    assert!(threshold < 0.001, "{threshold}: {:?}", learner.estimate());
}

#[test]
fn what_other_hosts_lose_counts() {
    // Half of what is outstanding is theirs, always: they lose what the others win.
    let mut curve = Curve::new(3000.0, 0.001, 0.01);
    let mut learner = learner(0.030);
    for _ in 0..600 {
        let mut seen = curve.held(learner.threshold().secs());
        let theirs = 45.0 / learner.threshold().secs();
        seen.total = seen.rate;
        (seen.rate, seen.light_rate, seen.light) = ((seen.rate - theirs).max(1.0), theirs, 0.5);
        learner.period(&alone(), Some(&seen));
    }
    let threshold = learner.threshold().secs();
    assert!(threshold < 0.040, "{threshold}: {:?}", learner.estimate());
}

#[test]
fn an_outsider_that_comes_does_not_take_it_up() {
    let mut curve = Curve::new(3000.0, 0.010, 0.01);
    let mut learner = learner(0.025);
    run(&mut learner, &mut curve, 300);
    let found = learner.threshold().secs();
    let mut highest: f64 = 0.0;
    for period in 0..600 {
        // It always has 40 outstanding, of about 75.
        let latency = learner.threshold().secs();
        let mut seen = curve.held(latency);
        seen.rate -= 40.0 / latency;
        seen.outstanding -= 40.0;
        learner.period(&alone(), Some(&seen));
        if period > 200 {
            highest = highest.max(learner.threshold().secs());
        }
    }
    assert!(highest < 1.3 * found, "{found} to {highest}: {:?}", learner.estimate());
    assert!(matches!(learner.estimate().why, Why::Outsider | Why::Tries(Step::Down)));
    // It goes: all is as before.
    run(&mut learner, &mut curve, 300);
    let ratio = learner.threshold().secs() / found;
    assert!((0.6..1.5).contains(&ratio), "{ratio}: {:?}", learner.estimate());
}

#[test]
fn a_threshold_that_no_window_can_meet_rises() {
    let mut learner = learner(0.004);
    for _ in 0..100 {
        // One IO at a time takes 10 ms.
        let seen = Observation {
            rate: 100.0,
            ios: 100.0,
            latency: 0.010,
            outstanding: 1.0,
            windows: 1.0,
            in_use: true,
            least: 1.0,
            size: 4096.0,
            reads: 1.0,
            ..Observation::default()
        };
        learner.period(&alone(), Some(&seen));
    }
    let threshold = learner.threshold().secs();
    assert!((0.0066..0.015).contains(&threshold), "{threshold}");
}

#[test]
fn a_threshold_that_bounds_nobody_falls_until_it_does() {
    let mut learner = learner(0.030);
    for _ in 0..200 {
        // Windows at their most, and well used: flash.
        let seen = Observation {
            rate: 200_000.0,
            ios: 200_000.0,
            latency: 0.000_64,
            outstanding: 128.0,
            windows: 128.0,
            in_use: true,
            least: 1.0,
            size: 4096.0,
            reads: 1.0,
            ..Observation::default()
        };
        learner.period(&alone(), Some(&seen));
    }
    let threshold = learner.threshold().secs();
    assert!((0.0005..0.000_8).contains(&threshold), "{threshold}");
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
    assert!(apart < 40, "{apart} of 400 s");
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
                        let seen = Observation { latency, outstanding, rate, ..seen };
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
