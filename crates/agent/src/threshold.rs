//! Status of an automatic threshold, and the stored probe from which it begins.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parda_control::threshold::Move;
use parda_control::{Estimate, Totals};
use parda_probe::{DocumentError, ProbeDocument};
use serde::{Deserialize, Serialize};

/// Status of an automatic threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdStatus {
    /// Whether this host is the one that searches the threshold. All others take its threshold.
    pub leads: bool,
    /// Current step of the search, or the reason why the threshold does not move, in words.
    pub doing: String,
    /// Slope of throughput over latency, both relative, as last tried: 0 beyond the knee.
    pub slope: Option<f64>,
    /// Standard error of `slope`.
    pub slope_error: Option<f64>,
    /// Number of moves of the threshold since the start.
    pub moves: u64,
    /// Latest move of the threshold, with its reason.
    pub last_move: Option<MoveStatus>,
    /// Threshold that the stored probe recommends, in milliseconds, if there is one.
    pub probed_ms: Option<f64>,
}

/// A move of the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Threshold before the move, in milliseconds.
    pub from_ms: f64,
    /// Threshold after the move, in milliseconds.
    pub to_ms: f64,
    /// Reason of the move, in words.
    pub why: String,
    /// Age of the move, in periods.
    pub periods_ago: u64,
}

impl ThresholdStatus {
    pub(crate) fn new(estimate: &Estimate, probed: Option<&Probed>) -> ThresholdStatus {
        let ms = |secs: f64| secs * 1e3;
        let moved = |(Move { from, to, why }, periods_ago): (Move, u64)| MoveStatus {
            from_ms: ms(from.secs()),
            to_ms: ms(to.secs()),
            why: why.to_string(),
            periods_ago,
        };
        ThresholdStatus {
            leads: estimate.leads,
            doing: estimate.why.to_string(),
            slope: estimate.slope.map(|s| s.value),
            slope_error: estimate.slope.map(|s| s.error),
            moves: estimate.moves,
            last_move: estimate.last.map(moved),
            probed_ms: probed.and_then(|p| p.threshold).map(|t| ms(t.as_secs_f64())),
        }
    }
}

/// A stored probe, as the configuration names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// File in which the probe is stored.
    pub file: PathBuf,
    /// Threshold that it recommends; `None` if there is no such file yet.
    pub threshold: Option<Duration>,
    /// IO/s of all hosts together at that threshold, if the probe measured them.
    pub iops: Option<f64>,
}

impl Probed {
    /// Reads what `parda probe --json` has written. A missing file is no error.
    ///
    /// # Errors
    /// The file cannot be read, is no probe, or recommends nothing.
    pub(crate) fn read(file: &Path) -> Result<Probed, String> {
        match ProbeDocument::read(file) {
            Ok(document) => Probed::of(file, &document),
            Err(DocumentError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => {
                Ok(Probed { file: file.to_owned(), threshold: None, iops: None })
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The probe of a file.
    ///
    /// # Errors
    /// The probe recommends nothing.
    pub(crate) fn of(path: &Path, document: &ProbeDocument) -> Result<Probed, String> {
        let file = path.display();
        let Some(advice) = &document.findings.advice else {
            return Err(format!(
                "{file}: recommends no threshold, as the probe could not tell one"
            ));
        };
        let ms = advice.latency_threshold_ms;
        // By Little's law.
        let chosen = advice.choices.iter().find(|choice| choice.latency_threshold_ms == ms);
        let iops = chosen.map(|choice| choice.outstanding / ms * 1e3);
        Duration::try_from_secs_f64(ms / 1e3)
            .map(|threshold| Probed { file: path.to_owned(), threshold: Some(threshold), iops })
            .map_err(|error| format!("{file}: recommends {ms} ms: {error}"))
    }
}

/// Warning about thresholds of other hosts that conflict with this host's.
pub(crate) fn concern(finds: bool, others: &Totals) -> Option<&'static str> {
    let (pinned, others) = (others.ballot.threshold.winner(), &others.thresholds);
    match (finds, pinned, others.anyone) {
        (true, Some(_), _) => Some(
            "a live host has a number for latency_threshold: this one goes there and finds none of \
             its own",
        ),
        (true, None, _) if others.unsaid => Some(
            "a live host does not say its latency_threshold, as its parda is older: this one stays \
             where it is",
        ),
        (false, _, Some(_)) => Some(
            "live hosts find latency_threshold by themselves, and this one has a number: they go \
             there",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::Thresholds;
    use parda_probe::{
        Advice, FORMAT, Findings, ProbeEnd, TargetInfo, TargetKind, ThresholdChoice,
    };

    fn stored(text: &str) -> Result<Probed, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("probe.json");
        std::fs::write(&file, text).unwrap();
        Probed::read(&file)
    }

    #[test]
    fn what_a_probe_recommends_is_read() {
        let mut probe = ProbeDocument {
            format: FORMAT,
            begun: "2026-11-21T20:00:00Z".to_owned(),
            took_s: 60.0,
            target: TargetInfo {
                name: "/dev/sdb".to_owned(),
                kind: TargetKind::Device,
                bytes: 1 << 40,
                writes: false,
                about: Vec::new(),
            },
            seed: 1,
            end: ProbeEnd::Complete,
            points: Vec::new(),
            findings: Findings::default(),
        };
        let nothing = stored(&serde_json::to_string(&probe).unwrap()).unwrap_err();
        assert!(nothing.contains("recommends no threshold"), "{nothing}");
        probe.findings.advice = Some(Advice {
            latency_threshold_ms: 12.5,
            window_max: 64.0,
            throughput_fraction: 0.96,
            why: Vec::new(),
            choices: vec![ThresholdChoice {
                latency_threshold_ms: 12.5,
                outstanding: 50.0,
                throughput_fraction: 0.96,
                one_at_a_time_iops: 80.0,
            }],
        });
        let read = stored(&serde_json::to_string(&probe).unwrap()).unwrap();
        assert_eq!(read.threshold, Some(Duration::from_micros(12_500)));
        assert_eq!(read.iops, Some(4000.0), "50 IOs outstanding of 12.5 ms each");
        probe.format += 1;
        assert!(stored(&serde_json::to_string(&probe).unwrap()).unwrap_err().contains("format 3"));
    }

    #[test]
    fn a_file_that_is_not_there_says_nothing_and_one_that_is_no_probe_is_an_error() {
        assert_eq!(Probed::read(Path::new("/nonexistent/p.json")).unwrap().threshold, None);
        let error = stored("{\n  \"format\": x }").unwrap_err();
        assert!(error.contains("probe.json:2:13: not a probe"), "{error}");
    }

    #[test]
    fn thresholds_that_do_not_go_together_are_worth_a_word() {
        let (none, ms) = (Totals::default(), parda_control::Span::from_millis);
        assert_eq!([concern(true, &none), concern(false, &none)], [None; 2]);
        let mut pinned = none;
        pinned.ballot.threshold.add(ms(30), 1000);
        assert_eq!(concern(false, &pinned), None);
        assert!(concern(true, &pinned).is_some_and(|c| c.contains("goes there")));
        let said = |thresholds| Totals { thresholds, ..none };
        let found = said(Thresholds { anyone: Some(ms(20)), ..Thresholds::default() });
        assert!(concern(false, &found).is_some());
        let unsaid = said(Thresholds { unsaid: true, ..Thresholds::default() });
        assert!(concern(true, &unsaid).is_some());
        assert_eq!(concern(false, &unsaid), None);
    }
}
