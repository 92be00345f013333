//! A bounded memory of the events that the agent logs.
//!
//! A log line with the field `event` is also an event of that kind: one call makes both. The [`Recorder`] is a layer beside the log's
//! writer: the log's level and rate limit hide no event.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use parda_api::{Event, Events, EventsQuery, Severity};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::locked::locked;

/// Events that are remembered: of a few kB each at most.
const KEPT: usize = 1000;

/// Bytes of a text in an event.
const LONGEST: usize = 1000;

/// Number of events in an answer, if the request sets none.
const TOLD: usize = 100;

/// A layer that remembers events, and tells them.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Memory>>);

#[derive(Debug)]
struct Memory {
    started_ms: u64,
    last_id: u64,
    /// Shared with readers, so that the lock is held briefly: threads that carry IO log too.
    events: VecDeque<Arc<Event>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let (started_ms, events) = (now_ms(), VecDeque::new());
        Recorder(Arc::new(Mutex::new(Memory { started_ms, last_id: 0, events })))
    }
}

/// The host's clock, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Recorder {
    /// The layer, for a registry of subscribers.
    #[must_use]
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        self.clone().with_filter(filter_fn(is_event))
    }

    /// The answer to a query.
    #[must_use]
    pub fn answer(&self, query: EventsQuery) -> Events {
        let memory = locked(&self.0);
        let limit = query.limit.unwrap_or(TOLD);
        let oldest = memory.last_id + 1 - memory.events.len() as u64;
        // A caller that knows later events has seen another run of the agent.
        let after = query.after.map(|after| if after > memory.last_id { 0 } else { after });
        let from = match after {
            Some(after) => (after + 1).max(oldest) - oldest,
            None => memory.events.len().saturating_sub(limit) as u64,
        };
        let events = memory.events.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        let events: Vec<Arc<Event>> = events.take(limit).cloned().collect();
        let (started_ms, last_id) = (memory.started_ms, memory.last_id);
        let lost = after.map_or(0, |after| oldest.saturating_sub(after + 1));
        // Others log while the events are copied.
        drop(memory);
        let events = events.iter().map(|event| Event::clone(event)).collect();
        Events { started_ms, events, last_id, lost }
    }
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && metadata.fields().field("event").is_some()
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut read = Read::default();
        event.record(&mut read);
        let Some(kind) = read.kind else { return };
        let severity = match *event.metadata().level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            _ => Severity::Info,
        };
        let Read { volume, disk, host, message, more, .. } = read;
        let message = message + &more;
        let mut memory = locked(&self.0);
        memory.last_id += 1;
        let oldest = (memory.events.len() == KEPT).then(|| memory.events.pop_front());
        let (id, at_ms) = (memory.last_id, now_ms());
        let event = Event { id, at_ms, severity, volume, disk, host, kind, message };
        memory.events.push_back(Arc::new(event));
        drop(memory);
        drop(oldest);
    }
}

/// Fields of a log line.
#[derive(Default)]
struct Read {
    kind: Option<String>,
    volume: Option<String>,
    disk: Option<String>,
    host: Option<String>,
    message: String,
    /// All other fields, as the log has them behind the message.
    more: String,
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field.name(), value);
    }
}

impl Read {
    fn take(&mut self, field: &str, text: &str) {
        let mut ends = (0..=LONGEST.min(text.len())).rev();
        let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let text = text[..end].to_owned();
        match field {
            "event" => self.kind = Some(text),
            "volume" => self.volume = Some(text),
            "disk" | "vm" => self.disk = Some(text),
            "host" => self.host = Some(text),
            "message" => self.message = text,
            _ if self.more.len() < LONGEST => {
                // Writing to a string does not fail.
                let _ = write!(self.more, " {field}={text}");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
