//! Pages say what the code says. `UPDATE_DOCS=1 cargo test -p parda-config` writes them.

use std::fmt::Write as _;
use std::path::Path;

use parda_config::{DISK_SETTINGS, DiskSetting, TUNABLES};

/// Holds a page to what `made` makes of it.
fn hold(name: &str, made: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let written = std::fs::read_to_string(&path).expect(name);
    let page = made(&written);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).expect(name);
    } else {
        assert_eq!(written, page, "run UPDATE_DOCS=1 cargo test -p parda-config");
    }
}

#[test]
fn the_page_is_held_to_the_code() {
    let mut page = String::from(
        "# Tunables of the control law\n\n\
         Every setting of `[volume.control]` in `parda.toml` and of `[control]` in a scenario. All are optional. Hosts that share a volume \
         should\nagree on all of them. This page is made from the code.\n\n\
         | setting | value | default | what it does, and why this default | source |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for t in TUNABLES {
        let row = [&format!("`{}`", t.key), t.unit, &format!("`{}`", t.default), t.why, t.source];
        writeln!(page, "| {} |", row.join(" | ")).unwrap();
    }
    hold("tunables.md", |_| page);
}

/// Rows of the table of a disk's keys are those of the settings, behind the row of `description`.
#[test]
fn the_table_of_a_disks_keys_is_held_to_the_code() {
    let row = |setting: &DiskSetting| {
        let DiskSetting { key, bounds, what, .. } = setting;
        let number = |text: &str| text.parse::<f64>().is_ok();
        let values = match setting.default() {
            Some(default) if number(&default) => format!("{default}; {bounds}"),
            Some(default) => format!("`{default}`; {bounds}"),
            None => (*bounds).to_owned(),
        };
        format!("| `{key}` | {values} | {what} |\n")
    };
    hold("configuration.md", |written| {
        let (before, rest) = written.split_once("### `[[volume.disk]]`\n").unwrap();
        let (table, after) = rest.split_once("\n## ").unwrap();
        let is = |line: &str, key: &str| line.starts_with(&format!("| `{key}` |"));
        let others = table.lines().filter(|line| !DISK_SETTINGS.iter().any(|s| is(line, s.key)));
        let mut page = format!("{before}### `[[volume.disk]]`\n");
        for line in others {
            page += &format!("{line}\n");
            if is(line, "description") {
                page.extend(DISK_SETTINGS.iter().map(row));
            }
        }
        page + "\n## " + after
    });
}
