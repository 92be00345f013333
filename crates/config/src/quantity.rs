//! Durations and sizes as documents write them: texts with units, or bytes as plain numbers. For a key of such a type: `#[serde(with = "parda_config::quantity")]`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Serializer;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A size as text of a setting, exact to the byte: `8KiB`, `4100B`.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, bits)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| format!("{bytes}B"), |(unit, bits)| format!("{}{unit}", bytes >> bits))
}

/// Type of a key that has a unit.
pub trait Quantity: Sized {
    /// Description of the expected text, for messages.
    const EXPECTED: &str;

    /// Value of a text.
    ///
    /// # Errors
    /// The text is no such quantity, has no unit, or is beyond what can be counted.
    fn of<E: Error>(text: &str) -> Result<Self, E>;

    /// Writes it as a text.
    ///
    /// # Errors
    /// Those of the serializer.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;

    /// Value of a number without unit.
    ///
    /// # Errors
    /// The quantity has units.
    fn plain<E: Error>(number: u64) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Unsigned(number), &Self::EXPECTED))
    }

    /// Value of a key that is null. `None` where the key needs a value.
    #[must_use]
    fn absent() -> Option<Self> {
        None
    }
}

impl Quantity for Duration {
    const EXPECTED: &str = "a duration such as \"30ms\"";

    fn of<E: Error>(text: &str) -> Result<Duration, E> {
        let wrong = || E::invalid_value(Unexpected::Str(text), &Self::EXPECTED);
        // The parser ignores blanks, those within a number, too, and takes a zero without unit.
        let words: Vec<&str> = text.split_whitespace().collect();
        let ends = |word: &str| !word.ends_with(char::is_alphabetic);
        let begins = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let in_number = |pair: &[&str]| ends(pair[0]) && begins(pair[1]);
        if words.last().is_none_or(|word| ends(word)) || words.windows(2).any(in_number) {
            return Err(wrong());
        }
        humantime::parse_duration(text).map_err(|_| wrong())
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*self))
    }
}

impl Quantity for ByteSize {
    const EXPECTED: &str = "a size such as \"8KiB\"";

    fn of<E: Error>(text: &str) -> Result<ByteSize, E> {
        let wrong = || E::invalid_value(Unexpected::Str(text), &Self::EXPECTED);
        match text.parse() {
            // The parser replaces a larger number by the largest one.
            Ok(ByteSize(u64::MAX)) => Err(E::custom("must be below 16EiB, 2^64 bytes")),
            Ok(size) => Ok(size),
            Err(_) => Err(wrong()),
        }
    }

    fn plain<E: Error>(bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&exact_size(self.as_u64()))
    }
}

impl<T: Quantity> Quantity for Option<T> {
    const EXPECTED: &str = T::EXPECTED;

    fn of<E: Error>(text: &str) -> Result<Option<T>, E> {
        T::of(text).map(Some)
    }

    fn plain<E: Error>(number: u64) -> Result<Option<T>, E> {
        T::plain(number).map(Some)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.write(to),
            None => to.serialize_none(),
        }
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// Writes a value as a text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Quantity, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.write(to)
}

/// Reads a value from its text, or null.
///
/// # Errors
/// The value is not a text that [`Quantity::of`] takes.
pub fn deserialize<'de, D: Deserializer<'de>, T: Quantity>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Written(PhantomData))
}

struct Written<T>(PhantomData<T>);

impl<T: Quantity> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::of(text)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::plain(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
        u64::try_from(number).map_err(wrong).and_then(T::plain)
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        T::absent().ok_or_else(|| E::invalid_type(Unexpected::Unit, &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Wrong = serde::de::value::Error;

    #[test]
    fn a_duration_has_units_and_no_blank_in_a_number() {
        let of = |text: &str| Duration::of::<Wrong>(text).ok().map(|time| time.as_micros());
        for (text, micros) in
            [("30ms", 30_000), ("1.5s", 1_500_000), ("1s 30ms", 1_030_000), ("2 s", 2_000_000)]
        {
            assert_eq!(of(text), Some(micros), "{text}");
        }
        for text in
            ["5 0ms", "1. 5s", "2 .5s", "1s 5 0ms", "30", "0", "", " ", "0x10", "ms", "-1s", "{}"]
        {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_written_as_exactly_as_it_was_read() {
        #[derive(serde::Serialize)]
        struct Key {
            #[serde(with = "crate::quantity")]
            size: ByteSize,
        }
        for (bytes, text) in [(4100, "4100B"), (4096, "4KiB"), (0, "0B"), (3 << 30, "3GiB")] {
            let written = toml::to_string(&Key { size: ByteSize(bytes) }).unwrap();
            assert_eq!(written, format!("size = \"{text}\"\n"));
            assert_eq!(ByteSize::of::<Wrong>(text), Ok(ByteSize(bytes)));
        }
    }

    #[test]
    fn a_size_is_in_bytes_without_a_unit_and_can_be_counted() {
        let of = |text: &str| ByteSize::of::<Wrong>(text).map(|size| size.as_u64());
        for (text, bytes) in
            [("8KiB", 8192), ("8.0 KiB", 8192), ("1.5KiB", 1536), ("0B", 0), ("8192", 8192)]
        {
            assert_eq!(of(text), Ok(bytes), "{text}");
        }
        for text in ["", "0x10", "KiB", "-1KiB", "8QiB", "1 2KiB"] {
            assert!(of(text).unwrap_err().to_string().contains("such as \"8KiB\""), "{text}");
        }
        for text in ["16EiB", "99999999EiB", "18446744073709551615B"] {
            assert!(of(text).unwrap_err().to_string().contains("below 16EiB"), "{text}");
        }
        assert!(of("15EiB").is_ok());
    }
}
