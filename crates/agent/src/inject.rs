//! Probing a volume once a day, while nobody uses it: reads only, by this host alone, and none any
//! more as soon as anybody does IO.
//!
//! Whether anybody does is asked of this host's own ring every few milliseconds, and of the others by
//! the exchange, once per period.

mod sweep;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parda_control::{Report, Totals};

use crate::gate::Gate;
use crate::threshold::Probed;

pub(crate) use sweep::{Plan, Target};

/// How long nobody must have done any IO.
const IDLE: Duration = Duration::from_secs(60);
/// How old a stored probe must be.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long to wait after a probe that was stopped or came to nothing.
const AGAIN: Duration = Duration::from_secs(3600);
/// How often this host's own IO is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// What is to be probed, and where the answer goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Inject {
    /// What is read.
    pub(crate) target: Target,
    /// The stored probe.
    pub(crate) probe: PathBuf,
}

/// Probes a volume when it may.
pub(crate) struct Injector {
    volume: String,
    inject: Inject,
    gate: Arc<Gate>,
    idle_since: Option<Instant>,
    /// Not before.
    next: Option<Instant>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Injector {
    pub(crate) fn new(volume: &str, inject: Inject, gate: Arc<Gate>) -> Injector {
        let volume = volume.to_owned();
        Injector { volume, inject, gate, idle_since: None, next: None, running: None }
    }

    /// After each period: what this host did in it, and what the others said, if the exchange works.
    pub(crate) fn period(&mut self, own: &Report, others: Option<&Totals>) {
        let now = Instant::now();
        if self.running.as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            self.end();
            self.next = Some(now + AGAIN);
        }
        if !idle(own, others) {
            self.idle_since = None;
            self.stop();
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        // One host is enough: the one that would lead.
        let ours = others.is_some_and(|o| o.thresholds.leader.is_none() && !o.thresholds.unsaid);
        let due = self.next.is_none_or(|next| now >= next) && is_old(&self.inject.probe);
        if self.running.is_none() && ours && due && now - since >= IDLE {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let (volume, inject) = (self.volume.clone(), self.inject.clone());
        let (stopped, gate) = (Arc::clone(&stop), Arc::clone(&self.gate));
        tracing::info!(volume, target = %inject.target, "idle: probing it, by reads only");
        let work = move || {
            let before = gate.served();
            let busy = || stopped.load(Ordering::Relaxed) || gate.served() != before;
            probe(&volume, &inject, &busy);
        };
        let thread = std::thread::Builder::new().name("parda-inject".to_owned()).spawn(work);
        match thread {
            Ok(thread) => self.running = Some((stop, thread)),
            Err(error) => tracing::error!(volume = self.volume, "cannot probe: {error}"),
        }
    }

    /// No read is begun any more.
    fn stop(&self) {
        if let Some((stop, _)) = &self.running {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// Stops, and waits for what is under way.
    pub(crate) fn end(&mut self) {
        self.stop();
        if let Some((_, thread)) = self.running.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Whether nobody did any IO in a period, and everybody is heard.
fn idle(own: &Report, others: Option<&Totals>) -> bool {
    let ios =
        |interval: &parda_control::latency::Interval| interval.reads.ios + interval.writes.ios;
    let quiet = |o: &Totals| {
        o.missing == 0.0
            && o.flows.all().ios == 0.0
            && o.governed.outstanding + o.observing.outstanding == 0.0
    };
    ios(&own.interval) == 0 && own.outstanding == 0.0 && others.is_some_and(quiet)
}

/// Whether a stored probe is to be made anew: it is not there, or a day old.
fn is_old(probe: &Path) -> bool {
    let modified = probe.metadata().and_then(|m| m.modified());
    let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age >= DAY)
}

/// Probes, and stores what came of it. `busy`: it must stop.
fn probe(volume: &str, inject: &Inject, busy: &dyn Fn() -> bool) {
    match sweep::run(&inject.target, &Plan::default(), LOOK, busy) {
        Err(error) => tracing::warn!(volume, "the probe of the idle volume failed: {error}"),
        Ok(None) => tracing::info!(volume, "probing stopped: there is IO"),
        Ok(Some(document)) => match store(&inject.probe, &document) {
            Ok(threshold) => tracing::info!(
                volume, latency_threshold_ms = threshold, probe = %inject.probe.display(),
                "probed while idle; an automatic threshold begins there from the next start or SIGHUP on"
            ),
            Err(error) => tracing::warn!(volume, "the probe of the idle volume: {error}"),
        },
    }
}

/// Stores a probe in place of the one before, if it recommends something: what it recommends, in ms.
fn store(file: &Path, document: &parda_probe::Document) -> Result<f64, String> {
    let Some(advice) = &document.findings.advice else {
        return Err("no knee was seen, and the stored one is kept".to_owned());
    };
    let new = file.with_extension("new");
    // Whoever reads it finds the old one or the new one.
    std::fs::write(&new, document.json())
        .and_then(|()| Probed::read(&new).map_err(std::io::Error::other))
        .and_then(|_| std::fs::rename(&new, file))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(advice.latency_threshold_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Config, Host, Instant as At, View};

    fn nothing() -> Report {
        Host::new(At(0), Config::default()).unwrap().tick(At(1_000_000), View::Silent)
    }

    #[test]
    fn idle_is_only_what_all_hosts_say_is_idle() {
        let (own, quiet) = (nothing(), Totals::default());
        assert!(idle(&own, Some(&quiet)));
        assert!(!idle(&own, None), "who is not heard may do IO");
        let mut busy = own;
        busy.outstanding = 0.1;
        assert!(!idle(&busy, Some(&quiet)));
        assert!(
            !idle(&own, Some(&Totals::of([&busy])))
                || busy.governed != parda_control::Governed::Yes
        );
        let mut did = own;
        did.interval.reads.ios = 1;
        assert!(!idle(&own, Some(&Totals::of([&did]))));
    }

    #[test]
    fn a_probe_is_made_anew_once_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("probe.json");
        assert!(is_old(&file));
        std::fs::write(&file, "{}").unwrap();
        assert!(!is_old(&file));
        let yesterday = SystemTime::now() - DAY - Duration::from_secs(1);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(yesterday).unwrap();
        assert!(is_old(&file));
    }
}
