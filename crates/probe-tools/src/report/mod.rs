//! Reports of a probe: a table for the terminal, charts, and an HTML page.
//!
//! | file | subject |
//! | --- | --- |
//! | `words` | numbers, times and sizes as text |
//! | `sentences` | reason codes as sentences |
//! | `figures` | charts |
//! | `table` | tables for the terminal |
//! | `page` | an HTML page |

mod figures;
mod page;
mod sentences;
mod table;
mod words;

pub use figures::figures;
pub use page::page;
pub use sentences::unknown;
pub use table::table;

/// A probe for tests.
#[cfg(test)]
mod example {
    use std::sync::LazyLock;

    use parda_probe::{
        Effort, Evidence, Findings, LoadMix, OpenQuestion, ProbeDocument, ProbeEnd, Purpose,
        Suspect, Suspicion, Wishes,
    };

    static PROBE: LazyLock<ProbeDocument> = LazyLock::new(|| {
        let mut target = parda_sim::probe::target("drive-7200").unwrap();
        let wishes = Wishes {
            mixes: vec![LoadMix { size: 4096, read_percent: 100, random_percent: 100 }],
            outstanding: 1..=64,
            all: false,
            purposes: vec![Purpose::Depth, Purpose::Size, Purpose::Mix, Purpose::Repeat],
            effort: Effort::Usual,
            elling: false,
            writes: true,
            largest: 1 << 20,
        };
        let mut document = target.probe(wishes, None, 1, &mut ());
        document.begun = "2026-01-31T12:00:00Z".to_owned();
        document.took_s = 200.0;
        document.points[1].settled = false;
        let evidence = vec![Evidence::ThroughputFalls {
            outstanding: 1,
            first_iops: 5000.0,
            last_iops: 180.0,
        }];
        document.findings.unknown = vec![OpenQuestion::OtherHosts];
        document.findings.suspicions = vec![Suspicion { what: Suspect::WriteCache, evidence }];
        document
    });

    /// A probe of a drive, with every kind of finding.
    pub(crate) fn document() -> ProbeDocument {
        PROBE.clone()
    }

    /// A probe that was stopped before anything was measured.
    pub(crate) fn empty() -> ProbeDocument {
        let (points, findings) = (Vec::new(), Findings::default());
        ProbeDocument { points, findings, end: ProbeEnd::Aborted, ..document() }
    }
}
