//! Settings that override values of a scenario file: `control.gamma=0.2`,
//! `host.0.vm.1.shares=500`, `host.*.vm.0.disk=8GiB`.

use std::ops::Range;
use std::str::FromStr;

use parda_config::Document;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// A value and its path. The path has keys and list indices, counted from 0; `*` is every index.
#[derive(Clone, Debug)]
pub struct Setting {
    path: String,
    value: Value,
}

/// The error of a text that is no setting.
const SHAPE: &str = "must be KEY=VALUE, such as control.gamma=0.2 or host.0.vm.1.shares=500";

impl Setting {
    /// A value for a path.
    ///
    /// # Errors
    /// The path is malformed.
    pub fn new(path: &str, value: &toml::Value) -> Result<Setting, String> {
        if path.split('.').any(str::is_empty) {
            return Err(SHAPE.to_owned());
        }
        let value = value.to_string().parse().map_err(|_| SHAPE)?;
        Ok(Setting { path: path.to_owned(), value })
    }

    /// The path as text: keys and indices, separated by dots.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value for people: a string without its quotes.
    #[must_use]
    pub fn text(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string().trim().to_owned(), str::to_owned)
    }
}

impl FromStr for Setting {
    type Err = String;

    /// Parses `KEY=VALUE`. A value that is not TOML is a string, so that `control.mode=off` needs no
    /// quotes.
    fn from_str(text: &str) -> Result<Setting, String> {
        let (path, value) = text.split_once('=').ok_or(SHAPE)?;
        let (path, value) = (path.trim(), value.trim());
        if value.is_empty() || path.split('.').any(str::is_empty) {
            return Err(SHAPE.to_owned());
        }
        let value = value.parse().unwrap_or_else(|_| Value::from(value));
        Ok(Setting { path: path.to_owned(), value })
    }
}

/// The document with these settings applied in place, so that errors elsewhere still point at their
/// lines. A missing key is added; [`Scenario::parse`](crate::Scenario::parse) checks whether it is
/// known.
///
/// # Errors
/// The first setting whose path does not fit the document.
pub fn with_settings(document: &Document, settings: &[Setting]) -> Result<Document, String> {
    let text = document.text();
    let mut edited: DocumentMut =
        text.parse().map_err(|e: toml_edit::TomlError| format!("the file is not TOML: {e}"))?;
    for Setting { path, value } in settings {
        let keys: Vec<&str> = path.split('.').collect();
        assign(edited.as_table_mut(), &keys, 0, value)?;
    }
    Ok(Document::new(document.name(), edited.to_string()))
}

/// Sets the value at `keys[at..]` below this table.
fn assign(
    table: &mut dyn TableLike,
    keys: &[&str],
    at: usize,
    value: &Value,
) -> Result<(), String> {
    let path = |end: usize| keys[..end].join(".");
    let key = keys[at];
    if at + 1 == keys.len() {
        return assign_here(table, key, value).map_err(|()| several(&path(at + 1)));
    }
    let below = at + 1;
    let item = table.entry(key).or_insert_with(|| Item::Table(Table::new()));
    match item {
        Item::ArrayOfTables(tables) => {
            for place in places(keys, below, tables.len())? {
                if let Some(table) = tables.get_mut(place) {
                    assign(table, keys, below + 1, value)?;
                }
            }
            Ok(())
        }
        Item::Value(Value::Array(list)) => {
            for place in places(keys, below, list.len())? {
                match list.get_mut(place).and_then(Value::as_inline_table_mut) {
                    Some(table) => assign(table, keys, below + 1, value)?,
                    None => return Err(single(&path(below + 1))),
                }
            }
            Ok(())
        }
        item => match item.as_table_like_mut() {
            Some(table) => assign(table, keys, below, value),
            None => Err(single(&path(below))),
        },
    }
}

/// Sets the value of a key in place, or adds it. `Err` if what is there has sections of its own, and the value is no table.
fn assign_here(table: &mut dyn TableLike, key: &str, value: &Value) -> Result<(), ()> {
    match table.get(key) {
        Some(Item::Table(_)) if value.is_inline_table() => drop(table.remove(key)),
        Some(Item::Table(_) | Item::ArrayOfTables(_)) => return Err(()),
        _ => {}
    }
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            // Whitespace and comment of the old value are kept.
            let decor = old.decor().clone();
            *old = value.clone();
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(key, Item::Value(value.clone()))),
    }
    Ok(())
}

fn several(path: &str) -> String {
    format!("{path} has keys of its own: set one of them")
}

fn single(path: &str) -> String {
    format!("{path} is a single value: nothing lies below it")
}

/// The places of a list that the key at `below` names: one by its index, or all by `*`.
fn places(keys: &[&str], below: usize, length: usize) -> Result<Range<usize>, String> {
    let path = |end: usize| keys[..end].join(".");
    let places = match keys[below] {
        "*" => 0..length,
        index => index.parse::<usize>().map_or(0..0, |i| i..length.min(i.saturating_add(1))),
    };
    if places.is_empty() {
        let (path, list) = (path(below + 1), path(below));
        return Err(format!("there is no {path}: {list} has {length}, counted from 0"));
    }
    if below + 1 == keys.len() {
        return Err(several(&path(below + 1)));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"t\"\n\n[array]\npreset = \"p\" # why\nraid = { drives = 6 }\n\n\
        [[host]]\nname = \"a\"\n\n  [[host.vm]]\n  shares = 100\n\n  [[host.vm]]\n  shares = 200\n";

    fn with(settings: &[&str]) -> Result<String, String> {
        let settings = settings.iter().map(|s| s.parse()).collect::<Result<Vec<_>, _>>()?;
        with_settings(&Document::new("t.toml", TEXT), &settings).map(|d| d.text().to_owned())
    }

    #[test]
    fn a_value_changes_in_its_place_and_nothing_else_does() {
        let changed = with(&["host.0.vm.1.shares=500", "array.preset=other"]).unwrap();
        assert_eq!(changed, TEXT.replace("200", "500").replace("\"p\"", "\"other\""));
        let changed = with(&["array.raid.drives=7"]).unwrap();
        assert_eq!(changed, TEXT.replace("drives = 6", "drives = 7"));
    }

    #[test]
    fn a_star_is_every_place() {
        let changed = with(&["host.*.vm.*.shares=500"]).unwrap();
        assert_eq!(changed, TEXT.replace("= 100", "= 500").replace("= 200", "= 500"));
    }

    #[test]
    fn a_table_is_replaced_by_a_value_or_by_another_table() {
        let changed = with(&["array.raid=none"]).unwrap();
        assert_eq!(changed, TEXT.replace("{ drives = 6 }", "\"none\""));
        let table: toml::Table = with(&["array={ preset = \"q\" }"]).unwrap().parse().unwrap();
        assert_eq!(table["array"].as_table().unwrap().len(), 1);
        assert_eq!(table["array"]["preset"].as_str(), Some("q"));
    }

    #[test]
    fn what_is_not_there_is_added() {
        let changed = with(&["control.gamma=0.2", "control.latency_threshold=30ms"]).unwrap();
        let table: toml::Table = changed.parse().unwrap();
        assert_eq!(table["control"]["gamma"].as_float(), Some(0.2));
        assert_eq!(table["control"]["latency_threshold"].as_str(), Some("30ms"));
        assert_eq!(table["host"][0]["vm"][0]["shares"].as_integer(), Some(100));
    }

    #[test]
    fn what_has_no_place_is_named() {
        let error = |setting: &str| with(&[setting]).unwrap_err().to_string();
        assert_eq!(error("host.1.name=b"), "there is no host.1: host has 1, counted from 0");
        assert_eq!(error("host.a.name=b"), "there is no host.a: host has 1, counted from 0");
        let expected = "there is no host.0.vm.2: host.0.vm has 2, counted from 0";
        assert_eq!(error("host.0.vm.2.shares=1"), expected);
        assert_eq!(error("name.x=1"), "name is a single value: nothing lies below it");
        assert_eq!(error("array=1"), "array has keys of its own: set one of them");
        assert_eq!(error("host.0=1"), "host.0 has keys of its own: set one of them");
        for shape in ["control.gamma", "=1", "a..b=1", "a="] {
            assert_eq!(with(&[shape]), Err(SHAPE.to_owned()), "{shape}");
        }
    }
}
