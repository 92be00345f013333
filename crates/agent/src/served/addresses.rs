//! Owners of listening addresses, while listeners move from one volume to another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parda_address::Address;

/// One disk or listener, for as long as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    address: Address,
}

/// Where the volumes of this agent listen. A volume binds an address when the one that had it has
/// closed its socket and removed the socket's file.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<Vec<Taken>>>);

impl Addresses {
    fn all(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it; `Err` names the volume that still has it.
    pub(super) fn take(&self, owner: Owner, volume: &str, address: &Address) -> Result<(), String> {
        let mut all = self.all();
        match all.iter().find(|taken| taken.address == *address) {
            Some(taken) => Err(taken.volume.clone()),
            None => {
                all.push(Taken { owner, volume: volume.to_owned(), address: address.clone() });
                Ok(())
            }
        }
    }

    pub(super) fn release(&self, owner: Owner) {
        self.all().retain(|taken| taken.owner != owner);
    }
}
