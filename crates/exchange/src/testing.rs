//! Helpers of several tests.

use parda_control::latency::{Interval, Sample};
use parda_control::size::Moments;
use parda_control::{
    Bytes, Costs, Governed, Instant, Report, Settings, Shares, Source, Span, Tuning, Window,
};

use crate::claim::SlotChoice;
use crate::freshness::Liveness;
use crate::identity::{HostName, Identity, Incarnation, Sequence, VolumeId};
use crate::message::{Message, Publication};
use crate::peers::Peers;
use crate::region::{Region, SlotIndex};
use crate::slot::SlotRecord;
use crate::slots::{SlotExchange, SlotSettings};

pub(crate) const PERIOD: Span = Span::from_millis(1_000);

/// `periods` periods after the start.
pub(crate) fn at(periods: u64) -> Instant {
    Instant(PERIOD.0 * periods)
}

pub(crate) fn identity(host: &str, incarnation: u64) -> Identity {
    Identity { host: HostName::new(host).unwrap(), incarnation: Incarnation(incarnation) }
}

/// A publication that tells itself from others by its window.
pub(crate) fn publication(window: f64) -> Publication {
    Publication {
        period: PERIOD,
        slowed: false,
        leaving: false,
        report: Report {
            elapsed: Span::from_millis(1_003),
            interval: Interval {
                reads: Sample {
                    ios: 500,
                    bytes: Bytes::kib(8_000),
                    latency: Span::from_millis(15_000),
                    scaled: Span::from_millis(12_000),
                    moments: Moments { squares: 160_000.0, products: 260_000.0 },
                },
                writes: Sample {
                    ios: 20,
                    bytes: Bytes::kib(80),
                    latency: Span::from_millis(100),
                    scaled: Span::from_millis(110),
                    moments: Moments { squares: 320.0, products: 400.0 },
                },
            },
            outstanding: 15.5,
            window: Window(window),
            beta: 4.25,
            shares: Shares(3_000),
            active: 2_750.5,
            governed: Governed::Yes,
            source: Source::LastGood,
            threshold: Span::from_millis(30),
            tuning: Tuning::Auto,
            settings: Some(Settings { costs: Some(Costs::BYTES), ..Settings::default() }),
            ..Report::default()
        },
        tenants: Vec::new(),
    }
}

pub(crate) fn leaving() -> Publication {
    Publication { leaving: true, ..publication(0.0) }
}

pub(crate) fn message(from: Identity, sequence: u64) -> Message {
    Message::new(from, Sequence(sequence), publication(16.0))
}

/// Reports of the live hosts.
pub(crate) fn live(peers: &Peers, now: Instant) -> Vec<Report> {
    let live = peers.all(now).filter(|peer| peer.liveness == Liveness::Live);
    live.map(|peer| peer.message.body.report).collect()
}

/// The record of the dump `slot/example.xxd`.
pub(crate) fn example() -> SlotRecord {
    SlotRecord {
        volume: VolumeId::of("array-a"),
        slot: SlotIndex(3),
        message: message(identity("kvm-01", 0x18a9_6f2e_5c4d_3b2a), 42),
    }
}

/// A host of volume `array-a`.
pub(crate) fn exchange(
    region: &(impl Region + Clone + 'static),
    me: Identity,
    choice: SlotChoice,
) -> SlotExchange {
    let settings = SlotSettings {
        me,
        volume: VolumeId::of("array-a"),
        choice,
        period: PERIOD,
        make: "parda exchange init memory".to_owned(),
    };
    SlotExchange::new(region.clone(), settings).unwrap()
}

/// The page of the manual that the format is held to.
pub(crate) fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exchange-format.md");
    std::fs::read_to_string(path).unwrap()
}

/// The rows of the page's byte table of that heading, in its order: field and where it lies.
pub(crate) fn page_fields(heading: &str) -> Vec<(String, std::ops::Range<usize>)> {
    let page = page();
    let section = page.split("\n## ").find(|section| {
        section.lines().next().is_some_and(|title| title.to_lowercase().ends_with(heading))
    });
    let rows = section.unwrap_or_default().lines().filter_map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let offset: usize = cells.next()?.parse().ok()?;
        let len: usize = cells.next()?.parse().ok()?;
        Some((cells.next()?.to_owned(), offset..offset + len))
    });
    rows.collect()
}
