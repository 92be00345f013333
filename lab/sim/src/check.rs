//! Invariants of a simulated cluster, checked after every event. Names are fetched only for a violation: in a large cluster they are
//! far from the processor.

use parda_control::Window;

/// Description of a broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub(crate) String);

/// Tolerance for rounding: costs are multiples of 1/1024 slot.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Checks that an IO may go to the array: within the window, or beginning in a window not yet full. `own`: whether the VM is within
/// its own slice, whatever its neighbours have.
pub(crate) fn window<'a>(
    whose: impl FnOnce() -> &'a str,
    outstanding: f64,
    cost: f64,
    Window(window): Window,
    own: impl FnOnce() -> bool,
) -> Result<(), Violation> {
    if outstanding + cost <= window + ROUNDING || outstanding < window || own() {
        return Ok(());
    }
    Err(Violation(format!(
        "{} sent an IO of {cost} slots with {outstanding} of its window of {window} at the array",
        whose()
    )))
}

/// Checks that two counts agree.
pub(crate) fn books<'a>(
    whose: impl FnOnce() -> &'a str,
    are: usize,
    by: &str,
    should: usize,
) -> Result<(), Violation> {
    if are == should {
        return Ok(());
    }
    Err(Violation(format!(
        "{}: {are} IOs are under way in its own books, {should} in those of {by}",
        whose()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(outstanding: f64, cost: f64, w: f64) -> bool {
        window(|| "a", outstanding, cost, Window(w), || false).is_ok()
    }

    #[test]
    fn an_io_goes_within_the_window_or_as_its_fraction() {
        assert!(goes(3.0, 1.0, 4.0) && goes(3.0, 1.0, 3.5) && goes(0.0, 1.0, 0.2));
        assert!(goes(2.0, 8.0, 4.0), "one IO may be larger than what is left");
        assert!(!goes(4.0, 1.0, 4.0) && !goes(4.0, 1.0, 3.5) && !goes(1.0, 1.0, 0.2));
    }

    #[test]
    fn a_violation_says_whose_and_how_much() {
        assert_eq!(window(|| "kvm-01", 4.0, 1.0, Window(3.5), || true), Ok(()));
        let error = window(|| "kvm-01", 4.0, 1.0, Window(3.5), || false).unwrap_err().to_string();
        let expected = "kvm-01 sent an IO of 1 slots with 4 of its window of 3.5 at the array";
        assert_eq!(error, expected);
        assert_eq!(books(|| "kvm-01", 7, "the law", 7), Ok(()));
        let error = books(|| "kvm-01", 7, "the law", 8).unwrap_err().to_string();
        let expected = "kvm-01: 7 IOs are under way in its own books, 8 in those of the law";
        assert_eq!(error, expected);
    }
}
