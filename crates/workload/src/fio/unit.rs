//! Numbers with fio's units.

use std::time::Duration;

/// Parses a number, which may be hexadecimal or have a size suffix. `None` if it is no number, or
/// if fio would read another number than is written (`1.5k` is 1 for fio).
///
/// With `kb_base=1024`, the default, `k` and `kb` are 1024 and **`kib` is 1000**: fio swaps the SI
/// and IEC prefixes for the sake of old job files.
pub(crate) fn number(text: &str, kb_base: u64) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let digits = hex.bytes().all(|b| b.is_ascii_hexdigit());
        return digits.then(|| u64::from_str_radix(hex, 16).ok()).flatten();
    }
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.as_str() {
        "" | "b" => return Some(number),
        unit if unit.ends_with("ib") => {
            (unit.strip_suffix("ib")?, if kb_base == 1000 { 1024 } else { 1000 })
        }
        unit => (unit.strip_suffix('b').unwrap_or(unit), kb_base),
    };
    let power = ["k", "m", "g", "t", "p"].iter().position(|known| *known == prefix)?;
    base.checked_pow(power as u32 + 1)?.checked_mul(number)
}

/// Parses a duration. A number without a unit is a multiple of `default`.
pub(crate) fn time(text: &str, default: Duration) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let micros = match unit.to_ascii_lowercase().as_str() {
        "" => default.as_micros() as u64,
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    micros.checked_mul(number).map(Duration::from_micros)
}

/// Parses a percentage, with or without `%`.
pub(crate) fn percent(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let (number, unit) = split(digits)?;
    u32::try_from(number).ok().filter(|n| unit.is_empty() && *n <= 100)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_fio_makes_of_them() {
        // Expected values are from `fio --parse-only --debug=parse`.
        for (text, bytes) in [
            ("4096", 4096),
            ("4096b", 4096),
            ("4k", 4096),
            ("4KB", 4096),
            ("4KiB", 4000),
            ("8m", 8 << 20),
            ("8MiB", 8_000_000),
            ("1g", 1 << 30),
            ("0x1000", 4096),
        ] {
            assert_eq!(number(text, 1024), Some(bytes), "{text}");
        }
        assert_eq!(number("4k", 1000), Some(4000));
        assert_eq!(number("4KiB", 1000), Some(4096));
        for text in
            ["", "k", "1.5k", "4kk", "4 k", "-1", "(4*1024)", "${BS}", "20000p", "0x", "50%"]
        {
            assert_eq!(number(text, 1024), None, "{text}");
        }
    }

    #[test]
    fn times_and_percentages_have_units_of_their_own() {
        let (micro, second) = (Duration::from_micros(1), Duration::from_secs(1));
        assert_eq!(time("5", micro), Some(5 * micro));
        assert_eq!(time("5", second), Some(5 * second));
        assert_eq!(time("5ms", second), Some(5000 * micro));
        assert_eq!(time("2m", micro), Some(120 * second));
        assert_eq!(time("1.5s", micro), None);
        assert_eq!(
            (percent("70"), percent("70%"), percent("101"), percent("7k")),
            (Some(70), Some(70), None, None)
        );
    }
}
