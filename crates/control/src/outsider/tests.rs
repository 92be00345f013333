use super::*;

/// An array of so many IO/s that takes `WIDTH` IOs without a queue, with an outsider.
#[derive(Clone, Copy)]
struct Array {
    rate: f64,
    outsider: f64,
}

const WIDTH: f64 = 20.0;
const PENDING: f64 = 192.0;
const THRESHOLD: f64 = 0.030;
const ALONE: Array = Array { rate: 4000.0, outsider: 0.0 };

impl Array {
    /// A period of hosts with so many IOs outstanding, which answer an outsider at the usual threshold.
    fn seen(self, outstanding: f64, beside: f64) -> LoadsSeen {
        LoadsSeen {
            rate: outstanding * self.rate / (outstanding + self.outsider + WIDTH),
            outstanding,
            pending: PENDING,
            reads: 1.0,
            size: 8192.0,
            threshold: THRESHOLD,
            raised: beside > 0.0,
            answers: true,
        }
    }
}

/// Outstanding IOs that the law, in short, asks for after a period.
fn goal(seen: &LoadsSeen, beside: f64) -> f64 {
    let goal = seen.outstanding * (seen.threshold / seen.latency()).min(2.0);
    goal.max(needed(PENDING, beside).max(1.0)).min(PENDING)
}

/// Hosts under control, with the law in short.
struct Hosts {
    detector: Detector,
    outstanding: f64,
    threshold: f64,
    answers: bool,
}

impl Hosts {
    fn new(threshold: f64) -> Hosts {
        Hosts { detector: Detector::default(), outstanding: 12.0, threshold, answers: true }
    }

    /// So many periods; the throughput of the last one.
    fn work(&mut self, array: Array, periods: usize) -> f64 {
        let mut rate = 0.0;
        for _ in 0..periods {
            let (threshold, answers) = (self.threshold, self.answers);
            let seen = array.seen(self.outstanding, self.detector.beside());
            let seen = LoadsSeen { threshold, answers, ..seen };
            rate = seen.rate;
            self.detector.period(&seen);
            self.outstanding += 0.5 * (goal(&seen, self.detector.beside()) - self.outstanding);
        }
        rate
    }

    fn state(&self) -> OutsiderSign {
        self.detector.finding().state
    }
}

/// Throughput without control.
fn off(array: Array) -> f64 {
    array.rate * PENDING / (PENDING + array.outsider + WIDTH)
}

#[test]
fn hosts_keep_nine_tenths_beside_an_outsider_that_comes_and_the_threshold_when_it_goes() {
    for outsider in [24.0, 64.0, 128.0, 256.0, 1000.0] {
        let mut hosts = Hosts::new(THRESHOLD);
        let alone = hosts.work(ALONE, 60);
        let array = Array { outsider, ..ALONE };
        let beside = hosts.work(array, 15) / off(array);
        assert!(beside > 0.9, "{outsider}: {beside}");
        let later = hosts.work(array, 8000) / off(array);
        assert!(later > 0.9, "{outsider}: {later}, as it never goes");
        let after = hosts.work(ALONE, 10);
        assert!((after / alone - 1.0).abs() < 0.05, "{outsider}: {after} of {alone}");
        assert_eq!(hosts.state(), OutsiderSign::Usual, "{outsider}");
    }
}

#[test]
fn an_outsider_that_was_there_from_the_start_and_fills_the_array_leaves_hosts_their_part() {
    for outsider in [128.0, 256.0, 1000.0] {
        let mut hosts = Hosts::new(THRESHOLD);
        let array = Array { outsider, ..ALONE };
        let beside = hosts.work(array, 40) / off(array);
        assert!(beside > 0.9, "{outsider}: {beside}");
        assert_eq!(hosts.state(), OutsiderSign::BelowKnee);
        hosts.work(ALONE, 40);
        assert_eq!(hosts.state(), OutsiderSign::Usual);
        assert!((hosts.outstanding - 100.0).abs() < 5.0, "{}", hosts.outstanding);
    }
}

#[test]
fn a_slower_array_is_held_at_the_threshold() {
    for slower in [1.5, 2.0, 3.0] {
        let mut hosts = Hosts::new(THRESHOLD);
        hosts.work(ALONE, 60);
        let array = Array { rate: ALONE.rate / slower, ..ALONE };
        hosts.work(array, 60);
        let latency = (hosts.outstanding + WIDTH) / array.rate;
        assert!((latency / THRESHOLD - 1.0).abs() < 0.05, "{slower}: {latency}");
        assert_eq!(hosts.state(), OutsiderSign::Slower, "{slower}");
        hosts.work(array, ADOPTS as usize + 20);
        assert_eq!(
            hosts.state(),
            OutsiderSign::Usual,
            "{slower}: it is the usual one after an hour"
        );
    }
}

#[test]
fn a_threshold_that_costs_throughput_is_named_with_its_price() {
    let mut hosts = Hosts::new(0.012);
    let rate = hosts.work(ALONE, 40);
    let cost = hosts.detector.finding().cost.unwrap();
    assert!((cost.factor - off(ALONE) / rate).abs() < 0.05, "{cost:?}");
    assert!((cost.latency - 0.053).abs() < 0.002, "{cost:?}");
    assert!((rate / (ALONE.rate * 28.0 / 48.0) - 1.0).abs() < 0.05, "it is held: {rate}");
    let mut hosts = Hosts::new(THRESHOLD);
    hosts.work(ALONE, 40);
    assert_eq!(hosts.detector.finding().cost, None, "at the knee there is nothing to say");
}

#[test]
fn who_holds_the_threshold_tries_nothing() {
    let mut hosts = Hosts { answers: false, ..Hosts::new(THRESHOLD) };
    hosts.work(ALONE, 60);
    hosts.work(Array { outsider: 64.0, ..ALONE }, 60);
    assert_eq!((hosts.detector.beside(), hosts.state()), (0.0, OutsiderSign::Slower));
    let found = hosts.detector.finding();
    assert!((found.outstanding - 64.0).abs() < 8.0, "{found:?}");
}

#[test]
fn another_threshold_and_another_load_are_no_outsider() {
    let mut hosts = Hosts::new(0.050);
    hosts.work(ALONE, 60);
    hosts.threshold = 0.020;
    hosts.work(ALONE, 60);
    assert_eq!((hosts.state(), hosts.detector.beside()), (OutsiderSign::Usual, 0.0));
    let load = LoadsSeen {
        rate: 300.0,
        outstanding: 9.0,
        pending: 9.0,
        reads: 0.2,
        size: 262_144.0,
        threshold: 0.020,
        raised: false,
        answers: true,
    };
    hosts.detector.period(&load);
    assert_eq!(hosts.state(), OutsiderSign::Unknown);
    hosts.detector.period(&LoadsSeen { rate: 0.0, ..load });
    assert_eq!(hosts.detector.finding(), Finding::default());
}

#[test]
fn the_windows_that_hosts_need_are_those_that_leave_them_their_part() {
    for (pending, outsider) in [(192.0, 16.0), (192.0, 256.0), (4096.0, 64.0), (1e9, 64.0)] {
        let n = needed(pending, outsider);
        let part = n / (n + outsider) / (pending / (pending + outsider));
        assert!((part - KEPT).abs() < 1e-6, "{pending} {outsider}: {part}");
    }
    assert_eq!((needed(192.0, 0.0), needed(0.0, 64.0), needed(0.0, 0.0)), (0.0, 0.0, 0.0));
}

/// Hosts that each look for themselves, one round after the other, and weigh the others' findings as [`crate::cluster::Load::beside`] does.
struct Apart {
    hosts: [Detector; 3],
    outstanding: f64,
}

impl Apart {
    /// So many periods, a third of a period between two rounds; the mean throughput.
    fn work(&mut self, array: Array, periods: usize) -> f64 {
        let mut rates = 0.0;
        for round in 0..3 * periods {
            let seen = array.seen(self.outstanding, self.beside());
            rates += seen.rate / (3 * periods) as f64;
            self.hosts[round % 3].period(&seen);
            self.outstanding += 0.2 * (goal(&seen, self.beside()) - self.outstanding);
        }
        rates
    }

    fn beside(&self) -> f64 {
        let found = self.hosts.iter().map(Detector::beside).filter(|beside| *beside > 0.0);
        let of = if found.clone().count() > 1 { found.clone().count() } else { 3 };
        libm::expm1(found.map(libm::log1p).sum::<f64>() / of as f64)
    }
}

#[test]
fn hosts_whose_rounds_are_apart_agree_on_an_outsider_from_the_start_and_on_one_that_comes_again() {
    for outsider in [128.0, 256.0, 1000.0] {
        let array = Array { outsider, ..ALONE };
        let mut apart = Apart { hosts: [Detector::default(); 3], outstanding: 12.0 };
        apart.work(array, 40);
        let beside = apart.work(array, 60) / off(array);
        assert!(beside > 0.9, "{outsider}: {beside}");
    }
    for outsider in [64.0, 128.0, 256.0] {
        let array = Array { outsider, ..ALONE };
        let mut apart = Apart { hosts: [Detector::default(); 3], outstanding: 12.0 };
        apart.work(ALONE, 60);
        apart.work(array, 10);
        for pulse in 0..4 {
            apart.work(ALONE, 10);
            let beside = apart.work(array, 10) / off(array);
            assert!(beside > 0.85, "{outsider}, pulse {pulse}: {beside}");
        }
    }
}
