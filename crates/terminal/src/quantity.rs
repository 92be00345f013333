//! Values on the command line that are read as those of documents: durations, sizes and names.

use std::ops::RangeBounds;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::TypedValueParser;
use parda_config::quantity::Quantity;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

/// A duration with units, such as `30ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let must = |_: Error| "must be a duration, such as 30ms".to_owned();
    Duration::of(text).map_err(must)
}

/// A parser of durations within bounds. `must`: what is said of one beyond them.
pub fn within(
    bounds: impl RangeBounds<Duration> + Clone + Send + Sync + 'static,
    must: &'static str,
) -> impl TypedValueParser<Value = Duration> {
    move |text: &str| match duration(text) {
        Ok(time) if !bounds.contains(&time) => Err(must.to_owned()),
        read => read,
    }
}

/// A size in bytes or with a unit, such as `1GiB`.
pub fn size(text: &str) -> Result<ByteSize, String> {
    let must = |_: Error| "must be a size, such as 1GiB".to_owned();
    ByteSize::of(text).map_err(must)
}

/// A whole percentage, with or without its sign.
pub fn percent(text: &str) -> Result<u32, String> {
    let number = text.trim_end_matches('%').parse().ok().filter(|percent| *percent <= 100);
    number.ok_or_else(|| "must be a whole percentage, 0 to 100".to_owned())
}

/// Such as `1GiB`, or as fio has it, `1g`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "k" | "K" => Some(10),
        "m" | "M" => Some(20),
        "g" | "G" => Some(30),
        "t" | "T" => Some(40),
        _ => None,
    };
    let Some(shift) = shift else {
        return size(text).map(|size| size.as_u64());
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "must be a size, such as 1GiB".to_owned())
}

/// The value of this name, as documents write it.
pub fn named<T: DeserializeOwned>(name: &str) -> Result<T, Error> {
    T::deserialize(name.into_deserializer())
}

/// Number of MiB, 2²⁰ bytes each, as tables show sizes and rates.
pub fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
