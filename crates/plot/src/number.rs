//! Formatting of numbers for people.

/// A number with its thousands apart, with so many decimals, and a minus that is as wide as a digit.
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
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let mut out = String::new();
    if value < 0.0 && digits.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
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
        let cases = [
            (0.0, 0, "0"),
            (-0.0, 1, "0.0"),
            (-0.04, 1, "0.0"),
            (999.0, 0, "999"),
            (1000.0, 0, "1,000"),
            (-1234567.5, 1, "−1,234,567.5"),
            (f64::NAN, 3, "–"),
            (f64::INFINITY, 0, "–"),
        ];
        for (value, decimals, text) in cases {
            assert_eq!(number(value, decimals), text, "{value}");
        }
    }

    #[test]
    fn brief_numbers_keep_three_digits() {
        let cases =
            [(0.0, "0"), (1482.3, "1,482"), (30.24, "30.2"), (3.0, "3"), (0.04823, "0.0482")];
        for (value, text) in cases {
            assert_eq!(brief(value), text, "{value}");
        }
        assert_eq!(brief(2e9), "2.00e9");
    }
}
