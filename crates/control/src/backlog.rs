//! How well the hosts that want more are served, and what that costs the others: what a threshold is judged by.

use libm::{exp, log, round};

use crate::cluster::{Governed, Report};
use crate::latency::Flows;

/// Sums over hosts. Hosts that want more than they have are *backlogged*.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Which of the other hosts are backlogged: a sum over what is drawn from their names. Filled in by who hears them.
    who: u64,
    /// Σ s over the shares s of the backlogged hosts, and Σ s · ln (X / s), with X in IO/s.
    shares: f64,
    served: f64,
    /// Outstanding IOs of these.
    outstanding: f64,
    /// IO/s of the hosts that want no more, of those outside control that are heard among them, and what they have outstanding.
    light_rate: f64,
    light_outstanding: f64,
}

impl Backlog {
    /// Of one host's report: backlogged, or light load.
    pub(crate) fn of(report: &Report) -> Backlog {
        let all = report.interval.reads.plus(report.interval.writes);
        let (secs, outstanding) = (report.elapsed.secs(), report.outstanding);
        if !report.wants() || report.governed != Governed::Yes || secs <= 0.0 {
            let light_rate = if secs > 0.0 { all.ios as f64 / secs } else { 0.0 };
            return Backlog { light_rate, light_outstanding: outstanding, ..Backlog::default() };
        }
        // A host has shares, and one IO more keeps the logarithm of none at bay.
        let shares = f64::from(report.shares.0).max(1.0);
        let served = shares * log((all.ios as f64 + 1.0) / (secs * shares));
        Backlog { shares, served, outstanding, ..Backlog::default() }
    }

    /// Takes in which host is backlogged, by a number drawn from its name.
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

    /// IO/s of the backlogged hosts: all of them, if each had as much for each share as the geometric mean. Where throughput follows
    /// shares that is their sum. Elsewhere it rises where the gains, as parts, outweigh the losses: proportional fairness.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.shares > 0.0).then(|| self.shares * exp(self.served / self.shares))
    }

    /// IO/s of all others that are heard, and what part of all that is outstanding is theirs.
    #[must_use]
    pub fn light(&self) -> (f64, f64) {
        let all = self.outstanding + self.light_outstanding;
        (self.light_rate, if all > 0.0 { self.light_outstanding / all } else { 0.0 })
    }

    /// Number that stands for who is backlogged, `own` among them, and for the kind of load: size in steps of 28 %, part of reads in
    /// eighths.
    #[must_use]
    pub fn class(&self, own: bool, flows: &Flows) -> u64 {
        let all = flows.all();
        let kind = [4.0 * log(all.bytes / all.ios), 8.0 * flows.reads.ios / all.ios];
        let who = self.who.wrapping_add(u64::from(own));
        kind.iter().fold(who, |class, part| mixed(class) ^ round(*part) as u64)
    }
}

/// Numbers that differ in one bit must not add up to those of others.
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

    #[test]
    fn throughput_that_follows_shares_is_added_up_and_an_unequal_one_is_worth_less() {
        let rate = |slow, fast| {
            of(&[(1000, slow, Bounded::Slices), (3000, fast, Bounded::Slices)]).rate().unwrap()
        };
        assert!((rate(999, 2999) - 4000.0).abs() < 1e-6);
        assert!(rate(99, 5099) < 0.9 * rate(999, 2999));
    }

    #[test]
    fn who_wants_no_more_is_none_of_them() {
        let both = of(&[(1000, 999, Bounded::Slices), (9000, 50, Bounded::Nothing)]);
        assert!((both.rate().unwrap() - 1000.0).abs() < 1e-6);
        assert_eq!(both.light(), (50.0, 0.5));
        assert_eq!(of(&[(1000, 5, Bounded::Nothing)]).rate(), None);
    }
}
