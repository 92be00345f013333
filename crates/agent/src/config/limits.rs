//! `[limits]` and `[volume.limits]`: what clients may take.

use std::time::Duration;

use bytesize::ByteSize;
use parda_block::{AgentMemory, Limits};
use parda_config::{Document, Error};
use serde::{Deserialize, Serialize};

/// `[limits]`: for the whole agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Bytes of memory in the buffers of all volumes.
    #[serde(with = "parda_config::quantity")]
    pub memory: Option<ByteSize>,
}

/// `[volume.limits]`: for the clients of one volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeLimits {
    /// Bytes of memory in the buffers of the volume.
    #[serde(with = "parda_config::quantity")]
    pub memory: Option<ByteSize>,
    /// Clients that have chosen a disk.
    pub connections: Option<usize>,
    /// Clients of one disk.
    pub connections_per_export: Option<usize>,
    /// Clients of one process on this host, or of one address.
    pub connections_per_peer: Option<usize>,
    /// Handshakes that begin in a second, beyond what may begin at once.
    pub handshakes_per_second: Option<usize>,
    /// Bytes of memory in the buffers of one client.
    #[serde(with = "parda_config::quantity")]
    pub memory_per_connection: Option<ByteSize>,
    /// Requests of one client in flight.
    pub requests_per_connection: Option<usize>,
    /// How long a handshake may take.
    #[serde(with = "parda_config::quantity")]
    pub handshake_timeout: Option<Duration>,
    /// How long a client may hold up its own requests and replies.
    #[serde(with = "parda_config::quantity")]
    pub progress_timeout: Option<Duration>,
}

/// Connections and requests: more would only be a mistake in the number.
const MOST: usize = 65_536;

/// The shortest and the longest time that may be set.
const TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));

/// Memory: the same.
const MOST_MEMORY: u64 = 1 << 40;

/// The memory of the agent, for so many volumes that serve disks.
pub(super) fn check_agent(
    doc: &Document,
    limits: &AgentLimits,
    volumes: usize,
) -> Result<usize, Error> {
    let least = AgentMemory::LEAST_OF_A_VOLUME * volumes.max(1);
    match limits.memory {
        None => Ok(least.max(AgentMemory::default().total())),
        Some(memory) => within(memory, least).map_err(|message| {
            doc.error("limits.memory", format!("{message}: 64MiB or more for each volume"))
        }),
    }
}

/// The value as a number of bytes, checked to be from `least` to 1 TiB.
fn within(value: ByteSize, least: usize) -> Result<usize, String> {
    match usize::try_from(value.as_u64()) {
        Ok(bytes) if bytes >= least && value.as_u64() <= MOST_MEMORY => Ok(bytes),
        _ => Err(format!("must be from {}MiB to 1TiB", least >> 20)),
    }
}

/// The limits of one volume, which shares the agent's memory with others.
pub(super) fn check_volume(
    wrong: &dyn Fn(&str, String) -> Error,
    written: &VolumeLimits,
    agent: &AgentMemory,
) -> Result<Limits, Error> {
    let default = Limits::default();
    let count = |key: &str, value: Option<usize>, default: usize| match value {
        None => Ok(default),
        Some(n @ 1..=MOST) => Ok(n),
        Some(_) => Err(wrong(&format!("limits.{key}"), format!("must be from 1 to {MOST}"))),
    };
    let time = |key: &str, value: Option<Duration>, default: Duration| match value {
        None => Ok(default),
        Some(time) if (TIMES.0..=TIMES.1).contains(&time) => Ok(time),
        Some(_) => Err(wrong(&format!("limits.{key}"), "must be from 100ms to 1day".into())),
    };
    let bytes = |key: &str, value: Option<ByteSize>, default: usize, least: usize| match value {
        None => Ok(default),
        Some(value) => within(value, least).map_err(|why| wrong(&format!("limits.{key}"), why)),
    };
    let connections = count("connections", written.connections, default.connections)?;
    // Where only the limit of all is set, that of each follows it.
    let of_each = |value: usize| value.min(connections);
    let limits = Limits {
        memory: bytes("memory", written.memory, default.memory, AgentMemory::LEAST_OF_A_VOLUME)?,
        connections,
        connections_per_export: count(
            "connections_per_export",
            written.connections_per_export,
            of_each(default.connections_per_export),
        )?,
        connections_per_peer: count(
            "connections_per_peer",
            written.connections_per_peer,
            of_each(default.connections_per_peer),
        )?,
        handshakes_per_second: count(
            "handshakes_per_second",
            written.handshakes_per_second,
            default.handshakes_per_second,
        )?,
        memory_per_connection: bytes(
            "memory_per_connection",
            written.memory_per_connection,
            default.memory_per_connection,
            1 << 20,
        )?,
        requests_per_connection: count(
            "requests_per_connection",
            written.requests_per_connection,
            default.requests_per_connection,
        )?,
        handshake_timeout: time(
            "handshake_timeout",
            written.handshake_timeout,
            default.handshake_timeout,
        )?,
        progress_timeout: time(
            "progress_timeout",
            written.progress_timeout,
            default.progress_timeout,
        )?,
    };
    agent
        .check(limits.memory, limits.connections)
        .map_err(|error| wrong("limits", error.to_string()))?;
    Ok(limits)
}
