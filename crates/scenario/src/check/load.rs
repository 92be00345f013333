//! Checks the load of a VM: a workload, a job of fio, or a trace.

use std::path::Path;

use parda_config::Error;
use parda_control::Bytes;

use super::Checker;
use crate::file;
use crate::load::Load;
use crate::trace::{Begin, Replay};
use crate::workload::Workload;

/// Allowed replay speeds, as factors.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Keys of a workload beside those of one that is drawn.
impl Checker<'_> {
    /// The load of a VM, and the size of its disk if the load determines it. `path` is the workload's
    /// place in the file.
    pub(crate) fn load(
        &mut self,
        path: &str,
        written: &file::Workload,
    ) -> Result<(Load, Option<Bytes>), Error> {
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
                Ok((Load::Replayed(replay), Some(end)))
            }
            (Some(_), Some(_)) => {
                Err(self.error(&format!("{path}.trace"), "stands in place of `fio`: give one"))
            }
        }
    }

    /// Refuses keys that have no effect together with those of `own`. If none of `own` is present, the
    /// keys that belong to the other kinds are refused.
    fn nothing_else(
        &self,
        path: &str,
        written: &file::Workload,
        needs: &[&str],
        own: &[&str],
    ) -> Result<(), Error> {
        // All fields are named, so that a new key has its place here too.
        #[rustfmt::skip]
        let file::Workload {
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
                Err(self.error(&format!("{path}.{key}"), message))
            }
            Some((key, _)) => {
                let message = format!("means nothing beside `{}`, which says it all", own[0]);
                Err(self.error(&format!("{path}.{key}"), message))
            }
        }
    }

    fn drawn(&self, path: &str, written: &file::Workload) -> Result<Workload, Error> {
        Workload::check(written, &|key, message| {
            self.error(format!("{path}.{key}").trim_end_matches('.'), message)
        })
    }

    fn replay(
        &mut self,
        path: &str,
        file: &Path,
        written: &file::Workload,
    ) -> Result<Replay, Error> {
        let at = |key: &str| format!("{path}.{key}");
        let trace = self.sources.trace(self.document, file);
        let trace = trace.map_err(|e| self.of_file(&at("trace"), e))?;
        self.ensure(
            trace.has_times(),
            &at("trace"),
            "says not when its IOs arrived: fio writes that from 3.31 on (version 3)",
        )?;
        let speed = written.speed.unwrap_or(1.0);
        self.ensure(SPEEDS.contains(&speed), &at("speed"), "must be 0.001 to 1000 times as fast")?;
        // The first VM begins at the trace's beginning, so that a single replay matches the trace.
        let another = !self.replayed.insert(file.to_owned());
        let begin = match another && written.in_step != Some(true) {
            true => Begin::Anywhere,
            false => Begin::First,
        };
        let (repeat, fold) = (written.repeat.unwrap_or(false), written.fold.unwrap_or(false));
        Ok(Replay { trace, speed, repeat, fold, begin })
    }

    /// An error about a file that the scenario names. It points into that file, or else at the key that
    /// names it.
    fn of_file(&self, path: &str, error: Error) -> Error {
        match error.place {
            Some(_) => error,
            None => self.error(path, error.to_string()),
        }
    }
}
