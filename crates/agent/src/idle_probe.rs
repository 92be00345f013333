//! A daily probe of a volume that is idle. One host does the probe, with reads only, and the first IO of any other source stops it.
//!
//! The probe looks for IO of this host in its own ring every few milliseconds. For IO of other hosts, it looks in the exchange once per
//! period.

mod reads;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use parda_awake::Instant;
use parda_config::replace;
use parda_control::{Report, Totals};
use parda_probe::{
    Effort, LoadMix, OpenQuestion, Probe, ProbeDocument, ProbeEnd, ProbePlan, ProbeProgress,
    Purpose, Watcher, Wishes,
};

use crate::config::{IdleProbe, Target};
use crate::law::Law;
use crate::threshold::Probed;

use reads::{Reads, SIZE};

/// Time without any IO after which a volume is idle.
const IDLE: Duration = Duration::from_secs(60);
/// Age of a stored probe after which it is renewed.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Pause after a probe, whatever came of it.
const AGAIN: Duration = Duration::from_secs(3600);
/// Bound on the time of a probe.
const TIME_S: f64 = 35.0;
/// Largest number of outstanding reads of an idle probe.
const MOST_OUTSTANDING: u32 = 64;

/// Begins and stops the idle probes of a volume.
pub(crate) struct IdleProber {
    volume: String,
    idle_probe: IdleProbe,
    law: Arc<Law>,
    idle_since: Option<Instant>,
    /// Time before which no probe begins.
    next: Option<Instant>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl IdleProber {
    pub(crate) fn new(volume: &str, idle_probe: IdleProbe, law: Arc<Law>) -> IdleProber {
        let volume = volume.to_owned();
        IdleProber { volume, idle_probe, law, idle_since: None, next: None, running: None }
    }

    /// Called after each period with this host's report and the totals of the others. `None`: the exchange fails.
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
        // One host is enough: the host that would lead.
        let ours = others.is_some_and(|o| o.thresholds.leader.is_none() && !o.thresholds.unsaid);
        let due = self.next.is_none_or(|next| now >= next) && is_old(&self.idle_probe.probe);
        if self.running.is_none() && ours && due && now - since >= IDLE {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let (volume, idle_probe) = (self.volume.clone(), self.idle_probe.clone());
        let (stopped, law) = (Arc::clone(&stop), Arc::clone(&self.law));
        tracing::info!(volume, target = %idle_probe.target, "idle: probing it, by reads only");
        let work = move || {
            let before = law.served();
            let busy = || stopped.load(Ordering::Relaxed) || law.served() != before;
            probe(&volume, &idle_probe, &busy);
        };
        let thread = std::thread::Builder::new().name("parda-idle-probe".to_owned()).spawn(work);
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

    /// Stops, and waits for the probe under way.
    pub(crate) fn end(&mut self) {
        self.stop();
        if let Some((_, thread)) = self.running.take() {
            // A thread that panicked has logged its panic.
            let _ = thread.join();
        }
    }
}

/// Whether no host did any IO in a period, and all are heard.
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

/// Whether a new probe is due: the stored one is missing, or a day old.
fn is_old(probe: &Path) -> bool {
    let modified = probe.metadata().and_then(|m| m.modified());
    let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age >= DAY)
}

/// Probes the volume and stores the result. `busy`: another source does IO.
fn probe(volume: &str, idle_probe: &IdleProbe, busy: &dyn Fn() -> bool) {
    match measure(&idle_probe.target, MOST_OUTSTANDING, TIME_S, busy) {
        Err(error) => tracing::warn!(volume, "the probe of the idle volume failed: {error}"),
        Ok(None) => tracing::info!(volume, "probing stopped: there is IO"),
        Ok(Some(document)) => match store(&idle_probe.probe, &document) {
            Ok(threshold) => tracing::info!(
                volume, latency_threshold_ms = threshold, probe = %idle_probe.probe.display(),
                "probed while idle; an automatic threshold begins there from the next start or SIGHUP on"
            ),
            Err(error) => tracing::warn!(volume, "the probe of the idle volume: {error}"),
        },
    }
}

/// Sweeps random reads over the number outstanding. `None` if it was stopped.
fn measure(
    target: &Target,
    most: u32,
    seconds: f64,
    busy: &dyn Fn() -> bool,
) -> Result<Option<ProbeDocument>, String> {
    let (mut reads, target) = Reads::open(target).map_err(|error| error.to_string())?;
    let wishes = Wishes {
        mixes: vec![LoadMix { size: SIZE, read_percent: 100, random_percent: 100 }],
        outstanding: 1..=most,
        all: false,
        purposes: vec![Purpose::Depth],
        effort: Effort::Quick,
        elling: false,
        writes: false,
        largest: SIZE,
    };
    let seed = 1;
    let plan = ProbePlan::new(wishes, seed);
    let mut watcher = Bystander { busy, note: None };
    let document =
        Probe { target, driver: &mut reads, plan, time: Some(seconds), seed }.run(&mut watcher);
    match document.end {
        ProbeEnd::Complete | ProbeEnd::Time => Ok(Some(document)),
        ProbeEnd::Aborted => Ok(None),
        ProbeEnd::Failed => Err(watcher.note.unwrap_or_else(|| "a read failed".to_owned())),
    }
}

/// Stops a probe for the IO of others, and keeps its last note.
struct Bystander<'a> {
    busy: &'a dyn Fn() -> bool,
    note: Option<String>,
}

impl Watcher for Bystander<'_> {
    fn progress(&mut self, _: &ProbeProgress<'_>) -> bool {
        (self.busy)()
    }

    fn note(&mut self, note: &OpenQuestion) {
        if let OpenQuestion::TargetFailed { error, .. } = note {
            self.note = Some(error.clone());
        }
    }
}

/// Replaces the stored probe by one that recommends a threshold, and returns that, in milliseconds.
fn store(file: &Path, document: &ProbeDocument) -> Result<f64, String> {
    let Some(advice) = &document.findings.advice else {
        return Err("no knee was seen, and the stored one is kept".to_owned());
    };
    let text = document.json();
    // A document with which an agent would not start is not stored: JSON writes NaN as null, which would not load.
    let again = ProbeDocument::parse(file, &text).map_err(|error| error.to_string())?;
    Probed::of(file, &again)?;
    let mode = std::fs::metadata(file).map_or(0o644, |about| about.mode());
    replace(file, &text, mode, None).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(advice.latency_threshold_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Config, Measurement, Period, Span, View};

    fn nothing() -> Report {
        let mut period = Period::new(Config::default()).unwrap();
        let second = Span::from_secs(1.0);
        let mut measured = Measurement { elapsed: second, ..Measurement::default() };
        period.tick(&mut measured, View::Silent, None)
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

    fn target(dir: &Path) -> Target {
        let path = dir.join("disk");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        Target { path, region: None }
    }

    /// A directory where O_DIRECT works: not on every file system that temporary files lie on.
    fn place() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn a_probe_reads_and_leaves_all_as_it_was() {
        let dir = place();
        let target = target(dir.path());
        // A busy machine may not come as far as to four reads at a time within seconds. With more time, other loads are measured as well.
        let probes = [5.0, 20.0, 60.0].into_iter();
        let document = { probes }
            .map(|seconds| measure(&target, 4, seconds, &|| false).unwrap().unwrap())
            .find(|document| document.points.len() > 1);
        let document = document.expect("one load takes a minute");
        assert!(std::fs::read(&target.path).unwrap().iter().all(|byte| *byte == 7));
        assert!(!document.target.writes);
        let of = |outstanding| {
            let mut points = document.points.iter();
            points.find(|point| point.load.outstanding == outstanding).unwrap()
        };
        let (one, four) = (of(1), of(4));
        assert!(one.all.ios > 0 && four.all.ios > 0);
        assert!((0.3..1.1).contains(&one.outstanding_measured), "{}", one.outstanding_measured);
        assert_eq!(four.all.histogram.iter().map(|b| b.ios).sum::<u64>(), four.all.ios);
        let text = serde_json::to_string(&document).unwrap();
        let again = serde_json::from_str::<ProbeDocument>(&text).unwrap();
        assert_eq!(again.points.len(), document.points.len());
    }

    #[test]
    fn a_probe_ends_within_milliseconds_of_anothers_io() {
        let dir = place();
        let began = Instant::now();
        let busy = || began.elapsed() > Duration::from_millis(300);
        let ended = measure(&target(dir.path()), MOST_OUTSTANDING, TIME_S, &busy);
        assert!(ended.unwrap().is_none());
        // The time is 300 ms, one look, and the read under way. A busy machine takes longer, but less than the probe's whole time.
        assert!(began.elapsed().as_secs_f64() < TIME_S / 2.0, "{:?}", began.elapsed());
    }

    #[test]
    fn a_target_that_cannot_be_read_is_an_error() {
        let target = Target { path: "/nonexistent/disk".into(), region: None };
        assert!(measure(&target, 4, 4.0, &|| false).is_err());
        let dir = place();
        let beyond = Target { region: Some(1 << 40..2 << 40), ..self::target(dir.path()) };
        assert_eq!(measure(&beyond, 4, 4.0, &|| false).unwrap_err(), "there is nothing to read");
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
