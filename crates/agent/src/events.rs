//! What happened: a bounded memory of the events that the agent logs.
//!
//! A log line with the field `event`, whose value is the name of its kind, is an event as well: one call makes both. The [`Recorder`] is
//! a layer beside the one that writes the log, so that neither the log's level nor its rate limit hides an event.

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

/// How many events are told, if the request does not say.
const TOLD: usize = 100;

/// Name and meaning of each kind of event.
pub const KINDS: &[(&str, &str)] = &[
    ("agent_started", "The agent has started its volumes"),
    ("reload_applied", "The configuration was read again and is in force"),
    ("reload_refused", "The configuration was read again and has an error; nothing was changed"),
    ("volume_added", "A volume came with a reload"),
    ("volume_removed", "A volume went with a reload, or is stopped and started as another"),
    ("volume_down", "A volume does not start, or ended by itself"),
    ("volume_up", "A volume that was down runs again"),
    ("disk_up", "Clients find the disk"),
    ("disk_down", "The disk cannot be served"),
    ("disk_removed", "The disk is removed"),
    ("disk_drains", "A disk takes no new connections"),
    ("disk_drains_no_more", "A disk that was drained takes new connections again"),
    ("disk_shrunk", "The disk's data is smaller than it was: IOs behind its end fail"),
    ("disk_grown", "The disk's data is larger than it was"),
    ("disk_replaced", "The disk's path leads to another file now"),
    ("server_lost", "The NBD server behind a disk was lost"),
    ("server_back", "The NBD server behind a disk is back"),
    ("listener_down", "Nobody can connect at an address"),
    (
        "listener_certificate",
        "A listener's certificate that was read again cannot be used; the one from before is shown",
    ),
    (
        "shares_changed",
        "A disk's shares, burst or latency objective, or the shares of VMs, have changed",
    ),
    ("control_changed", "Settings of the law have changed"),
    (
        "live_change",
        "A setting was changed while the agent ran: by whom, from where, before and now",
    ),
    ("tenants_changed", "Tenants of a volume, or what they have, have changed"),
    ("change_left_out", "A live change conflicts with the configuration, and is left out"),
    (
        "state_unreadable",
        "The state file, or the one with the policy, cannot be read: what is kept there is not in force",
    ),
    ("policy_applied", "A policy of etcd is in force that was not"),
    ("policy_refused", "The policy of a volume cannot be in force here; the one from before stays"),
    ("policy_unknown", "A policy has keys that this version does not know; the rest is in force"),
    (
        "policy_unreachable",
        "The policy cannot be read from etcd; what was read last stays in force",
    ),
    ("policy_reachable", "The policy can be read from etcd again"),
    ("policy_not_kept", "The policy in force cannot be kept over restarts"),
    (
        "http_down",
        "Nobody is answered at an HTTP address: it cannot be bound, or its certificate cannot be used",
    ),
    ("http_up", "An HTTP address has no fault any more"),
    (
        "http_certificate",
        "A certificate that was read again cannot be used; the one from before is shown",
    ),
    ("tokens_unreadable", "The file of tokens cannot be read: tokens are as before"),
    ("exchange_down", "The exchange cannot be read or written: control falls back"),
    ("exchange_up", "The exchange works again"),
    ("exchange_changed", "The hosts meet elsewhere after a reload"),
    (
        "exchange_warning",
        "Something is wrong in the exchange, such as another host of one name or slot",
    ),
    ("exchange_slowed", "Hosts meet less often than configured"),
    ("host_appeared", "Another host is seen to live for the first time"),
    ("host_silent", "Another host is heard no more and did not say goodbye"),
    ("host_returned", "A host that was silent or had left lives again"),
    ("host_left", "Another host said goodbye"),
    ("settings_differ", "Live hosts have different settings that must be alike"),
    ("settings_alike", "All live hosts have the same settings again"),
    (
        "objective_in_force",
        "A disk's latency objective is in force in place of the volume's threshold",
    ),
    ("objective_over", "No latency objective is in force any more"),
    ("reservation_short", "A disk or a tenant asks for its reservation and has less"),
    ("objective_missed", "A disk misses its latency objective for want of shares"),
    ("threshold_missed", "The windows are at their least and the latency is above the threshold"),
    ("array_slower", "The array became slower, or an outsider uses it: by how much"),
    ("array_as_usual", "The array serves IOs as fast again as it did"),
    ("log_lost", "Lines of the log cannot be written, for example as the disk is full"),
    ("log_written", "The log can be written again: how many lines were lost"),
    ("held_too_long", "IOs went out of turn, as their disk had been held for hold_max"),
    ("device_lost", "A device cannot be steered"),
    ("device_back", "A device that was lost is steered again"),
    ("vm_came", "A VM's cgroup or QEMU came"),
    ("vm_went", "A VM's cgroup or QEMU went"),
];

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
        let (told, events) = self.find(query);
        Events { events: events.iter().map(|event| Event::clone(event)).collect(), ..told }
    }

    /// The answer without its events, and its events.
    fn find(&self, query: EventsQuery) -> (Events, Vec<Arc<Event>>) {
        let memory = locked(&self.0);
        let limit = query.limit.unwrap_or(TOLD);
        let oldest = memory.last_id + 1 - memory.events.len() as u64;
        // Who knows of later events has seen another run of the agent.
        let after = query.after.map(|after| if after > memory.last_id { 0 } else { after });
        let from = match after {
            Some(after) => (after + 1).max(oldest) - oldest,
            None => memory.events.len().saturating_sub(limit) as u64,
        };
        let events = memory.events.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        let told = Events {
            started_ms: memory.started_ms,
            events: Vec::new(),
            last_id: memory.last_id,
            lost: after.map_or(0, |after| oldest.saturating_sub(after + 1)),
        };
        (told, events.take(limit).cloned().collect())
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
        let mut text = Bounded::default();
        // What is too long ends early, which is no error here.
        let _ = write!(text, "{value:?}");
        self.take(field.name(), text.0);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = Bounded::default();
        let _ = text.write_str(value);
        self.take(field.name(), text.0);
    }
}

impl Read {
    fn take(&mut self, field: &str, text: String) {
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

/// A text of at most [`LONGEST`] bytes.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST.saturating_sub(self.0.len()).min(text.len());
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
