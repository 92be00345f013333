//! Values of settings by key, as the configuration writes them.

use parda_config::{DRAIN, VmSettings};
use serde::Serialize;
use serde_json::{Map, Value};

/// Settings that are set, by key.
pub(crate) type Settings = Map<String, Value>;

/// Settings of a disk that can be changed live.
pub(super) fn of_disk(vm: &VmSettings, drain: bool) -> Settings {
    let mut set = of(vm);
    set.insert(DRAIN.to_owned(), drain.into());
    set
}

/// Values of keys; null for those that are not set.
pub(super) fn of_keys(keys: &[&str], set: &Settings) -> Vec<Value> {
    keys.iter().map(|key| set.get(*key).cloned().unwrap_or(Value::Null)).collect()
}

/// Settings of a table by key, without those that are not set.
pub(crate) fn of(table: &impl Serialize) -> Settings {
    match serde_json::to_value(table) {
        Ok(Value::Object(mut settings)) => {
            settings.retain(|_, value| !value.is_null());
            settings
        }
        _ => Settings::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_its_own_value_and_one_that_is_not_set_has_none() {
        let keys = ["shares", "burst", "latency_target", "drain", "x"];
        let json = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap();
        let vm = toml::from_str("shares = 7\nburst = 1.5\nlatency_target = \"10ms\"").unwrap();
        assert_eq!(of_keys(&keys, &of_disk(&vm, true)), json("[7, 1.5, \"10ms\", true, null]"));
        let none = of_disk(&VmSettings::default().or_defaults(), false);
        assert_eq!(of_keys(&keys, &none), json("[1000, 0.0, null, false, null]"));
    }
}
