//! The filter of the log, as `--log` has it.

use tracing_subscriber::filter::Targets;

/// The filter of a log for which none is given.
pub(super) const DEFAULT: &str = "info";

/// Parts of parda that log, by their crates; the first stands for all.
const PARTS: [&str; 7] = [
    "parda",
    "parda_agent",
    "parda_block",
    "parda_http",
    "parda_kubernetes",
    "parda_lab",
    "parda_terminal",
];

/// Parses a filter. An empty one counts as not given. A name that is neither a level nor a target below one of [`PARTS`] is an error. Such
/// a filter would silence the whole log.
pub(super) fn parse(text: &str) -> Result<Targets, String> {
    let wrong = |why: String| format!("--log {text:?}: {why}");
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    // PARDA_LOG may be set and empty.
    let plain = Some(plain.trim_matches(',')).filter(|plain| !plain.is_empty());
    let targets: Targets =
        plain.unwrap_or(DEFAULT).parse().map_err(|error| wrong(format!("{error}")))?;
    let is_part = |target: &str| PARTS.contains(&target.split("::").next().unwrap_or_default());
    match targets.iter().find(|(target, _)| !is_part(target)) {
        Some((target, _)) => Err(wrong(format!(
            "{target:?} is neither a level (off, error, warn, info, debug, trace) nor a part of parda that logs ({})",
            PARTS.join(", ")
        ))),
        None => Ok(targets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_none() {
        for text in ["", " ", ","] {
            assert_eq!(parse(text).unwrap().to_string(), DEFAULT, "{text:?}");
        }
    }

    #[test]
    fn levels_and_parts_of_parda_are_filters() {
        for text in ["info", "WARN", "off", "parda_block", "warn,parda_block::conn=trace"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn every_crate_that_logs_is_a_part() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut parts: Vec<_> = ["crates", "lab"]
            .into_iter()
            .flat_map(|wing| std::fs::read_dir(root.join(wing)).unwrap())
            .filter_map(|dir| std::fs::read_to_string(dir.unwrap().path().join("Cargo.toml")).ok())
            .map(|manifest| manifest.parse::<toml::Table>().unwrap())
            .filter(|it| it.get("dependencies").is_some_and(|it| it.get("tracing").is_some()))
            .map(|manifest| manifest["package"]["name"].as_str().unwrap().replace('-', "_"))
            .collect();
        parts.sort();
        assert_eq!(parts, PARTS);
    }

    #[test]
    fn what_would_silence_the_log_is_refused_by_name() {
        for (text, says) in [
            ("loud", "--log \"loud\": \"loud\" is neither a level (off, error,"),
            ("info,lout", "\"lout\" is neither a level"),
            ("tokio=debug", "\"tokio\" is neither a level"),
            ("pardaxyz", "\"pardaxyz\" is neither a level"),
            ("parda_bl=debug", "parda that logs (parda, parda_agent, parda_block,"),
            ("parda_block=loud", "--log \"parda_block=loud\": "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
