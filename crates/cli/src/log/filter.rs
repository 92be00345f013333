//! The filter of the log, as `--log` has it.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The filter of a log for which none is given.
pub(crate) const DEFAULT: &str = "info";

/// Parses a filter. One with nothing in it counts as not given. A name that is neither a level nor a part of parda is an error: it would silence
/// all that is logged.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
    // The variable PARDA_LOG may be set to nothing, which tracing takes for errors alone.
    let none = text.split(',').all(|directive| directive.trim().is_empty());
    let text = if none { DEFAULT } else { text };
    let wrong = |why: String| format!("--log {text:?}: {why}");
    // What spans are filtered by may have commas in it.
    let directives = if text.contains('[') { Vec::new() } else { text.split(',').collect() };
    for directive in directives {
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (target.trim(), Some(level.trim())),
            None => (directive.trim(), None),
        };
        if level.is_none() && target.parse::<LevelFilter>().is_ok() {
            continue;
        }
        if !target.starts_with("parda") {
            return Err(wrong(format!(
                "{target:?} is neither a level (off, error, warn, info, debug, trace) nor a part of \
                 parda, such as parda_block"
            )));
        }
        if let Some(level) = level.filter(|level| level.parse::<LevelFilter>().is_err()) {
            return Err(wrong(format!(
                "{level:?} is no level: off, error, warn, info, debug or trace"
            )));
        }
    }
    EnvFilter::try_new(text).map_err(|e| wrong(e.to_string()))
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
    fn what_would_silence_the_log_is_refused_by_name() {
        for (text, says) in [
            ("loud", "--log \"loud\": \"loud\" is neither a level (off, error,"),
            ("info,lout", "\"lout\" is neither a level"),
            ("tokio=debug", "\"tokio\" is neither a level"),
            ("parda_block=loud", "--log \"parda_block=loud\": \"loud\" is no level"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
