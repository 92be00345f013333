//! The read cache: pages recently read from the drives or written by a host.
//!
//! The cache is set-associative, with least-recently-used replacement in each set. An IO costs the simulator
//! one line of the processor's cache for each page. Its contents differ from those of a full LRU list by a
//! few in a hundred.

use alloc::vec::Vec;

use crate::error::{ParamError, check};
use crate::io::ArrayIo;
use crate::units::Bytes;

/// A read cache. Reads from the drives and writes of hosts enter it; the least recently used pages leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCacheParams {
    /// Data that the cache can hold.
    pub capacity: Bytes,
    /// Size of a page, the unit of allocation; a multiple of 512 B.
    pub page: Bytes,
}

/// Limit on the allocation of the model: 2²⁶ pages of bookkeeping.
const MOST_PAGES: u64 = 1 << 26;

impl ReadCacheParams {
    pub(super) fn validate(&self) -> Result<(), ParamError> {
        let Self { capacity, page } = *self;
        let possible = page.0 > 0 && page.0.is_multiple_of(512);
        check(possible, "controller.read_cache.page", page, "be a multiple of 512 B")?;
        let possible = (WAYS as u64..=MOST_PAGES).contains(&(capacity.0 / page.0));
        let must = "hold from 8 to 67108864 pages";
        check(possible, "controller.read_cache.capacity", capacity, must)
    }
}

/// Pages in one set: 64 bytes of entries.
const WAYS: usize = 8;

/// Empty entry: page numbers start above 0.
const NONE: u64 = 0;

/// Pages that the cache holds.
#[derive(Clone, Debug)]
pub(crate) struct ReadCache {
    page: u64,
    /// Entries of each set, the most recently used first.
    sets: Vec<[u64; WAYS]>,
}

impl ReadCache {
    /// Makes an empty cache. `params` are valid.
    pub(crate) fn new(params: &ReadCacheParams) -> ReadCache {
        let sets = (params.capacity.0 / params.page.0) as usize / WAYS;
        ReadCache { page: params.page.0, sets: alloc::vec![[NONE; WAYS]; sets] }
    }

    /// Page numbers of an IO. Pages of different LUNs differ, as no LUN has 2⁴⁰ of them.
    fn pages(&self, io: &ArrayIo) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = (io.offset.0 / self.page, (io.offset.0 + io.len.0 - 1) / self.page);
        let lun = (u64::from(io.lun.0) + 1) << 40;
        (first..=last).map(move |page| lun + page)
    }

    fn set(&mut self, page: u64) -> &mut [u64; WAYS] {
        // Spreads neighbouring pages, and the first pages of LUNs, over different sets.
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = (hash * self.sets.len() as u64) >> 32;
        &mut self.sets[set as usize]
    }

    /// Whether the cache holds all pages of a read. Each page found becomes the most recently used of its
    /// set.
    pub(crate) fn holds(&mut self, io: &ArrayIo) -> bool {
        self.pages(io).all(|page| {
            let set = self.set(page);
            let place = set.iter().position(|held| *held == page);
            place.is_some_and(|place| {
                set[..=place].rotate_right(1);
                true
            })
        })
    }

    /// Adds the pages of a read or a write.
    pub(crate) fn put(&mut self, io: &ArrayIo) {
        for page in self.pages(io) {
            let set = self.set(page);
            let place = set.iter().position(|held| *held == page).unwrap_or(WAYS - 1);
            set[..=place].rotate_right(1);
            set[0] = page;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoKind;
    use crate::units::LunId;

    fn io(lun: u32, page: u64, pages: u64) -> ArrayIo {
        let (offset, len) = (Bytes::kib(8 * page), Bytes::kib(8 * pages));
        ArrayIo { lun: LunId(lun), kind: IoKind::Read, offset, len }
    }

    fn cache(pages: u64) -> ReadCache {
        ReadCache::new(&ReadCacheParams { capacity: Bytes::kib(8 * pages), page: Bytes::kib(8) })
    }

    #[test]
    fn what_was_put_is_held_and_nothing_else() {
        let mut cache = cache(1024);
        cache.put(&io(0, 5, 3));
        assert!(cache.holds(&io(0, 5, 3)) && cache.holds(&io(0, 6, 1)));
        assert!(!cache.holds(&io(0, 4, 2)) && !cache.holds(&io(0, 7, 2)), "only in part");
        assert!(!cache.holds(&io(1, 5, 1)), "another LUN's");
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut cache = cache(1024);
        cache.put(&io(0, 7, 1));
        for page in 0..20_000 {
            cache.put(&io(1, page, 1));
            assert!(cache.holds(&io(0, 7, 1)), "after {page} others");
        }
        let held = (0..20_000).filter(|page| cache.clone().holds(&io(1, *page, 1))).count();
        assert_eq!(held, 1023, "no room is lost");
        let recent = (19_000..20_000).filter(|page| cache.clone().holds(&io(1, *page, 1))).count();
        assert!(recent > 850, "{recent} of the last 1000: nearly as a list over all");
    }
}
