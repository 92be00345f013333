//! Metrics in the two formats that scrapers ask for: OpenMetrics, which the agent writes, and Prometheus' text format 0.0.4.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// MIME type of metrics, as OpenMetrics 1.0 gives it.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// MIME type of metrics in Prometheus' own text format.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a scraper asks for OpenMetrics, and does not prefer the text format.
pub(crate) fn wants_openmetrics(headers: &HeaderMap) -> bool {
    let (mut openmetrics, mut text) = (0.0, 0.0);
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let weight: &mut f32 = match parts.next() {
            Some(kind) if kind.eq_ignore_ascii_case("application/openmetrics-text") => {
                &mut openmetrics
            }
            Some(kind) if kind.eq_ignore_ascii_case("text/plain") => &mut text,
            _ => continue,
        };
        let asked = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        *weight = weight.max(asked);
    }
    openmetrics > 0.0 && openmetrics >= text
}

/// OpenMetrics as text format 0.0.4. In that format a counter's family has the name of its samples, which end in `_total`. Units and
/// the end of the text have no lines.
pub(crate) fn text_of(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                // Quotes stand for themselves here.
                let help = help.replace("\\\"", "\"");
                text.push_str(&format!("# HELP {name}{total} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{total} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn openmetrics_is_for_scrapers_that_ask_for_it() {
        for (accept, wants) in [
            ("", false),
            ("*/*", false),
            ("text/html,*/*;q=0.8", false),
            ("text/plain;version=0.0.4", false),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;q=0", false),
            ("text/plain;version=0.0.4;q=0.6, Application/OpenMetrics-Text;q=0.4", false),
            // Prometheus 2 and 3.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5, \
                 text/plain;version=0.0.4;q=0.2, */*;q=0.1",
                true,
            ),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_openmetrics(&headers), wants, "{accept}");
        }
        assert!(!wants_openmetrics(&HeaderMap::new()));
    }

    #[test]
    fn the_text_format_has_the_same_samples_and_counters_by_their_names() {
        let openmetrics = "# HELP a_seconds Time of \\\"a\\\"\n# TYPE a_seconds counter\n\
            # UNIT a_seconds seconds\na_seconds_total{vm=\"# HELP\"} 1.5\n# HELP b Now\n# TYPE b gauge\nb 2.0\n# EOF\n";
        let text = "# HELP a_seconds_total Time of \"a\"\n# TYPE a_seconds_total counter\n\
            a_seconds_total{vm=\"# HELP\"} 1.5\n# HELP b Now\n# TYPE b gauge\nb 2.0\n";
        assert_eq!(text_of(openmetrics), text);
    }
}
