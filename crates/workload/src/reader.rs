//! Checks the load of a client: a workload, or a trace.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parda_config::{Document, Error};
use parda_control::Bytes;

use crate::drawn::Workload;
use crate::keys::WorkloadKeys;
use crate::load::ClientLoad;
use crate::trace::{Begin, Replay, Trace, read};

/// Allowed replay speeds, as factors.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Traces that were read, so that each is read once for all clients.
#[derive(Debug, Default)]
pub struct Traces(RefCell<BTreeMap<PathBuf, Arc<Trace>>>);

impl Traces {
    fn read(&self, path: PathBuf) -> Result<Arc<Trace>, Error> {
        if let Some(trace) = self.0.borrow().get(&path) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(read(&path)?);
        self.0.borrow_mut().insert(path, Arc::clone(&trace));
        Ok(trace)
    }
}

/// Reader of the loads of one document.
#[derive(Debug)]
pub struct LoadReader<'a> {
    document: &'a Document,
    traces: &'a Traces,
    /// Traces that an earlier client replays.
    replayed: BTreeSet<PathBuf>,
}

impl<'a> LoadReader<'a> {
    /// A reader of the loads of a document.
    #[must_use]
    pub fn new(document: &'a Document, traces: &'a Traces) -> LoadReader<'a> {
        LoadReader { document, traces, replayed: BTreeSet::new() }
    }

    /// The load of a client, and the size of its disk if the load determines it. `path` is the place of
    /// the keys in the document.
    ///
    /// # Errors
    /// A key is missing, out of bounds, or has no effect beside the others; or a trace is invalid.
    pub fn load(
        &mut self,
        path: &str,
        keys: &WorkloadKeys,
    ) -> Result<(ClientLoad, Option<Bytes>), Error> {
        let error = |key: &str, message: &str| {
            self.document.error(format!("{path}.{key}").trim_end_matches('.'), message)
        };
        // All fields are named, so that a new key has its place here too.
        #[rustfmt::skip]
        let WorkloadKeys {
            size, sizes, read, random, trim, one_stream, hot, outstanding, rate, on, off,
            speed, repeat, fold, in_step, trace,
        } = keys;
        let drawn = [
            ("size", size.is_some()),
            ("sizes", sizes.is_some()),
            ("read", read.is_some()),
            ("random", random.is_some()),
            ("trim", trim.is_some()),
            ("one_stream", one_stream.is_some()),
            ("hot", hot.is_some()),
            ("outstanding", outstanding.is_some()),
            ("rate", rate.is_some()),
            ("on", on.is_some()),
            ("off", off.is_some()),
        ];
        let replayed = [
            ("speed", speed.is_some()),
            ("repeat", repeat.is_some()),
            ("fold", fold.is_some()),
            ("in_step", in_step.is_some()),
        ];
        let without_effect = |keys: &[(&str, bool)], message: &str| {
            let set = keys.iter().find(|(_, set)| *set);
            set.map_or(Ok(()), |(key, _)| Err(error(key, message)))
        };
        let Some(file) = trace else {
            without_effect(&replayed, "means nothing without `trace`")?;
            return Ok((Workload::check(keys, &error)?.into(), None));
        };
        without_effect(&drawn, "means nothing beside `trace`, which says it all")?;
        let speed = speed.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            return Err(error("speed", "must be 0.001 to 1000 times as fast"));
        }
        let name = Path::new(self.document.name()).parent().unwrap_or(Path::new("")).join(file);
        // An error points into the trace's file, or else at the key that names it.
        let trace = self.traces.read(name).map_err(|e| match e.place {
            Some(_) => e,
            None => error("trace", &e.to_string()),
        })?;
        // The first client begins at the trace's beginning, so that a single replay matches the trace.
        let another = !self.replayed.insert(file.clone());
        let begin = if another && *in_step != Some(true) { Begin::Anywhere } else { Begin::First };
        let (repeat, fold) = (repeat.unwrap_or(false), fold.unwrap_or(false));
        let end = trace.end;
        Ok((ClientLoad::Replayed(Replay { trace, speed, repeat, fold, begin }), Some(end)))
    }
}
