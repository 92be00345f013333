//! docs/probe.md shows what pages show.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

#[path = "reading/mod.rs"]
mod page;

#[test]
fn the_manual_shows_what_a_page_shows() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let manual = std::fs::read_to_string(docs.join("probe.md")).unwrap();
    let pictures = page::pictures();
    for (name, svg) in &pictures {
        let file = docs.join("probe").join(format!("{name}.svg"));
        let shown = std::fs::read_to_string(&file).unwrap();
        assert!(shown == *svg, "`make reproduce` renews {}", file.display());
        assert!(manual.contains(&format!("](probe/{name}.svg)")), "{name} is in the manual");
    }
    assert_eq!(docs.join("probe").read_dir().unwrap().count(), pictures.len());
}
