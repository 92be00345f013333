//! Rate limit of log lines, for each source of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines that a source may log at once after a pause.
const BURST: f64 = 40.0;

/// Lines that a source may log in the long run, per second.
const PER_SECOND: f64 = 2.0;

/// Time between two notices that lines of a source are left out.
const REPORT: Duration = Duration::from_secs(10);

/// Rate limit of each source: one line of the program, for each volume. A client that connects and misbehaves in a loop must
/// neither fill the disk nor hide the lines of others. Changes of settings have no limit: their authors are trusted, and the
/// agent logs each setting at most once a second.
#[derive(Default)]
pub(super) struct Limit(Mutex<Sources>);

/// The filter of the layer that writes.
pub(super) struct Throttle(pub(super) Arc<Limit>);

/// By line of the program, and volume.
type Sources = HashMap<(Identifier, Option<String>), Source>;

struct Source {
    message: String,
    allowance: f64,
    updated: Instant,
    suppressed: u64,
    /// When the first of those was suppressed.
    since: Instant,
}

impl<S> Filter<S> for Throttle {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // Verbose levels were requested and have no limit; the queue is bounded in any case.
        *event.metadata().level() > Level::INFO || self.0.admits(Instant::now(), event)
    }
}

impl Limit {
    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, now: Instant, event: &Event<'_>) -> bool {
        let mut seen = Seen::default();
        event.record(&mut seen);
        if seen.is_change {
            return true;
        }
        let key = (event.metadata().callsite(), seen.volume);
        let mut sources = self.sources();
        let source = sources.entry(key).or_insert_with(|| Source::new(now, seen.message));
        let passed = now.saturating_duration_since(source.updated).as_secs_f64();
        source.allowance = (source.allowance + passed * PER_SECOND).min(BURST);
        source.updated = now;
        if source.allowance >= 1.0 {
            source.allowance -= 1.0;
            return true;
        }
        if source.suppressed == 0 {
            source.since = now;
        }
        source.suppressed += 1;
        false
    }

    /// Logs the numbers of suppressed lines: of sources that are quiet again or have gone on for long. At the end, of all
    /// sources.
    pub(super) fn report(&self, now: Instant, end: bool) {
        let mut reports = Vec::new();
        let mut sources = self.sources();
        let held_back = sources.iter_mut().filter(|(_, source)| source.suppressed > 0);
        for ((_, volume), source) in held_back {
            let quiet = now.saturating_duration_since(source.updated) >= Duration::from_secs(1);
            if quiet || end || now.saturating_duration_since(source.since) >= REPORT {
                let count = std::mem::take(&mut source.suppressed);
                reports.push((count, source.message.clone(), volume.clone()));
            }
        }
        // Not while the sources are locked: this logs, too.
        drop(sources);
        for (count, message, volume) in reports {
            tracing::warn!(volume, count, "{message:?}: more like it were not logged");
        }
    }
}

impl Source {
    fn new(now: Instant, message: String) -> Source {
        Source { message, allowance: BURST, updated: now, suppressed: 0, since: now }
    }
}

/// Fields that identify the source of an event, and its name.
#[derive(Default)]
struct Seen {
    message: String,
    volume: Option<String>,
    is_change: bool,
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "volume" => self.volume = Some(value.to_owned()),
            "event" => self.is_change |= value == "live_change",
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::{Layer, fmt};

    use super::*;

    /// Writer that collects the lines of a log.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn log(while_logging: impl FnOnce(&Limit)) -> String {
        let (lines, limit) = (Lines::default(), Arc::new(Limit::default()));
        let writer = lines.clone();
        let layer = fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .with_filter(Throttle(Arc::clone(&limit)));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || while_logging(&limit));
        let text = lines.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_source_is_bounded_and_its_neighbours_are_not() {
        let text = log(|_| {
            for i in 0..1000 {
                tracing::info!(volume = "a", "flood {i}");
            }
            // Another volume, and another line of the program.
            for volume in ["a", "b"] {
                tracing::info!(volume, "drop");
            }
            for _ in 0..1000 {
                tracing::debug!("asked for");
            }
        });
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert!((40..=60).contains(&count("flood")), "{}", count("flood"));
        assert_eq!(count("drop"), 2);
        assert_eq!(count("asked for"), 1000);
        let text = log(|_| {
            for disk in 0..1000 {
                tracing::info!(volume = "a", disk, event = "live_change", "shares = 7");
            }
        });
        assert_eq!(text.lines().count(), 1000, "changes are all logged");
    }

    #[test]
    fn the_count_of_what_was_suppressed_is_logged_when_the_source_is_quiet() {
        let text = log(|limit| {
            for volume in ["a", "b"] {
                for _ in 0..140 {
                    tracing::info!(volume, "flood");
                }
            }
            limit.report(Instant::now(), false);
            limit.report(Instant::now() + Duration::from_secs(2), false);
            limit.report(Instant::now() + Duration::from_secs(4), false);
        });
        let reports: Vec<&str> = text.lines().filter(|l| l.contains("not logged")).collect();
        assert_eq!(reports.len(), 2, "{text}");
        for volume in ["a", "b"] {
            let of = |line: &&&str| line.contains(&format!("volume=\"{volume}\""));
            let line = reports.iter().find(of).unwrap();
            assert!(line.contains("\"flood\": more like it"), "{line}");
            // 40, and two for each second that a busy machine takes.
            let lines = text.lines().filter(|l| of(&l) && !l.contains("not logged")).count();
            assert!((40..=60).contains(&lines), "{lines}");
            assert!(line.ends_with(&format!("count={}", 140 - lines)), "{lines} lines, {line}");
        }
    }
}
