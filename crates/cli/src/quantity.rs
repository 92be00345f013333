//! Values on the command line that are read as those of documents: durations, sizes and names.

use std::ops::RangeBounds;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::TypedValueParser;
use parda_config::quantity::Quantity;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

/// A duration with units, such as `30ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let must = |_: Error| "must be a duration, such as 30ms".to_owned();
    Duration::of(text).map_err(must)
}

/// A parser of durations within bounds. `must`: error message for durations outside them.
pub(crate) fn within(
    bounds: impl RangeBounds<Duration> + Clone + Send + Sync + 'static,
    must: &'static str,
) -> impl TypedValueParser<Value = Duration> {
    move |text: &str| match duration(text) {
        Ok(time) if !bounds.contains(&time) => Err(must.to_owned()),
        read => read,
    }
}

/// A size in bytes or with a unit, such as `1GiB`.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    let must = |_: Error| "must be a size, such as 1GiB".to_owned();
    ByteSize::of(text).map_err(must)
}

/// The value of this name, as documents write it.
pub(crate) fn named<T: DeserializeOwned>(name: &str) -> Result<T, Error> {
    T::deserialize(name.into_deserializer())
}

/// Number of MiB, 2²⁰ bytes each, as tables show sizes and rates.
pub(crate) fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::Cli;

    /// Message of a refusal, if the arguments are refused.
    fn refusal(arguments: &[&str]) -> Option<String> {
        let all = std::iter::once(&"parda").chain(arguments);
        Cli::try_parse_from(all).err().map(|error| error.to_string())
    }

    #[test]
    fn a_blank_within_a_number_is_refused() {
        for (arguments, option) in [
            (&["explain", "db", "--threshold"][..], "30ms"),
            (&["explain", "db", "--over"], "30s"),
            (&["status", "--over"], "2s"),
            (&["top", "--every"], "2s"),
            (&["drain", "--wait"], "60s"),
            (&["probe", "f", "--time"], "60s"),
            (&["bench", "nbd", "nbd://h", "--time"], "3s"),
            (&["bench", "nbd", "nbd://h", "--warmup"], "3s"),
            (&["bench", "nbd", "nbd://h", "--patience"], "3s"),
            (&["bench", "nbd", "nbd://h", "--range"], "64MiB"),
            (&["exchange", "show", "f", "--offset"], "4KiB"),
        ] {
            let with = |value: &str| refusal(&[arguments, &[value]].concat());
            assert_eq!(with(option), None, "{arguments:?}");
            let (first, rest) = option.split_at(1);
            let broken = format!("{first} 0{rest}");
            let said = with(&broken).unwrap_or_else(|| panic!("{arguments:?} takes {broken:?}"));
            assert!(said.contains(&format!("'{broken}'")), "the value is not named: {said}");
        }
    }

    #[test]
    fn a_size_beyond_what_can_be_counted_is_refused() {
        assert!(refusal(&["exchange", "show", "f", "--offset", "16EiB"]).is_some());
        assert!(refusal(&["bench", "nbd", "nbd://h", "--range", "16EiB"]).is_some());
    }
}
