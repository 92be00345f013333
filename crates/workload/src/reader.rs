//! Checks the load of a client: a workload, a job of fio, or a trace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parda_config::{Document, Error};
use parda_control::Bytes;

use crate::drawn::Workload;
use crate::keys::WorkloadKeys;
use crate::load::ClientLoad;
use crate::sources::Sources;
use crate::trace::{Begin, Replay};

/// Allowed replay speeds, as factors.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Reader of the loads of one document.
#[derive(Debug)]
pub struct LoadReader<'a> {
    document: &'a Document,
    sources: &'a Sources,
    /// Traces that an earlier client replays.
    replayed: BTreeSet<PathBuf>,
}

impl<'a> LoadReader<'a> {
    /// A reader of the loads of a document. Job files and traces come from `sources`.
    #[must_use]
    pub fn new(document: &'a Document, sources: &'a Sources) -> LoadReader<'a> {
        LoadReader { document, sources, replayed: BTreeSet::new() }
    }

    /// The load of a client, and the size of its disk if the load determines it. `path` is the place of
    /// the keys in the document.
    ///
    /// # Errors
    /// A key has an impossible value or does not suit the others, or a file that a key names cannot be
    /// read; the error points at the key, or into that file.
    pub fn load(
        &mut self,
        path: &str,
        written: &WorkloadKeys,
    ) -> Result<(ClientLoad, Option<Bytes>), Error> {
        match (&written.fio, &written.trace) {
            (None, None) => {
                self.nothing_else(path, written, &["fio", "trace"], &[])?;
                let load = self.drawn(path, written)?;
                Ok((load.into(), None))
            }
            (Some(file), None) => {
                let own = ["fio", "job"];
                self.nothing_else(path, written, &own, &own)?;
                let job = self.sources.job(self.document, file, written.job.as_deref());
                let job = job.map_err(|e| self.of_file(&format!("{path}.fio"), e))?;
                Ok((job.workload.into(), job.disk))
            }
            (None, Some(file)) => {
                let own = ["trace", "speed", "repeat", "fold", "in_step"];
                self.nothing_else(path, written, &own, &own)?;
                let replay = self.replay(path, file, written)?;
                let end = replay.trace.end;
                Ok((ClientLoad::Replayed(replay), Some(end)))
            }
            (Some(_), Some(_)) => Err(self
                .document
                .error(&format!("{path}.trace"), "stands in place of `fio`: give one")),
        }
    }

    /// Refuses keys that have no effect together with those of `own`. If none of `own` is present, the
    /// keys that belong to the other kinds are refused.
    fn nothing_else(
        &self,
        path: &str,
        written: &WorkloadKeys,
        needs: &[&str],
        own: &[&str],
    ) -> Result<(), Error> {
        // All fields are named, so that a new key has its place here too.
        #[rustfmt::skip]
        let WorkloadKeys {
            size, sizes, read, random, trim, one_stream, hot, outstanding, rate, on, off,
            job, speed, repeat, fold, in_step, fio: _, trace: _,
        } = written;
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
        let taken = [
            ("job", job.is_some()),
            ("speed", speed.is_some()),
            ("repeat", repeat.is_some()),
            ("fold", fold.is_some()),
            ("in_step", in_step.is_some()),
        ];
        let drawn = drawn.into_iter().filter(|_| !own.is_empty());
        let mut others = drawn.chain(taken).filter(|(key, there)| *there && !own.contains(key));
        match others.next() {
            None => Ok(()),
            Some((key, _)) if own.is_empty() => {
                let needs = if key == "job" { needs[0] } else { needs[1] };
                let message = format!("means nothing without `{needs}`");
                Err(self.document.error(&format!("{path}.{key}"), message))
            }
            Some((key, _)) => {
                let message = format!("means nothing beside `{}`, which says it all", own[0]);
                Err(self.document.error(&format!("{path}.{key}"), message))
            }
        }
    }

    fn drawn(&self, path: &str, written: &WorkloadKeys) -> Result<Workload, Error> {
        Workload::check(written, &|key, message| {
            self.document.error(format!("{path}.{key}").trim_end_matches('.'), message)
        })
    }

    fn replay(&mut self, path: &str, file: &Path, written: &WorkloadKeys) -> Result<Replay, Error> {
        let at = |key: &str| format!("{path}.{key}");
        let trace = self.sources.trace(self.document, file);
        let trace = trace.map_err(|e| self.of_file(&at("trace"), e))?;
        if !trace.has_times() {
            let message = "says not when its IOs arrived: fio writes that from 3.31 on (version 3)";
            return Err(self.document.error(&at("trace"), message));
        }
        let speed = written.speed.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            let message = "must be 0.001 to 1000 times as fast";
            return Err(self.document.error(&at("speed"), message));
        }
        // The first client begins at the trace's beginning, so that a single replay matches the trace.
        let another = !self.replayed.insert(file.to_owned());
        let begin = match another && written.in_step != Some(true) {
            true => Begin::Anywhere,
            false => Begin::First,
        };
        let (repeat, fold) = (written.repeat.unwrap_or(false), written.fold.unwrap_or(false));
        Ok(Replay { trace, speed, repeat, fold, begin })
    }

    /// An error about a file that a key names. It points into that file, or else at the key that
    /// names it.
    fn of_file(&self, path: &str, error: Error) -> Error {
        match error.place {
            Some(_) => error,
            None => self.document.error(path, error.to_string()),
        }
    }
}
