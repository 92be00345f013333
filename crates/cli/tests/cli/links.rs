//! Every link in the documentation leads to a file that exists, and to a heading that it has.
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let markdown = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect::<Vec<_>>()
    };
    [markdown(&root()), markdown(&root().join("docs"))].concat()
}

/// The text without what is code: links in examples lead nowhere.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let lines = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence && !line.starts_with("    ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// The anchors of a page's headings, as forges make them.
fn anchors(page: &str) -> HashSet<String> {
    let mut all = HashSet::new();
    for line in prose(page).lines().filter(|line| line.starts_with('#')) {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let twice = (1..).map(|n| format!("{anchor}-{n}")).find(|next| !all.contains(next));
        all.insert(if all.contains(&anchor) { twice.unwrap() } else { anchor });
    }
    all
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    let pages = pages();
    assert!(pages.len() >= 20, "{pages:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&prose(&text)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = target.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !found {
                dead.push(format!("{}: {link}", page.file_name().unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_page_of_docs_is_in_the_index() {
    let docs = root().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).unwrap();
    let listed: HashSet<&str> = links(&index).into_iter().collect();
    let pages = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().file_name());
    let mut missing: Vec<_> = pages.map(|name| name.into_string().unwrap()).collect();
    missing.retain(|n| n.ends_with(".md") && n != "README.md" && !listed.contains(n.as_str()));
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

/// Files and folders of the repository that a page names in code font, such as `crates/agent/src/lib.rs`.
fn named(prose: &str) -> Vec<&str> {
    const TOP: [&str; 9] =
        ["benches", "contrib", "crates", "docs", "fuzz", "lab", "scenarios", "tools", "web"];
    let mut code: Vec<&str> = prose.split('`').skip(1).step_by(2).collect();
    code.retain(|name| name.split_once('/').is_some_and(|(top, _)| TOP.contains(&top)));
    code.retain(|name| !name.contains([' ', '*', '{', '\n']) && !name.contains("NAME"));
    code.into_iter().map(|name| name.split_once(':').map_or(name, |(file, _)| file)).collect()
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let mut dead = Vec::new();
    let mut found = 0;
    // The changelog names files that are gone.
    for page in pages().into_iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(&page).unwrap();
        for file in named(&prose(&text)) {
            found += 1;
            if !root().join(file).exists() {
                dead.push(format!("{}: {file}", page.file_name().unwrap().display()));
            }
        }
    }
    assert!(found >= 100, "{found}");
    assert!(dead.is_empty(), "{dead:#?}");
}
