//! Formatting of numbers for people.

/// A number with separated thousands, `decimals` decimals, and a minus as wide as a digit.
///
/// ```
/// assert_eq!(parda_plot::number(1482.25, 0), "1,482");
/// assert_eq!(parda_plot::number(-0.5, 2), "−0.50");
/// ```
pub fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let negative = value < 0.0 && digits.bytes().any(|b| (b'1'..=b'9').contains(&b));
    let mut out = String::from(if negative { "−" } else { "" });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// A number with three digits that count: 1,482 and 30.2 and 0.0482.
pub fn brief(value: f64) -> String {
    let size = value.abs();
    if size >= 1e7 || (size > 0.0 && size < 1e-4) {
        return format!("{value:.2e}");
    }
    let decimals = match size {
        _ if size >= 100.0 || size.fract() == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => (2.0 - size.log10().floor()) as usize,
    };
    number(value, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart_and_nothing_is_negative_zero() {
        assert_eq!([0.0, -0.04, 999.0, 1000.0].map(|v| number(v, 0)), ["0", "0", "999", "1,000"]);
        assert_eq!([-0.0, -1234567.5].map(|v| number(v, 1)), ["0.0", "−1,234,567.5"]);
        assert_eq!([f64::NAN, f64::INFINITY].map(|v| number(v, 3)), ["–", "–"]);
    }

    #[test]
    fn brief_numbers_keep_three_digits() {
        assert_eq!([0.0, 1482.3, 30.24, 3.0].map(brief), ["0", "1,482", "30.2", "3"]);
        assert_eq!([0.04823, 2e9].map(brief), ["0.0482", "2.00e9"]);
    }
}
