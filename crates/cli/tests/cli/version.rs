//! What quotes the version quotes this one.
use std::path::Path;

#[test]
fn packages_manifests_pages_and_the_changelog_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    // File, what stands before the version, and how often.
    let quoted = [
        ("contrib/debian/changelog", "parda (", 1),
        ("contrib/kubernetes/parda.yaml", "image: parda:", 1),
        ("contrib/kubernetes/steer.yaml", "image: parda:", 2),
        ("docs/api.md", "\"version\": \"", 1),
        ("docs/tutorial.md", ", parda ", 1),
        ("CHANGELOG.md", "\n## ", 1),
    ];
    for (file, before, times) in quoted {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        let text = std::fs::read_to_string(text).unwrap();
        let quote = format!("{before}{version}");
        assert_eq!(text.matches(&quote).count(), times, "{file}: {quote:?}");
    }
}
