//! What several tests need.

use std::path::Path;
use std::time::Duration;

use parda_control::{Bytes, Governed, Report, Shares, Source, Span, Tuning, Window};
use parda_exchange::region::FileRegion;
use parda_exchange::{
    HostName, Identity, Incarnation, Location, Publication, Region, Site, SlotChoice, SlotCount,
    SlotExchange, SlotIndex, SlotSettings, VolumeId, init,
};

/// Run 1 of `host`, in a slot of its own on volume `array-a`.
#[allow(dead_code, reason = "not all tests give a host its slot")]
pub(crate) fn exchange(region: impl Region + 'static, host: &str, slot: u32) -> SlotExchange {
    let settings = SlotSettings {
        me: Identity { host: HostName::new(host).unwrap(), incarnation: Incarnation(1) },
        volume: VolumeId::of("array-a"),
        choice: SlotChoice::Fixed(SlotIndex(slot)),
        period: Span::from_millis(1_000),
        make: "parda exchange init".to_owned(),
    };
    SlotExchange::new(region, settings).unwrap()
}

/// Makes an exchange of so many slots, for any volume.
#[allow(dead_code, reason = "not all tests make one")]
pub(crate) fn make(path: &Path, offset: Option<Bytes>, slots: u32) -> FileRegion {
    let slots = SlotCount::new(slots).unwrap();
    let site = Site::new(Location::Path(path.to_owned()), offset).unwrap();
    init(&site, slots, None, Duration::from_secs(60)).unwrap();
    FileRegion::new(path, offset, slots).unwrap()
}

/// A publication that tells itself from others by its window.
pub(crate) fn publication(window: f64) -> Publication {
    let report = Report {
        elapsed: Span::from_millis(1_000),
        outstanding: 1.0,
        window: Window(window),
        beta: 1.0,
        shares: Shares(1_000),
        active: 1_000.0,
        governed: Governed::Yes,
        source: Source::Cluster,
        threshold: Span::from_millis(30),
        tuning: Tuning::Pinned,
        ..Report::default()
    };
    Publication {
        period: Span::from_millis(1_000),
        slowed: false,
        leaving: false,
        report,
        tenants: Vec::new(),
    }
}
