//! Expands `[[variant]]` and `[[sweep]]` into scenarios.

use std::collections::BTreeSet;

use parda_config::{Document, Error};
use parda_workload::Traces;
use toml::{Table, Value};

use crate::check::{check, plain_name};
use crate::file::{self, File};
use crate::many;
use crate::scenario::Scenario;
use crate::set::{Setting, with_settings};
use crate::sweep::Sweep;

/// Largest number of runs of a study.
const MAX_RUNS: usize = 10_000;

/// Difference of one variant from the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variation {
    pub(crate) name: String,
    pub(crate) settings: Vec<Setting>,
    /// Location of each setting in the document, as keys.
    pub(crate) places: Vec<Vec<String>>,
    hosts: Option<BTreeSet<String>>,
    /// Location of the variant in the document, as keys.
    place: Vec<String>,
}

/// Every variant of a file: each `[[variant]]` with each combination of the sweeps' values. Empty
/// if the file has neither.
pub(crate) fn variations(
    document: &Document,
    file: &File,
    more: &[Sweep],
) -> Result<Vec<Variation>, Error> {
    let hosts: BTreeSet<String> = many::each(&file.host).map(|(_, host)| host.name).collect();
    let variants = file.variant.iter().enumerate();
    let mut all: Vec<Variation> = variants
        .map(|(i, variant)| written(document, i, variant, &hosts))
        .collect::<Result<_, _>>()?;
    for (i, sweep) in file.sweep.iter().chain(more).enumerate() {
        if all.is_empty() {
            all.push(Variation::default());
        }
        all = combined(document, &all, sweep, (i < file.sweep.len()).then_some(i))?;
    }
    distinct(document, &all)?;
    Ok(all)
}

/// Reads one `[[variant]]` of the file.
fn written(
    document: &Document,
    i: usize,
    variant: &file::Variant,
    hosts: &BTreeSet<String>,
) -> Result<Variation, Error> {
    let at = |key: &str| format!("variant.{i}.{key}");
    plain_name(&variant.name).map_err(|says| document.error(&at("name"), says))?;
    for (h, host) in variant.hosts.iter().flatten().enumerate() {
        if !hosts.contains(host) {
            let key = at(&format!("hosts.{h}"));
            return Err(document.error(&key, "there is no host of this name"));
        }
    }
    if variant.hosts.as_ref().is_some_and(Vec::is_empty) {
        return Err(document.error(&at("hosts"), "must name at least one host"));
    }
    let mut variation = Variation {
        name: variant.name.clone(),
        hosts: variant.hosts.as_ref().map(|hosts| hosts.iter().cloned().collect()),
        place: vec!["variant".to_owned(), i.to_string(), "name".to_owned()],
        ..Variation::default()
    };
    let set = ["variant".to_owned(), i.to_string(), "set".to_owned()];
    variation.take(&set, "", &variant.set).map_err(|(place, e)| error(document, &place, &e))?;
    Ok(variation)
}

/// Every variation with every value of a sweep: the `[[sweep]]` at `index`, or one from the command line.
fn combined(
    document: &Document,
    all: &[Variation],
    sweep: &Sweep,
    index: Option<usize>,
) -> Result<Vec<Variation>, Error> {
    let values = match index {
        Some(i) => vec!["sweep".to_owned(), i.to_string(), "values".to_owned()],
        None => vec![format!("--sweep {}", sweep.key)],
    };
    if sweep.values.is_empty() {
        return Err(error(document, &values, "must have at least one value"));
    }
    if all.len() * sweep.values.len() > MAX_RUNS {
        let says = format!("makes more than {MAX_RUNS} variants");
        return Err(error(document, &values, &says));
    }
    let mut combined = Vec::with_capacity(all.len() * sweep.values.len());
    for variation in all {
        for (v, value) in sweep.values.iter().enumerate() {
            let place = match index {
                Some(_) => [&values[..], &[v.to_string()]].concat(),
                None => vec![format!("{}={}", values[0], text(value))],
            };
            let swept = variation.swept(sweep, value, place.clone());
            combined.push(swept.map_err(|e| error(document, &place, &e))?);
        }
    }
    Ok(combined)
}

/// Refuses names that are taken.
fn distinct(document: &Document, all: &[Variation]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for variation in all {
        if variation.name == "largest" || variation.name == "smallest" {
            let says = "is what stands for an extreme in paths of metrics";
            return Err(error(document, &variation.place, says));
        }
        if !names.insert(&variation.name) {
            return Err(error(document, &variation.place, "there is another variant of this name"));
        }
    }
    Ok(())
}

fn error(document: &Document, place: &[String], message: &str) -> Error {
    document.error_at(&place.iter().map(String::as_str).collect::<Vec<_>>(), message)
}

/// A value for people: a string without its quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Variation {
    /// Collects settings. A table stands for all of its keys.
    fn take(
        &mut self,
        place: &[String],
        prefix: &str,
        table: &Table,
    ) -> Result<(), (Vec<String>, String)> {
        for (key, value) in table {
            let path = format!("{prefix}{key}");
            let place: Vec<String> = place.iter().cloned().chain([key.clone()]).collect();
            if let Value::Table(table) = value {
                self.take(&place, &format!("{path}."), table)?;
            } else {
                self.push(&path, value, place.clone()).map_err(|e| (place, e))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, path: &str, value: &Value, place: Vec<String>) -> Result<(), String> {
        self.settings.push(Setting::new(path, value).map_err(|e| e.to_string())?);
        self.places.push(place);
        Ok(())
    }

    /// This variant with one more value, which its name mentions.
    fn swept(
        &self,
        Sweep { key, .. }: &Sweep,
        value: &Value,
        place: Vec<String>,
    ) -> Result<Variation, String> {
        let mut swept = self.clone();
        if matches!(value, Value::Table(_) | Value::Array(_)) {
            return Err("must be a single value: name others as variants".to_owned());
        }
        let text = text(value);
        if text.contains('/') {
            return Err("must have no `/`: it is part of the variant's name".to_owned());
        }
        let short = key.rsplit('.').next().unwrap_or(key);
        let own = format!("{short}={text}");
        swept.name = if self.name.is_empty() { own } else { format!("{},{own}", self.name) };
        swept.place.clone_from(&place);
        swept.push(key, value, place)?;
        Ok(swept)
    }

    /// The scenario of this variant. An error points at what distinguishes the variant.
    pub(crate) fn scenario(&self, document: &Document, traces: &Traces) -> Result<Scenario, Error> {
        let with = |settings: &[Setting]| -> Result<Scenario, (Option<usize>, String)> {
            let last = settings.len().checked_sub(1);
            let varied = with_settings(document, settings).map_err(|e| (last, e.to_string()))?;
            let said = |e: Error| {
                // An error in another file, which the variant names, keeps its own place.
                if e.file != document.name() {
                    return (last, e.to_string());
                }
                (last, e.value.map_or(e.message.clone(), |v| format!("{v}: {}", e.message)))
            };
            let file: File = varied.parse().map_err(said)?;
            check(&varied, &file, self.hosts.as_ref(), traces).map_err(said)
        };
        let blame = |(setting, message): (Option<usize>, String)| {
            let place = setting.map_or(&self.place, |i| &self.places[i]);
            error(document, place, &format!("in variant {}: {message}", self.name))
        };
        with(&self.settings).map_err(|whole| {
            // The first invalid setting is at fault.
            let first = (1..self.settings.len()).find_map(|n| with(&self.settings[..n]).err());
            blame(first.unwrap_or(whole))
        })
    }
}
