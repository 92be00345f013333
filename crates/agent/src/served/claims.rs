//! Who has what while disks and listeners move from one volume to another.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parda_nbd::uri::Address;

use crate::config::{Disk, Place};

/// What only one volume may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Listener(Address),
    Data { place: Place, bytes: Range<u64>, read_only: bool },
}

/// Who has it: one disk or listener, for as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u64);

struct Claim {
    owner: Owner,
    volume: String,
    what: What,
}

/// What the volumes of this agent have open. A disk that moves is opened by its new volume when the
/// old one has answered what was in flight and closed it: two rings never write one range.
#[derive(Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<Vec<Claim>>>);

impl Owner {
    pub(super) fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl What {
    pub(super) fn data(disk: &Disk) -> What {
        let bytes = disk.region.clone().unwrap_or(0..u64::MAX);
        What::Data { place: disk.place.clone(), bytes, read_only: disk.read_only }
    }

    fn conflicts(&self, other: &What) -> bool {
        match (self, other) {
            (What::Listener(a), What::Listener(b)) => a == b,
            (
                What::Data { place: a, bytes: x, read_only: r },
                What::Data { place: b, bytes: y, read_only: s },
            ) => a == b && x.start < y.end && y.start < x.end && !(*r && *s),
            _ => false,
        }
    }
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, Vec<Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it; `Err` names the volume that still has it.
    pub(super) fn take(&self, owner: Owner, volume: &str, what: What) -> Result<(), String> {
        let mut all = self.all();
        match all.iter().find(|claim| claim.what.conflicts(&what)) {
            Some(claim) => Err(claim.volume.clone()),
            None => {
                all.push(Claim { owner, volume: volume.to_owned(), what });
                Ok(())
            }
        }
    }

    pub(super) fn release(&self, owner: Owner) {
        self.all().retain(|claim| claim.owner != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_no_other_takes_until_it_is_released() {
        let data = |bytes: Range<u64>, read_only| What::Data {
            place: Place::Path("/dev/x".into()),
            bytes,
            read_only,
        };
        let claims = Claims::default();
        let [a, b, c] = [(); 3].map(|()| Owner::new());
        assert_eq!(claims.take(a, "one", data(0..10, false)), Ok(()));
        assert_eq!(claims.take(b, "two", data(5..15, true)), Err("one".into()));
        assert_eq!(claims.take(b, "two", data(10..20, true)), Ok(()));
        assert_eq!(claims.take(c, "three", data(10..20, true)), Ok(()), "both only read");
        claims.release(a);
        assert_eq!(claims.take(a, "two", data(0..10, false)), Ok(()));
        let address: Address = "unix:s".parse().unwrap();
        assert_eq!(claims.take(a, "one", What::Listener(address.clone())), Ok(()));
        assert_eq!(claims.take(b, "two", What::Listener(address)), Err("one".into()));
    }
}
