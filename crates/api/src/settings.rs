//! Settings of a request, by key: an object of JSON in which no key stands twice.

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Reads settings. Of a key that stood twice, the last value would hide the others.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    from.deserialize_map(Settings)
}

struct Settings;

impl<'de> Visitor<'de> for Settings {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut settings = Map::new();
        while let Some((key, value)) = from.next_entry::<String, Value>()? {
            if settings.contains_key(&key) {
                return Err(Error::custom(format_args!("the key {key:?} stands twice")));
            }
            settings.insert(key, value);
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use crate::{NewDisk, SettingsChange};

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let change: SettingsChange =
            serde_json::from_str(r#"{"shares": 5, "keep": "state", "burst": 1}"#).unwrap();
        assert_eq!(change.settings.len(), 2);
        let twice = |key: &str| format!(r#"{{"{key}": 5, "burst": 1, "{key}": 3000}}"#);
        let error = |result: Result<(), serde_json::Error>| result.unwrap_err().to_string();
        let disk = |text: &str| serde_json::from_str::<SettingsChange>(text).map(drop);
        let volume = |text: &str| serde_json::from_str::<SettingsChange>(text).map(drop);
        let new = |text: &str| serde_json::from_str::<NewDisk>(text).map(drop);
        assert!(error(disk(&twice("shares"))).contains("\"shares\" stands twice"));
        assert!(error(volume(&twice("period"))).contains("\"period\" stands twice"));
        assert!(error(new(&twice("name"))).contains("\"name\" stands twice"));
    }
}
