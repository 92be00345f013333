//! The web dashboard in Debian's Chromium, driven by Playwright: `web/test`.

use crate::stage::Stage;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/test");

#[test]
fn the_page_bears_sixty_four_hosts_and_a_thousand_vms() {
    let stage = Stage::new();
    // Phone and desktop, light and dark: charts drawn, nothing wider than the window, nothing on the console, no serious finding of axe-core;
    // reached by keyboard alone; its frames while it is live.
    let said = stage.ok(&["node", &format!("{TESTS}/browser.mjs")]);
    eprintln!("{said}");
}
