//! IOs at the array, and the owner of each completion.
//!
//! The array returns a tag with each completion. The tag of a VM's IO contains all that is needed: so a large cluster has no table of
//! IOs, which would not fit the processor's caches.

use parda_array::IoTag;
use parda_control::IoId;
use parda_scenario::HostIndex;
use slab::Slab;

use crate::events::{Life, Visit};

/// Bit set in the tag of a visit to the exchange.
const VISIT: u64 = 1 << 63;

/// IOs at the array.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Host of each life of an agent; index 0 is life 1.
    lives: Vec<HostIndex>,
    /// Number of VMs' IOs at the array.
    ios: usize,
    visits: Slab<(Life, Visit)>,
}

/// A completion of the array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Landed {
    /// An IO of a VM.
    Io(HostIndex, Life, IoId),
    /// A visit to the exchange.
    Visit(HostIndex, Life, Visit),
}

impl Flights {
    /// Begins a new life of an agent.
    pub(crate) fn begin_life(&mut self, host: HostIndex) -> Life {
        self.lives.push(host);
        Life(self.lives.len() as u64)
    }

    /// Tag of a VM's IO that goes to the array. Lives, and IOs of an agent at a time, are fewer than 2³¹.
    pub(crate) fn io(&mut self, Life(life): Life, IoId(io): IoId) -> IoTag {
        self.ios += 1;
        IoTag(life << u32::BITS | io as u64)
    }

    /// Tag of a visit that goes to the array.
    pub(crate) fn visit(&mut self, life: Life, visit: Visit) -> IoTag {
        IoTag(VISIT | self.visits.insert((life, visit)) as u64)
    }

    /// Owner of a completion, if it was under way.
    pub(crate) fn land(&mut self, IoTag(tag): IoTag) -> Option<Landed> {
        if tag & VISIT != 0 {
            let (life, visit) = self.visits.try_remove((tag & !VISIT) as usize)?;
            return Some(Landed::Visit(self.host(life)?, life, visit));
        }
        let (life, io) = (Life(tag >> u32::BITS), IoId(tag as u32 as usize));
        self.ios = self.ios.checked_sub(1)?;
        Some(Landed::Io(self.host(life)?, life, io))
    }

    fn host(&self, Life(life): Life) -> Option<HostIndex> {
        self.lives.get((life as usize).checked_sub(1)?).copied()
    }

    /// Number of IOs and visits at the array.
    pub(crate) fn len(&self) -> usize {
        self.ios + self.visits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_array_has_done_is_known_by_its_tag_and_only_once() {
        let mut flights = Flights::default();
        let lives = [7, 3, 7].map(|host| flights.begin_life(HostIndex(host)));
        let io = flights.io(lives[2], IoId(u32::MAX as usize));
        let visit = flights.visit(lives[1], Visit(5));
        assert_eq!(flights.len(), 2);
        let landed = Landed::Io(HostIndex(7), lives[2], IoId(u32::MAX as usize));
        assert_eq!(flights.land(io), Some(landed));
        assert_eq!(flights.land(visit), Some(Landed::Visit(HostIndex(3), lives[1], Visit(5))));
        assert_eq!(flights.len(), 0);
        assert_eq!((flights.land(io), flights.land(visit)), (None, None));
        assert_eq!(flights.land(IoTag(9 << u32::BITS)), None);
    }
}
