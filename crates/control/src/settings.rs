//! Settings that all hosts of a volume must have alike, and the values in force where they differ.
//!
//! Shares compare hosts with each other. They mean nothing between a host that counts IOs and one that counts
//! bytes, or between hosts with different thresholds. Every host publishes its settings, and every host counts
//! the same votes. A value has as many votes as the hosts with that value have shares. The value with the most
//! votes is in force on all hosts; at a tie, the smaller one. So one host with a wrong setting cannot change
//! the others. An operator's change takes effect once, when more than half of the shares have it. Neither the
//! order of hosts nor the time of reading matters.

use crate::io::Costs;
use crate::latency::Signal;
use crate::units::{Shares, Span};

/// Most values of one setting that are counted: the smallest ones.
const VALUES: usize = 6;

/// Settings that hosts must have alike, beside the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Costs of IOs, where shares divide costs per second ([`crate::rate`]). `None`: shares divide outstanding
    /// IOs, as in the papers. Then throughput follows as far as the array serves equal queues alike.
    pub costs: Option<Costs>,
    /// Which IOs' latency drives the window.
    pub signal: Signal,
}

/// The votes for the values of one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Votes<T> {
    /// Values with their votes, sorted by value.
    votes: [Option<(T, u64)>; VALUES],
}

impl<T> Default for Votes<T> {
    fn default() -> Votes<T> {
        Votes { votes: [const { None }; VALUES] }
    }
}

impl<T: Copy + Ord> Votes<T> {
    /// Adds votes for a value. The result does not depend on the order of the calls.
    pub fn add(&mut self, value: T, votes: u64) {
        // Nearly always all hosts have one value, and n hosts add the votes of n hosts.
        if let Some((first, sum)) = &mut self.votes[0]
            && *first == value
        {
            *sum = sum.saturating_add(votes);
            return;
        }
        let Some(place) =
            self.votes.iter().position(|vote| vote.is_none_or(|(other, _)| other >= value))
        else {
            return;
        };
        match &mut self.votes[place] {
            Some((other, sum)) if *other == value => *sum = sum.saturating_add(votes),
            _ => {
                // The largest value falls out where there are too many.
                self.votes[place..].rotate_right(1);
                self.votes[place] = Some((value, votes));
            }
        }
    }

    /// Counts the votes of both.
    #[must_use]
    pub fn plus(mut self, other: Votes<T>) -> Votes<T> {
        self.merge(&other);
        self
    }

    /// Counts other votes as well.
    fn merge(&mut self, other: &Votes<T>) {
        // Values come first, and those that there are not after them.
        let there = other.votes.iter().map_while(|vote| *vote);
        there.for_each(|(value, votes)| self.add(value, votes));
    }

    /// The value that is in force. `None` without any.
    #[must_use]
    pub fn winner(&self) -> Option<T> {
        let most = self.votes.iter().flatten().map(|(_, votes)| *votes).max()?;
        self.votes.iter().flatten().find(|(_, votes)| *votes == most).map(|(value, _)| *value)
    }

    /// Whether there is more than one value.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.votes[1].is_some()
    }
}

/// The votes for all settings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ballot {
    /// Votes on [`Settings::costs`].
    pub costs: Votes<Option<Costs>>,
    /// Votes on [`Settings::signal`].
    pub signal: Votes<Signal>,
    /// Votes on the threshold, of hosts that have a number configured.
    pub threshold: Votes<Span>,
}

impl Ballot {
    /// Counts a host's settings. `threshold`: if an operator gave it as a number.
    pub fn add(&mut self, settings: Option<Settings>, threshold: Option<Span>, shares: Shares) {
        let votes = u64::from(shares.0);
        if let Some(Settings { costs, signal }) = settings {
            self.costs.add(costs, votes);
            self.signal.add(signal, votes);
        }
        if let Some(threshold) = threshold {
            self.threshold.add(threshold, votes);
        }
    }

    /// Counts the votes of both ballots.
    #[must_use]
    pub fn plus(mut self, other: Ballot) -> Ballot {
        self.merge(&other);
        self
    }

    /// Counts the votes of another ballot as well.
    pub(crate) fn merge(&mut self, other: &Ballot) {
        self.costs.merge(&other.costs);
        self.signal.merge(&other.signal);
        self.threshold.merge(&other.threshold);
    }

    /// Settings in force, beside the threshold. `None` without votes.
    #[must_use]
    pub fn settings(&self) -> Option<Settings> {
        Some(Settings { costs: self.costs.winner()?, signal: self.signal.winner()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(votes: &[(u64, u64)]) -> Votes<Span> {
        let mut all = Votes::default();
        votes.iter().for_each(|(value, n)| all.add(Span(*value), *n));
        all
    }

    #[test]
    fn the_value_with_the_most_shares_is_in_force_and_of_equals_the_smaller() {
        assert_eq!(votes(&[]).winner(), None);
        assert_eq!(votes(&[(30, 1000), (20, 400), (20, 500)]).winner(), Some(Span(30)));
        assert_eq!(votes(&[(30, 1000), (20, 400), (20, 601)]).winner(), Some(Span(20)));
        assert_eq!(votes(&[(30, 1000), (20, 400), (20, 600)]).winner(), Some(Span(20)));
        assert_eq!(votes(&[(7, 0)]).winner(), Some(Span(7)), "a host without VMs, alone");
    }

    #[test]
    fn a_difference_is_seen_whoever_has_shares() {
        assert!(!votes(&[(30, 1000), (30, 1)]).differ());
        assert!(votes(&[(30, 1000), (31, 0)]).differ());
    }

    #[test]
    fn no_order_changes_anything_however_many_values_there_are() {
        let all: [(u64, u64); 9] =
            [(9, 5), (1, 3), (8, 90), (2, 1), (3, 4), (7, 80), (2, 4), (6, 2), (5, 1)];
        let first = votes(&all);
        for turn in 0..all.len() {
            let mut order = all;
            order.rotate_left(turn);
            assert_eq!(votes(&order), first);
            order.reverse();
            assert_eq!(votes(&order), first);
            let (one, other) = order.split_at(turn);
            assert_eq!(votes(one).plus(votes(other)), first);
        }
        // The six smallest are 1, 2, 3, 5, 6 and 7.
        assert_eq!(first.winner(), Some(Span(7)));
    }

    #[test]
    fn settings_are_voted_for_each_by_itself() {
        let bytes = Settings { costs: Some(Costs::BYTES), ..Settings::default() };
        let reads = Settings { signal: Signal::Reads, ..Settings::default() };
        let mut ballot = Ballot::default();
        ballot.add(None, Some(Span(30)), Shares(9000));
        assert_eq!(ballot.settings(), None, "an older version says nothing of them");
        ballot.add(Some(bytes), None, Shares(1000));
        ballot.add(Some(reads), None, Shares(700));
        ballot.add(Some(Settings { signal: Signal::Reads, ..bytes }), None, Shares(500));
        let won = ballot.settings();
        assert_eq!(won, Some(Settings { signal: Signal::Reads, ..bytes }));
        assert_eq!(ballot.threshold.winner(), Some(Span(30)));
    }
}
