//! State shared by the volumes of an agent: memory and passed sockets. Also addresses and places, while they move from one disk or volume
//! to another.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parda_address::Address;
use parda_awake::Instant;
use parda_block::{AgentMemory, DiskConfig};

use crate::activation::Passed;
use crate::config::Place;
use crate::locked::locked;
use crate::patience::PATIENCE;

/// Resources that the volumes of an agent share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) memory: AgentMemory,
    pub(crate) passed: Arc<Passed>,
    pub(crate) addresses: Addresses,
    pub(crate) opens: Opens,
}

/// One disk or listener, for as long as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(u64);

impl Owner {
    pub(super) fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Addresses at which the volumes of this agent listen. A volume binds an address when the one that had it has closed its socket and
/// removed the socket's file.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<Address, (Owner, String)>>>);

impl Addresses {
    /// Takes an address; `Err` names the volume that still has it.
    pub(super) fn take(&self, owner: Owner, volume: &str, address: &Address) -> Result<(), String> {
        match locked(&self.0).entry(address.clone()) {
            Entry::Occupied(taken) => Err(taken.get().1.clone()),
            Entry::Vacant(place) => {
                place.insert((owner, volume.to_owned()));
                Ok(())
            }
        }
    }

    pub(super) fn release(&self, owner: Owner) {
        locked(&self.0).retain(|_, (other, _)| *other != owner);
    }
}

/// Time of the question to a file system, or of its last answer. `None` before the question's turn: that wait is no silence.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Option<Instant>>>);

impl Heard {
    /// Notes that the file system is asked from now on, or has answered.
    pub(super) fn now(&self) {
        *locked(&self.0) = Some(Instant::now());
    }

    /// Time from which it counts as silent, without a further answer.
    pub(super) fn due(&self) -> Option<Instant> {
        locked(&self.0).map(|heard| heard + PATIENCE)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silence() >= PATIENCE
    }

    pub(super) fn silence(&self) -> Duration {
        locked(&self.0).map_or(Duration::ZERO, |heard| heard.elapsed())
    }

    /// Whether the question still waits for its turn.
    pub(super) fn waits(&self) -> bool {
        locked(&self.0).is_none()
    }
}

/// Bytes of a place.
type Bytes = (Place, Option<Range<u64>>);

/// Places that are being opened.
#[derive(Clone, Default)]
pub(crate) struct Opens(Arc<Mutex<HashMap<Bytes, Heard>>>);

impl Opens {
    /// Begins to open a disk. `Err`: another thread opens the same bytes.
    pub(super) fn begin(&self, disk: &DiskConfig) -> Result<Ticket, Heard> {
        let bytes = (disk.backend.place(), disk.bytes());
        match locked(&self.0).entry(bytes.clone()) {
            Entry::Occupied(other) => Err(other.get().clone()),
            Entry::Vacant(place) => {
                let heard = place.insert(Heard::default()).clone();
                Ok(Ticket { opens: self.clone(), bytes, heard })
            }
        }
    }
}

/// A disk that is being opened, until this is dropped.
pub(super) struct Ticket {
    opens: Opens,
    bytes: Bytes,
    pub(super) heard: Heard,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.opens.0).remove(&self.bytes);
    }
}
