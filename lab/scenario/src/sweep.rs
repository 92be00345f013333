//! Sweeps: as tables of a scenario, and in one line: `control.latency_threshold=20ms,30ms,50ms`.

use std::str::FromStr;

use serde::Deserialize;
use toml::Value;

/// The error of a text that is no sweep.
const SHAPE: &str = "must be KEY=VALUE,VALUE,… such as control.latency_threshold=20ms,30ms";

/// A sweep: a key, and the values that it takes in turn, each in a variant of its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Path of the key, as in [`crate::set`].
    pub key: String,
    /// Values of the key, in order.
    pub values: Vec<Value>,
}

impl FromStr for Sweep {
    type Err = &'static str;

    /// Parses `KEY=VALUE,VALUE,…`. A value that is not TOML is a string. A value with commas needs
    /// quotes.
    fn from_str(text: &str) -> Result<Sweep, &'static str> {
        let (key, values) = text.split_once('=').ok_or(SHAPE)?;
        let key = key.trim();
        if key.split('.').any(str::is_empty) {
            return Err(SHAPE);
        }
        let values = split(values).into_iter().map(|text| match text.trim() {
            "" => Err(SHAPE),
            text => Ok(text.parse().unwrap_or_else(|_| Value::String(text.to_owned()))),
        });
        Ok(Sweep { key: key.to_owned(), values: values.collect::<Result<_, _>>()? })
    }
}

/// Splits at commas outside quotes.
fn split(text: &str) -> Vec<&str> {
    let mut quote = None;
    text.split(|c: char| match (quote, c) {
        (None, '"' | '\'') => {
            quote = Some(c);
            false
        }
        (Some(open), c) => {
            quote = (open != c).then_some(open);
            false
        }
        (None, c) => c == ',',
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<Value>, &'static str> {
        text.parse::<Sweep>().map(|sweep| sweep.values)
    }

    #[test]
    fn values_are_toml_or_text() {
        let sweep: Sweep = "host.*.vm.0.workload.size = 4KiB, 8KiB".parse().unwrap();
        assert_eq!(sweep.key, "host.*.vm.0.workload.size");
        assert_eq!(sweep.values, ["4KiB", "8KiB"].map(|v| Value::String(v.to_owned())));
        assert_eq!(values("a=1,2.5,true").unwrap(), [Value::from(1), 2.5.into(), true.into()]);
        assert_eq!(values("a=1h 30m,500ms").unwrap()[0], Value::from("1h 30m"));
        assert_eq!(values("a=x = y").unwrap(), [Value::from("x = y")]);
    }

    #[test]
    fn quotes_keep_commas() {
        assert_eq!(values(r#"a="1,5",2"#).unwrap(), [Value::from("1,5"), Value::from(2)]);
        assert_eq!(values("a='x,\"y',z").unwrap(), [Value::from("x,\"y"), Value::from("z")]);
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        for text in ["", "a", "=1", "a=", "a=1,,2", "a=1,", "a..b=1"] {
            assert_eq!(values(text), Err(SHAPE), "{text}");
        }
    }
}
