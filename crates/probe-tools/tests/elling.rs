//! Elling's numbers come out of the experiment, and docs/elling.md shows what it gave.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

#[path = "elling/mod.rs"]
mod page;

use page::{parts, pictures, points, published, renewed, run, slowest};
use parda_probe::Mix;

#[test]
fn ellings_numbers_come_out_and_the_page_shows_them() {
    let devices = run();
    let drive = &devices[0].experiment;
    let mut compared = 0;
    for read_percent in [100, 0] {
        let mix = Mix { size: 4096, read_percent, random_percent: 100 };
        for point in points(drive, mix) {
            let n = point.load.outstanding;
            assert!(
                point.settled && point.little_error.abs() < 0.01,
                "{n}: {}",
                point.little_error
            );
            for (what, ours, tolerance) in [
                ("total/iops", point.all.iops, 0.06),
                ("total/device_latency_ms", point.all.mean_ms, 0.06),
            ] {
                let Some(his) = published(mix, n, what) else { continue };
                compared += 1;
                assert!((ours / his - 1.0).abs() <= tolerance, "{mix}, {n}, {what}: {ours}, {his}");
            }
        }
    }
    assert_eq!(compared, 12, "all of his numbers but the next");
    let reads = Mix { size: 4096, read_percent: 100, random_percent: 100 };
    let his = published(reads, 10, "host/drive/device_latency_ms/max").unwrap();
    let ours = slowest(3600.0);
    assert!((ours / his - 1.0).abs() < 0.2, "{ours}, {his}");

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let shown = std::fs::read_to_string(docs.join("elling.md")).unwrap();
    let (new, found) = renewed(&shown, &devices);
    assert_eq!(found.len(), parts(&devices).len(), "{found:?}");
    let differ = shown.lines().zip(new.lines()).find(|(shown, new)| shown != new);
    assert!(shown == new, "`make reproduce` renews the page: {differ:?}");
    let pictures = pictures(&devices);
    for (name, figure) in &pictures {
        let file = docs.join("elling").join(format!("{name}.svg"));
        let shown = std::fs::read_to_string(&file).unwrap();
        assert!(shown == figure.svg(), "`make reproduce` renews {}", file.display());
        assert!(new.contains(&format!("](elling/{name}.svg)")), "{name} is on the page");
    }
    assert_eq!(docs.join("elling").read_dir().unwrap().count(), pictures.len());
}
