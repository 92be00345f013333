//! `[limits]` and `[volume.limits]`: resources that clients may take.

use std::time::Duration;

use bytesize::ByteSize;
use parda_block::{AgentMemory, Limits};
use parda_config::{Error, TablePart};
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
    /// Time limit of a handshake.
    #[serde(with = "parda_config::quantity")]
    pub handshake_timeout: Option<Duration>,
    /// Longest time for which a client may hold up its own requests and replies.
    #[serde(with = "parda_config::quantity")]
    pub progress_timeout: Option<Duration>,
}

/// Connections and requests: more would only be a mistake in the number.
const MOST: usize = 65_536;

/// The shortest and the longest time that may be set.
const TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));

/// Largest memory of a volume or of the agent, in bytes.
const MOST_MEMORY: u64 = 1 << 40;

/// The memory of the agent, for so many volumes that serve disks.
pub(super) fn check_agent(
    at: &TablePart<'_>,
    limits: &AgentLimits,
    volumes: usize,
) -> Result<usize, Error> {
    let least = AgentMemory::LEAST_OF_A_VOLUME * volumes.max(1);
    let Some(memory) = limits.memory else {
        return Ok(least.max(AgentMemory::default().total()));
    };
    let memory = within(memory, least);
    at.read("memory", memory.map_err(|fault| format!("{fault}: 64MiB or more for each volume")))
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
    at: &TablePart<'_>,
    written: &VolumeLimits,
    agent: &AgentMemory,
) -> Result<Limits, Error> {
    let count = |n: usize| match n {
        1..=MOST => Ok(n),
        _ => Err(format!("must be from 1 to {MOST}")),
    };
    let time = |time: Duration| match (TIMES.0..=TIMES.1).contains(&time) {
        true => Ok(time),
        false => Err("must be from 100ms to 1day".to_owned()),
    };
    let memory = |least: usize| move |size: ByteSize| within(size, least);
    let mut limits = Limits::default();
    // Written values that are within their bounds replace the defaults.
    macro_rules! limits {
        ($($key:ident: $check:expr),+) => {
            $(if let Some(value) = written.$key {
                limits.$key = at.read(concat!("limits.", stringify!($key)), $check(value))?;
            })+
        };
    }
    limits!(memory: memory(AgentMemory::LEAST_OF_A_VOLUME), connections: count);
    // A limit of all connections alone also bounds the limits of each export and each peer.
    for each in [&mut limits.connections_per_export, &mut limits.connections_per_peer] {
        *each = limits.connections.min(*each);
    }
    limits!(
        connections_per_export: count,
        connections_per_peer: count,
        handshakes_per_second: count,
        memory_per_connection: memory(1 << 20),
        requests_per_connection: count,
        handshake_timeout: time,
        progress_timeout: time
    );
    at.read("limits", agent.check(limits.memory, limits.connections))?;
    Ok(limits)
}
