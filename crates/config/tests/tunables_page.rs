//! `docs/tunables.md` says what the code says. `UPDATE_DOCS=1 cargo test -p parda-config` writes it.

use std::fmt::Write as _;
use std::path::Path;

use parda_config::TUNABLES;

#[test]
fn the_page_is_held_to_the_code() {
    let mut page = String::from(
        "# Tunables of the control law\n\n\
         Every setting of `[volume.control]` in `parda.toml` and of `[control]` in a scenario. All \
         are optional. Hosts that share a volume should agree on all of them. This page is made \
         from the code, and a test holds it to that.\n\n\
         | setting | value | default | what it does, and why this default | source |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for t in TUNABLES {
        let row = [&format!("`{}`", t.key), t.unit, &format!("`{}`", t.default), t.why, t.source];
        writeln!(page, "| {} |", row.join(" | ")).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tunables.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, page, "run UPDATE_DOCS=1 cargo test -p parda-config");
}
