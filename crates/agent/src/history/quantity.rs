//! A quantity in two bytes, on a logarithmic scale: exact to 0.03 %.

/// Smallest and largest quantity of the scale; values beyond them are stored as these.
const LEAST: f64 = 1e-4;
const MOST: f64 = 1e12;

/// Steps of the scale. The two values below them are [`UNKNOWN`] and [`ZERO`].
const STEPS: f64 = 65_533.0;
const FIRST: u16 = 2;

/// A quantity that is not known.
pub(super) const UNKNOWN: u16 = 0;
const ZERO: u16 = 1;

/// The nearest step of the scale. NaN and infinity are stored as unknown, negative numbers as zero.
pub(super) fn packed(quantity: Option<f64>) -> u16 {
    match quantity {
        Some(quantity) if quantity <= LEAST / 2.0 => ZERO,
        Some(quantity) if quantity.is_finite() => {
            let part = (quantity / LEAST).ln() / (MOST / LEAST).ln();
            FIRST + (part.clamp(0.0, 1.0) * STEPS).round() as u16
        }
        Some(_) | None => UNKNOWN,
    }
}

/// The quantity of a step, to four digits.
pub(super) fn unpacked(packed: u16) -> Option<f64> {
    match packed {
        UNKNOWN => None,
        ZERO => Some(0.0),
        step => {
            let part = f64::from(step - FIRST) / STEPS;
            Some(rounded(LEAST * (part * (MOST / LEAST).ln()).exp()))
        }
    }
}

/// A number to four digits, if it is known.
pub(crate) fn short(number: Option<f64>) -> Option<f64> {
    number.map(rounded)
}

/// A number to four digits, so that its text is short.
pub(crate) fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    // Powers of ten are exact as divisors and as factors, so that 0.1 does not become 0.1000000001.
    if digits >= 0 {
        let scale = 10f64.powi(digits);
        (number * scale).round() / scale
    } else {
        let scale = 10f64.powi(-digits);
        (number / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_comes_back_to_a_thousandth() {
        for quantity in [1e-4, 0.5, 1.0, 7.125, 30.0, 1234.0, 1e6, 123_456_789.0, 1e12] {
            let back = unpacked(packed(Some(quantity))).unwrap();
            assert!((back / quantity - 1.0).abs() < 1e-3, "{quantity} {back}");
        }
    }

    #[test]
    fn nothing_and_not_known_are_told_apart() {
        assert_eq!(unpacked(packed(Some(0.0))), Some(0.0));
        assert_eq!(unpacked(packed(None)), None);
        assert_eq!(unpacked(packed(Some(f64::NAN))), None);
        assert_eq!(unpacked(packed(Some(f64::INFINITY))), None);
        assert_eq!(unpacked(packed(Some(-1.0))), Some(0.0));
        assert!(unpacked(packed(Some(1e15))).unwrap() <= 1e12);
    }

    #[test]
    fn numbers_are_as_short_as_four_digits_are() {
        let texts = [0.1, 1.0 / 3.0, 12_345.6, 1e9 / 3.0].map(|n| rounded(n).to_string());
        assert_eq!(texts, ["0.1", "0.3333", "12350", "333300000"]);
    }
}
