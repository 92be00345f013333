//! Numbers with units, exactly: values that would need rounding are refused.

use alloc::string::{String, ToString};
use core::fmt;

/// A text that is not a number with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a number with a unit, such as `{example}`: {reason}")]
pub struct UnitError {
    text: String,
    example: &'static str,
    reason: &'static str,
}

/// Units of one quantity, largest first, each as a multiple of the smallest.
pub(crate) struct Scale {
    pub(crate) units: &'static [(&'static str, u64)],
    pub(crate) example: &'static str,
}

impl Scale {
    /// Writes `value` as a whole number of the largest unit that allows it.
    pub(crate) fn write(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let smallest = self.units[self.units.len() - 1];
        let (name, size) = *self
            .units
            .iter()
            .find(|(_, u)| value != 0 && value.is_multiple_of(*u))
            .unwrap_or(&smallest);
        write!(f, "{}{name}", value / size)
    }

    /// Reads a decimal number and one of the units, with or without a space between them.
    pub(crate) fn read(&self, text: &str) -> Result<u64, UnitError> {
        let refuse = |reason| UnitError { text: text.to_string(), example: self.example, reason };
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(|| refuse("the unit is missing"))?;
        let (number, unit) = text.split_at(split);
        let unit = unit.trim();
        let (_, size) = self
            .units
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| refuse("the unit is not known"))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |s: &str| s.parse::<u128>().map_err(|_| refuse("the number is not readable"));
        let places = u32::try_from(fraction.len()).ok().and_then(|n| 10_u128.checked_pow(n));
        let places = places.ok_or_else(|| refuse("the number has too many digits"))?;
        digits(whole)?
            .checked_mul(places)
            .and_then(|n| n.checked_add(digits(fraction).ok()?))
            .and_then(|n| n.checked_mul(u128::from(*size)))
            .ok_or_else(|| refuse("the number is too large"))
            .and_then(|n| match n % places {
                0 => u64::try_from(n / places).map_err(|_| refuse("the number is too large")),
                _ => Err(refuse("it is not a whole number of the smallest unit")),
            })
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Nanos, Rate};
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn reads_numbers_with_units() {
        assert_eq!("35.6us".parse(), Ok(Nanos(35_600)));
        assert_eq!("0.861 ms".parse(), Ok(Nanos(861_000)));
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!("514GB".parse(), Ok(Bytes(514_000_000_000)));
        assert_eq!("81.2MB/s".parse(), Ok(Rate(81_200_000)));
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        for text in
            ["", "5", "ms", "5.ms", ".5ms", "1.2.3ms", "-5ms", "5 parsecs", "0.5ns", "99999999999s"]
        {
            let error = text.parse::<Nanos>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("35.6us"), "{error}");
        }
        assert!("0.0000000000000000000000000000000000000000001s".parse::<Nanos>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value: u64) {
            prop_assert_eq!(Nanos(value).to_string().parse(), Ok(Nanos(value)));
            prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
            prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
        }
    }
}
