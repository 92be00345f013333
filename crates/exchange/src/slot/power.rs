//! Numbers as powers of two, in 15 bits.

/// Steps of a number to its double: 0.14 %.
const STEPS: f64 = 512.0;

/// The least number but 0 is 2^-20.
const LEAST: f64 = -20.0;

/// The bit of 16 that no number has.
const FREE: u16 = 1 << 15;

/// A number as 15 bits: 0, or 1 + 512 · (log2 x + 20).
pub(super) fn code(value: f64) -> u16 {
    if value > 0.0 {
        (1.0 + (value.log2() - LEAST) * STEPS).round().clamp(1.0, f64::from(FREE - 1)) as u16
    } else {
        0
    }
}

/// The number of a code.
pub(super) fn value(code: u16) -> f64 {
    match code & !FREE {
        0 => 0.0,
        code => ((f64::from(code) - 1.0) / STEPS + LEAST).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written_within_a_thousandth() {
        for x in [1e-6, 0.02, 1.0, 1000.0, 123_456.0, 4e12] {
            assert!((value(code(x)) / x - 1.0).abs() < 1e-3, "{x}");
        }
        assert_eq!(value(code(0.0)), 0.0);
        assert!(value(code(1e-9)) > 0.0);
        assert!(value(code(f64::INFINITY)).is_finite());
    }
}
