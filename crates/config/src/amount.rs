//! Numbers as documents write them: plain, or as a percentage.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number or a percentage: `0.92` or `"92%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A plain number: 0.92 for `0.92`.
    Number(f64),
    /// A percentage: 92 for `"92%"`.
    Percent(f64),
}

impl Amount {
    /// The amount as a plain number: 0.92 for both `0.92` and `"92%"`.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Amount::Number(n) => n,
            Amount::Percent(p) => p / 100.0,
        }
    }

    /// The amount as a percentage, for keys that accept nothing else: 70 for both `70` and `"70%"`.
    #[must_use]
    pub fn percent(self) -> f64 {
        match self {
            Amount::Number(p) | Amount::Percent(p) => p,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Number(n) => write!(f, "{n}"),
            Amount::Percent(p) => write!(f, "{p}%"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number or a percentage such as \"10%\"")
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Amount, E> {
        self.visit_f64(v as f64)
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Amount, E> {
        if v.is_finite() { Ok(Amount::Number(v)) } else { Err(E::custom("must be finite")) }
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Amount, E> {
        v.strip_suffix('%')
            .and_then(|digits| digits.trim_end().parse().ok())
            .filter(|p: &f64| p.is_finite())
            .map(Amount::Percent)
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(v), &self))
    }
}
