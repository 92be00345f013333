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
    let crates = WINGS.iter().flat_map(|wing| folders(wing));
    let imports = |manifest: &str| {
        let dependencies = manifest.split("\n[").find(|part| part.starts_with("dependencies]"));
        let ours =
            |line: &str| Some(line.strip_prefix("parda-")?.split(['.', ' ']).next()?.to_owned());
        dependencies.unwrap_or_default().lines().filter_map(ours).collect()
    };
    crates
        .map(|(name, path)| (name, imports(&fs::read_to_string(path.join("Cargo.toml")).unwrap())))
        .collect()
}

/// The two wings: what runs on a host, and what proves it.
const WINGS: [&str; 2] = ["crates", "lab"];

/// The crates of a wing with their folders, each by its name in the table. That of a wing's program has the program's name.
fn folders(wing: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join(wing)).unwrap();
    let named = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        (if name == "cli" { format!("{wing}/cli") } else { name.to_owned() }, path)
    });
    named.collect()
}

/// The same by the tables, whose rows are ``| `WING/NAME` | subject | one, another |``.
fn table(page: &str) -> Imports {
    let row = |line: &str| {
        let (folder, rest) = line.strip_prefix("| `")?.split_once('`')?;
        let (_, name) = folder.split_once('/').filter(|(wing, _)| WINGS.contains(wing))?;
        let name = if name == "cli" { folder } else { name };
        let imports = rest.trim_end().trim_end_matches('|').rsplit('|').next()?.trim();
        let imports = imports.split(", ").filter(|name| !name.is_empty());
        Some((name.to_owned(), imports.map(str::to_owned).collect()))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_table_of_rooms_is_what_the_manifests_say() {
    let manifests = manifests();
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = table(&page);
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
    let all: BTreeMap<String, PathBuf> = WINGS.iter().flat_map(|wing| folders(wing)).collect();
    let reads = |name: &String| {
        let source = source(&all[name].join("src"));
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
fn no_crate_of_a_host_imports_one_of_the_laboratory() {
    let imports = manifests();
    let lab: BTreeSet<String> = folders("lab").into_iter().map(|(name, _)| name).collect();
    for (name, _) in folders("crates") {
        let reached: Vec<_> = imports[&name].intersection(&lab).collect();
        assert!(reached.is_empty(), "{name} imports {reached:?}");
    }
}

#[test]
fn the_agent_carries_neither_charts_nor_workloads() {
    let reached = reach("agent", &manifests());
    for room in ["plot", "probe-tools", "terminal", "workload"] {
        assert!(!reached.contains(room), "agent reaches {room}: {reached:?}");
    }
}
