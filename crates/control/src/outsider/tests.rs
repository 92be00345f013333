use alloc::vec::Vec;

use super::*;

/// An array of drives with random queues: L = s · (N + D − 1) / D, and what is beside ours.
struct Array {
    service: f64,
    drives: f64,
    outsider: f64,
}

const ALONE: Array = Array { service: 0.006, drives: 10.0, outsider: 0.0 };

impl Array {
    fn latency(&self, outstanding: f64) -> f64 {
        self.service * (outstanding + self.outsider + self.drives - 1.0) / self.drives
    }
}

/// Our hosts, as the law has them.
struct Hosts {
    detector: Detector,
    outstanding: f64,
    periods: u32,
}

const THRESHOLD: f64 = 0.030;

impl Hosts {
    fn new() -> Hosts {
        Hosts { detector: Detector::default(), outstanding: 8.0, periods: 0 }
    }

    /// Lets so many periods pass beside the array, and answers what is found after each.
    fn live(&mut self, array: &Array, periods: u32) -> Vec<Finding> {
        (0..periods).map(|_| self.period(array)).collect()
    }

    fn period(&mut self, array: &Array) -> Finding {
        self.periods += 1;
        // A deviation that is different in each period, and alike in each run.
        let chance = 0.02 * libm::sin(f64::from(self.periods) * 2.4);
        let latency = array.latency(self.outstanding) * (1.0 + chance);
        let rate = self.outstanding / latency;
        let Hosts { outstanding, .. } = *self;
        self.detector.period(&Seen {
            rate,
            outstanding,
            ios: rate,
            reads: 1.0,
            size: 8192.0,
            early: false,
        });
        let target = outstanding * (THRESHOLD / latency).clamp(0.5, 1.5);
        self.outstanding = (0.3 * outstanding + 0.7 * target).max(1.0);
        self.detector.finding()
    }
}

fn named(found: &[Finding]) -> Option<&Finding> {
    found.iter().find(|found| found.state == State::Outsider)
}

#[test]
fn an_outsider_is_named_with_its_size_and_missed_when_it_goes() {
    for outsider in [20.0, 40.0, 120.0] {
        let mut hosts = Hosts::new();
        assert!(hosts.live(&ALONE, 60).iter().all(|found| found.state <= State::Usual));
        let found = hosts.live(&Array { outsider, ..ALONE }, 40);
        let named = named(&found).unwrap_or_else(|| panic!("{outsider} of {:?}", found.last()));
        let (least, most) = named.within;
        assert!(least < outsider && outsider < most, "{outsider}: {named:?}");
        assert!((named.outstanding / outsider - 1.0).abs() < 0.2, "{outsider}: {named:?}");
        let after = hosts.live(&ALONE, 30);
        assert_eq!(after.last().map(|found| found.state), Some(State::Usual));
    }
}

#[test]
fn slower_drives_are_no_outsider_whether_they_fail_at_once_or_little_by_little() {
    for factor in [1.2, 1.5, 2.0, 4.0] {
        let mut hosts = Hosts::new();
        hosts.live(&ALONE, 60);
        let found = hosts.live(&Array { service: factor * ALONE.service, ..ALONE }, 60);
        assert_eq!(named(&found), None, "{factor}");
        assert!(found.iter().any(|found| found.state == State::Slower), "{factor}");
    }
    let mut hosts = Hosts::new();
    hosts.live(&ALONE, 60);
    for step in 1..=100 {
        let service = ALONE.service * (1.0 + 0.02 * f64::from(step));
        let found = hosts.live(&Array { service, ..ALONE }, 2);
        assert_eq!(named(&found), None, "{step}");
    }
}

#[test]
fn an_array_that_stays_slower_is_the_usual_one_after_a_while() {
    let mut hosts = Hosts::new();
    hosts.live(&ALONE, 60);
    let slow = Array { service: 2.0 * ALONE.service, ..ALONE };
    let found = hosts.live(&slow, ADOPTS + 40);
    assert_eq!(found.last().map(|found| found.state), Some(State::Usual));
    // From then on faster drives, and slow ones again, are news.
    hosts.live(&ALONE, 60);
    assert!(hosts.live(&slow, 20).iter().any(|found| found.state == State::Slower));
}

#[test]
fn nothing_is_found_where_hosts_are_missing_or_ask_for_other_things() {
    let mut hosts = Hosts::new();
    hosts.live(&ALONE, 60);
    hosts.live(&Array { outsider: 60.0, ..ALONE }, 20);
    hosts.detector.pause();
    assert_eq!(hosts.detector.finding(), Finding::default());
    // Larger IOs take longer: that is another kind of load.
    let mut detector = Detector::default();
    for period in 0..80 {
        let (size, latency) = if period < 60 { (8192.0, 0.030) } else { (65536.0, 0.050) };
        let (rate, outstanding) = (50.0 / latency, 50.0);
        detector.period(&Seen { rate, outstanding, ios: rate, reads: 1.0, size, early: false });
        assert!(detector.finding().state <= State::Usual, "{period}");
    }
}

#[test]
fn impossible_periods_change_nothing() {
    let mut detector = Detector::default();
    for (rate, outstanding) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
        detector.period(&Seen { rate, outstanding, ..Seen::default() });
        assert_eq!(detector.finding(), Finding::default());
    }
}
