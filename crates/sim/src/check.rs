//! Invariants of a simulated cluster, checked after every event.

use parda_control::{Instant, Span, Window};

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    /// A host sent an IO to the array beyond its window.
    #[error(
        "{host} sent an IO of {cost} slots with {outstanding} of its window of {window} at the \
         array"
    )]
    Window {
        /// Name of the host.
        host: String,
        /// Slots that it had at the array before.
        outstanding: f64,
        /// Slots of that IO.
        cost: f64,
        /// Window of the host, in slots.
        window: f64,
    },
    /// A VM sent an IO to the array that its limit does not allow yet.
    #[error("VM {vm} sent an IO {} ms before its limit allows it", early.secs() * 1e3)]
    Limit {
        /// Name of the VM.
        vm: String,
        /// Time for which it should have waited.
        early: Span,
    },
    /// IOs are lost, or have come back twice.
    #[error("{whose}: {are} IOs are under way in its own books, {should} in those of {by}")]
    Books {
        /// Who keeps the books.
        whose: String,
        /// How many they say.
        are: usize,
        /// The other count, by its name.
        by: &'static str,
        /// How many those say.
        should: usize,
    },
    /// The array refused an IO, or completed one that is not under way.
    #[error("the array: {0}")]
    Array(String),
    /// A closed loop that did not keep its number of IOs under way: Little's law.
    #[error(
        "VM {vm}: the times of its IOs in phase {phase} add up to {lived} IO·ns, but {outstanding} \
         outstanding for {span} ns are {} (Little's law)", u128::from(*.outstanding) * u128::from(*.span)
    )]
    Little {
        /// Name of the VM.
        vm: String,
        /// Name of the phase.
        phase: String,
        /// How long its IOs were in the system, together.
        lived: u128,
        /// How many it keeps under way.
        outstanding: u32,
        /// The length of the phase.
        span: u64,
    },
    /// The IOs of a client's run do not add up.
    #[error(
        "VM {vm}: of {arrived} IOs that arrived {completed} are done, {under_way} under way, and \
         {waiting} wait"
    )]
    Arrivals {
        /// Name of the VM.
        vm: String,
        /// IOs that it wanted to do.
        arrived: u64,
        /// IOs that came back.
        completed: u64,
        /// IOs that did not yet.
        under_way: u64,
        /// IOs that it has not begun.
        waiting: u64,
    },
    /// The lives of IOs are not what was outstanding over time.
    #[error("VM {vm}: its IOs have lived {lived} IO·ns, and {outstanding} IO·ns were outstanding")]
    Lives {
        /// Name of the VM.
        vm: String,
        /// How long its IOs were in the system, together.
        lived: u128,
        /// How many were under way, integrated over time.
        outstanding: i128,
    },
    /// Time stood still or ran backwards.
    #[error("time went from {} to {} ns", .0.0, .1.0)]
    Time(Instant, Instant),
}

/// What comes of rounding: costs are multiples of 1/1024 slot.
const ROUNDING: f64 = 1e-6;

/// Whether an IO may go to the array: within the window as a whole, or beyond it as the fraction
/// by which the window is not yet full.
pub(crate) fn window(
    host: &str,
    outstanding: f64,
    cost: f64,
    Window(window): Window,
) -> Result<(), Violation> {
    if outstanding + cost <= window + ROUNDING || outstanding < window {
        return Ok(());
    }
    Err(Violation::Window { host: host.to_owned(), outstanding, cost, window })
}

/// Whether two books agree.
pub(crate) fn books(
    whose: &str,
    are: usize,
    by: &'static str,
    should: usize,
) -> Result<(), Violation> {
    if are == should {
        return Ok(());
    }
    Err(Violation::Books { whose: whose.to_owned(), are, by, should })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(outstanding: f64, cost: f64, w: f64) -> bool {
        window("a", outstanding, cost, Window(w)).is_ok()
    }

    #[test]
    fn an_io_goes_within_the_window_or_as_its_fraction() {
        assert!(goes(3.0, 1.0, 4.0) && goes(3.0, 1.0, 3.5) && goes(0.0, 1.0, 0.2));
        assert!(goes(2.0, 8.0, 4.0), "one IO may be larger than what is left");
        assert!(!goes(4.0, 1.0, 4.0) && !goes(4.0, 1.0, 3.5) && !goes(1.0, 1.0, 0.2));
    }

    #[test]
    fn a_violation_says_whose_and_how_much() {
        let error = window("kvm-01", 4.0, 1.0, Window(3.5)).unwrap_err().to_string();
        let expected = "kvm-01 sent an IO of 1 slots with 4 of its window of 3.5 at the array";
        assert_eq!(error, expected);
        assert_eq!(books("kvm-01", 7, "the law", 7), Ok(()));
        let error = books("kvm-01", 7, "the law", 8).unwrap_err().to_string();
        let expected = "kvm-01: 7 IOs are under way in its own books, 8 in those of the law";
        assert_eq!(error, expected);
    }
}
