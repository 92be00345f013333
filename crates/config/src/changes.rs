//! Differences between two sets of settings, as text.

use toml::Table;

use crate::tunables::{ControlSettings, TUNABLES};

impl ControlSettings {
    /// Settings that differ from `before`, as `latency_threshold = "20ms" (before: "30ms")`, separated by `; `. Empty if none differs.
    #[must_use]
    pub fn changes(&self, before: &ControlSettings) -> String {
        // Plain data, which can be written.
        let table = |settings| Table::try_from(settings).unwrap_or_default();
        let (now, before) = (table(self), table(before));
        let value = |table: &Table, key: &str, default: &str| {
            table.get(key).map_or_else(|| format!("{default}, the default"), ToString::to_string)
        };
        let changed = TUNABLES.iter().filter(|t| now.get(t.key) != before.get(t.key));
        let each = changed.map(|t| {
            let (is, was) = (value(&now, t.key, t.default), value(&before, t.key, t.default));
            format!("{} = {is} (before: {was})", t.key)
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use crate::{ControlSettings, Document};

    fn parse(text: &str) -> ControlSettings {
        Document::new("p.toml", text).parse().unwrap()
    }

    #[test]
    fn each_setting_that_differs_is_named_with_both_values() {
        let before = parse("latency_threshold = \"30ms\"\nwindow_max = 64\ngamma = 0.5");
        let now = parse("latency_threshold = { start = \"20ms\" }\nwindow_max = 64");
        let said = now.changes(&before);
        let threshold = "latency_threshold = { start = \"20ms\" } (before: \"30ms\")";
        assert_eq!(said, format!("{threshold}; gamma = 0.5, the default (before: 0.5)"));
        assert_eq!(now.changes(&now), "");
    }
}
