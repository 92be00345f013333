//! Throughput of backlogged hosts, and its cost to the others: the measure of a threshold.

use libm::{log, round};

use crate::cluster::{Governed, Report};
use crate::latency::Flows;

/// Sums over hosts. Hosts that want more than they have are *backlogged*.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Identity of the backlogged hosts: a sum over numbers drawn from their names. The host that hears them fills it in.
    who: u64,
    /// Σ s over the shares s of the backlogged hosts. Beside it Σ s · ln (X / s), with X in IO/s.
    shares: f64,
    served: f64,
    /// Outstanding IOs of the backlogged hosts.
    outstanding: f64,
    /// IO/s of the hosts that are not backlogged, including hosts outside control that are heard. Beside it their outstanding IOs.
    light_rate: f64,
    light_outstanding: f64,
}

impl Backlog {
    /// Backlog of one host's report: backlogged, or light load.
    pub(crate) fn of(report: &Report) -> Backlog {
        let all = report.interval.reads.plus(report.interval.writes);
        let (secs, outstanding) = (report.elapsed.secs(), report.outstanding);
        if !report.wants() || report.governed != Governed::Yes || secs <= 0.0 {
            let light_rate = if secs > 0.0 { all.ios as f64 / secs } else { 0.0 };
            return Backlog { light_rate, light_outstanding: outstanding, ..Backlog::default() };
        }
        // At least one share and one IO, so that the logarithm is finite.
        let shares = f64::from(report.shares.0).max(1.0);
        let served = shares * log((all.ios as f64 + 1.0) / (secs * shares));
        Backlog { shares, served, outstanding, ..Backlog::default() }
    }

    /// Adds a backlogged host by a number drawn from its name.
    pub(crate) fn name(&mut self, name: u64) {
        self.who = self.who.wrapping_add(mixed(name));
    }

    /// Sums over the hosts of two backlogs.
    #[must_use]
    pub fn plus(self, other: Backlog) -> Backlog {
        Backlog {
            who: self.who.wrapping_add(other.who),
            shares: self.shares + other.shares,
            served: self.served + other.served,
            outstanding: self.outstanding + other.outstanding,
            light_rate: self.light_rate + other.light_rate,
            light_outstanding: self.light_outstanding + other.light_outstanding,
        }
    }

    /// Logarithm of the throughput that a threshold is judged by, in IO/s, and the class of the period. Only periods of one class are
    /// compared. A class has the same backlogged hosts, `own` among them, and the same kind of load: size in steps of 28 %, and part
    /// of reads in eighths. `total`: IO/s of all governed hosts.
    ///
    /// Throughput of the backlogged hosts, if the throughput of each per share were the geometric mean. This is their sum if
    /// throughput follows shares. Elsewhere it rises when relative gains outweigh relative losses: proportional fairness. Other hosts
    /// count by their part of the outstanding IOs, in eighths: a change of the part is none of throughput.
    #[must_use]
    pub fn judged(&self, own: bool, total: f64, flows: &Flows) -> (f64, u64) {
        let (all, ln) = (flows.all(), |rate: f64| log(rate.max(1e-3)));
        let (mut throughput, mut light) = (ln(total), 0.0);
        if self.shares > 0.0 {
            throughput = ln(self.shares) + self.served / self.shares;
            let outstanding = self.outstanding + self.light_outstanding;
            light = round(8.0 * self.light_outstanding / outstanding.max(1e-9));
            throughput += light / 8.0 * (ln(self.light_rate) - throughput);
        }
        let kind = [light, 4.0 * log(all.bytes / all.ios), 8.0 * flows.reads.ios / all.ios];
        let who = self.who.wrapping_add(u64::from(own));
        let class = kind.iter().fold(who, |class, part| mixed(class) ^ round(*part) as u64);
        (throughput, class)
    }
}

/// Hash of a number: sums of numbers that differ in one bit must not collide with those of others.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Bounded;
    use crate::units::Shares;

    fn of(hosts: &[(u32, u64, Bounded)]) -> Backlog {
        let one = |&(shares, ios, bounded): &(u32, u64, Bounded)| {
            Backlog::of(&Report { bounded, shares: Shares(shares), ..crate::testing::report(ios) })
        };
        hosts.iter().map(one).fold(Backlog::default(), Backlog::plus)
    }

    fn throughput(hosts: &[(u32, u64, Bounded)]) -> f64 {
        libm::exp(of(hosts).judged(true, 500.0, &Flows::default()).0)
    }

    #[test]
    fn throughput_that_follows_shares_is_added_up_and_an_unequal_one_is_worth_less() {
        let of = |slow, fast| {
            throughput(&[(1000, slow, Bounded::Slices), (3000, fast, Bounded::Slices)])
        };
        assert!((of(999, 2999) - 4000.0).abs() < 1e-6);
        assert!(of(99, 5099) < 0.9 * of(999, 2999));
    }

    #[test]
    fn hosts_that_want_no_more_count_by_their_part_of_the_outstanding_ios() {
        let both = throughput(&[(1000, 999, Bounded::Slices), (9000, 10, Bounded::Nothing)]);
        assert!((both - 100.0).abs() < 1e-6, "half of each, in logarithms: {both}");
        let none = throughput(&[(1000, 5, Bounded::Nothing)]);
        assert!((none - 500.0).abs() < 1e-6, "{none}");
    }
}
