//! Owners of listening addresses, while listeners move from one volume to another.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use parda_address::Address;

use crate::locked::locked;

/// One disk or listener, for as long as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(u64);

impl Owner {
    pub(super) fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Taken {
    owner: Owner,
    volume: String,
}

/// Where the volumes of this agent listen. A volume binds an address when the one that had it has
/// closed its socket and removed the socket's file.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<Address, Taken>>>);

impl Addresses {
    /// Takes it; `Err` names the volume that still has it.
    pub(super) fn take(&self, owner: Owner, volume: &str, address: &Address) -> Result<(), String> {
        match locked(&self.0).entry(address.clone()) {
            Entry::Occupied(taken) => Err(taken.get().volume.clone()),
            Entry::Vacant(place) => {
                place.insert(Taken { owner, volume: volume.to_owned() });
                Ok(())
            }
        }
    }

    pub(super) fn release(&self, owner: Owner) {
        locked(&self.0).retain(|_, taken| taken.owner != owner);
    }
}
