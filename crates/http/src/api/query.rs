//! Parameters of requests, from the text behind the `?`.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::Query;
use axum::http::Uri;
use parda_api::{EventsQuery, HistoryQuery, Keep};

use crate::asked::ApiRefusal;

/// Seconds that a history has at most.
const HOUR: u32 = 3600;
/// Largest time and number, as OpenAPI has them.
const LATEST: u64 = i64::MAX as u64;
/// Events that an answer has at most.
const EVENTS: usize = 1000;

/// Names and values, in their order.
fn pairs(text: Option<&str>) -> Result<Vec<(String, String)>, ApiRefusal> {
    let wrong =
        |error: &dyn Display| ApiRefusal::Invalid(format!("the query cannot be read: {error}"));
    let uri = Uri::from_str(&format!("/?{}", text.unwrap_or_default()));
    let read = Query::try_from_uri(&uri.map_err(|error| wrong(&error))?);
    read.map(|Query(pairs)| pairs).map_err(|error| wrong(&error))
}

pub(super) fn history(text: Option<&str>) -> Result<HistoryQuery, ApiRefusal> {
    let (mut query, mut volume) = (HistoryQuery::default(), None);
    for (key, value) in pairs(text)? {
        match key.as_str() {
            "volume" => once(&key, &mut volume, value)?,
            "disk" => query.disk.get_or_insert_default().push(value),
            "host" => query.host.get_or_insert_default().push(value),
            "seconds" => once(&key, &mut query.seconds, within(&key, &value, 1, HOUR)?)?,
            "since_ms" => once(&key, &mut query.since_ms, within(&key, &value, 0, LATEST)?)?,
            _ => return Err(unknown(&key, "volume, disk, host, seconds and since_ms")),
        }
    }
    query.volume = volume.ok_or_else(|| ApiRefusal::Invalid("volume: is missing".to_owned()))?;
    Ok(query)
}

pub(super) fn events(text: Option<&str>) -> Result<EventsQuery, ApiRefusal> {
    let mut query = EventsQuery::default();
    for (key, value) in pairs(text)? {
        match key.as_str() {
            "after" => once(&key, &mut query.after, within(&key, &value, 0, LATEST)?)?,
            "limit" => once(&key, &mut query.limit, within(&key, &value, 1, EVENTS)?)?,
            _ => return Err(unknown(&key, "after and limit")),
        }
    }
    Ok(query)
}

/// Time for which a change is kept.
pub(super) fn keep(text: Option<&str>) -> Result<Option<Keep>, ApiRefusal> {
    let mut keep = None;
    for (key, value) in pairs(text)? {
        match (key.as_str(), value.as_str()) {
            ("keep", "state") => once(&key, &mut keep, Keep::State)?,
            ("keep", "until_restart") => once(&key, &mut keep, Keep::UntilRestart)?,
            ("keep", _) => {
                let message = format!("keep = {value:?}: must be state or until_restart");
                return Err(ApiRefusal::Invalid(message));
            }
            _ => return Err(unknown(&key, "keep")),
        }
    }
    Ok(keep)
}

fn once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), ApiRefusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ApiRefusal::Invalid(format!("{key}: stands twice"))),
    }
}

fn within<T: FromStr + PartialOrd + Display>(
    key: &str,
    text: &str,
    least: T,
    most: T,
) -> Result<T, ApiRefusal> {
    match text.parse() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(ApiRefusal::Invalid(format!("{key} = {text:?}: must be from {least} to {most}"))),
    }
}

fn unknown(key: &str, known: &str) -> ApiRefusal {
    ApiRefusal::Invalid(format!("{key:?}: there is no such parameter, but {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_may_be_escaped_and_those_of_lists_stand_often() {
        let query = history(Some("volume=a%20b&disk=x&disk=y%26z&seconds=60&since_ms=7")).unwrap();
        assert_eq!(query.volume, "a b");
        assert_eq!(query.disk, Some(vec!["x".to_owned(), "y&z".to_owned()]));
        assert_eq!((query.seconds, query.since_ms, query.host), (Some(60), Some(7), None));
        assert_eq!(events(None), Ok(EventsQuery::default()));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (text, wrong) in [
            ("", "volume: is missing"),
            ("volume=a&volume=b", "volume: stands twice"),
            ("volume=a&seconds=0", "seconds = \"0\": must be from 1 to 3600"),
            ("volume=a&seconds=-1", "seconds"),
            ("volume=a&since_ms=18446744073709551616", "since_ms"),
            ("volume=a&disc=b", "\"disc\": there is no such parameter"),
        ] {
            let Err(ApiRefusal::Invalid(message)) = history(Some(text)) else { panic!("{text}") };
            assert!(message.contains(wrong), "{text}: {message}");
        }
        assert!(events(Some("limit=1001")).is_err());
        assert_eq!(keep(Some("keep=until_restart")), Ok(Some(Keep::UntilRestart)));
        assert!(keep(Some("keep=ever")).is_err() && keep(Some("until=ever")).is_err());
    }
}
