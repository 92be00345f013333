//! The rooms of ARCHITECTURE.md are the crates that there are, and import what its table says.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Imports = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates of ours that each crate's manifest imports, other than for tests.
fn manifests() -> Imports {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let imports = |manifest: &str| {
        let dependencies = manifest.split("\n[").find(|part| part.starts_with("dependencies]"));
        let ours =
            |line: &str| Some(line.strip_prefix("parda-")?.split(['.', ' ']).next()?.to_owned());
        dependencies.unwrap_or_default().lines().filter_map(ours).collect()
    };
    crates
        .map(|entry| {
            let path = entry.unwrap().path();
            let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), imports(&manifest))
        })
        .collect()
}

/// The same by the table, whose rows are ``| `crates/NAME` | subject | one, another |``.
fn table(page: &str, all: &BTreeSet<String>) -> Imports {
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `crates/")?.split_once('`')?;
        let imports = rest.trim_end().trim_end_matches('|').rsplit('|').next()?.trim();
        let list = |text: &str| -> BTreeSet<String> {
            text.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let imports = match imports.strip_prefix("all but ") {
            Some(others) => {
                let others = list(&others.replace(" and ", ", "));
                all.iter().filter(|n| *n != name && !others.contains(*n)).cloned().collect()
            }
            None => list(imports),
        };
        Some((name.to_owned(), imports))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_table_of_rooms_is_what_the_manifests_say() {
    let manifests = manifests();
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = table(&page, &manifests.keys().cloned().collect());
    assert_eq!(table, manifests, "ARCHITECTURE.md on the left, the manifests on the right");
}

/// Text of all source files below a folder.
fn source(folder: &Path) -> String {
    let read = |path: PathBuf| match path.is_dir() {
        true => source(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap().path())).collect()
}

#[test]
fn crates_that_read_a_clock_are_named() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, list) = page.split_once("Crates that read a clock: ").unwrap();
    let named: BTreeSet<String> =
        list.split('.').next().unwrap().split(',').map(|name| name.trim().to_owned()).collect();
    let reads = |name: &String| {
        let source = source(&root().join("crates").join(name).join("src"));
        ["Instant::now", "SystemTime::now"].iter().any(|call| source.contains(call))
    };
    let found: BTreeSet<String> = manifests().into_keys().filter(reads).collect();
    assert_eq!(named, found, "ARCHITECTURE.md on the left, the sources on the right");
}

/// Everything that a crate imports, directly or through others.
fn reach(of: &str, imports: &Imports) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![of.to_owned()];
    while let Some(name) = left.pop() {
        left.extend(imports[&name].iter().filter(|next| reached.insert((*next).clone())).cloned());
    }
    reached
}

#[test]
fn the_agent_carries_no_laboratory() {
    let reached = reach("agent", &manifests());
    for room in ["sim", "scenario", "workload", "array", "plot", "lab", "report", "probe-tools"] {
        assert!(!reached.contains(room), "agent reaches {room}: {reached:?}");
    }
}
