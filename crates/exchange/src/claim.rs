//! The choice of this host's slot, and its defence against other hosts.

use std::fmt;

use parda_control::Instant;

use crate::counters::RecordCounters;
use crate::exchange::ExchangeEvent;
use crate::freshness::STALE_AFTER;
use crate::identity::{HostId, Identity, Incarnation, VolumeId};
use crate::reach::{choice, reach};
use crate::region::SlotIndex;
use crate::slot::{Content, SlotFault, SlotRecord};
use crate::slots::SlotSettings;
use crate::table::Table;

/// How a host comes to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChoice {
    /// The operator said so. In a conflict both hosts go on and complain.
    Fixed(SlotIndex),
    /// The slot that holds our name, else a free one near the front, by the hash of our name.
    /// In a conflict the later start moves on.
    Automatic,
}

/// Another writer of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    /// A host of this volume; one of our own name if two have the same.
    Host(Identity),
    /// A host that uses the same place for another volume.
    OtherVolume { host: Identity, volume: VolumeId },
    /// A program that writes another version of the format.
    OtherVersion(u32),
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rival::Host(host) => host.fmt(f),
            Rival::OtherVolume { host, volume } => write!(f, "{host} for volume {volume}"),
            Rival::OtherVersion(version) => {
                write!(f, "a program that writes format version {version}")
            }
        }
    }
}

/// The event of a rival. With `moving` we look for another slot; else both go on, and each is heard only until the other writes.
pub(crate) fn conflict(slot: SlotIndex, rival: &Rival, moving: bool) -> ExchangeEvent {
    let what = match moving {
        true => "taking another slot",
        false => "give every host a slot and a name of its own, and every volume a file of its own",
    };
    ExchangeEvent::warning(format!("exchange slot {slot} is also written by {rival}: {what}"))
}

/// The event of a slot that was chosen.
pub(crate) fn chosen(slot: SlotIndex) -> ExchangeEvent {
    ExchangeEvent::info(format!("using exchange slot {slot}"))
}

/// Which slot is ours.
#[derive(Debug)]
pub(crate) struct Claim {
    settings: SlotSettings,
    slot: Option<SlotIndex>,
    /// Number of slots given up. Once above 0, a record under our name is a twin's and not our earlier run's.
    moves: u32,
    /// Looks in a row at which the same rival was there.
    patience: u32,
    last_conflict: Option<(SlotIndex, Rival)>,
}

impl Claim {
    pub(crate) fn new(settings: SlotSettings) -> Claim {
        let slot = match settings.choice {
            SlotChoice::Fixed(slot) => Some(slot),
            SlotChoice::Automatic => None,
        };
        Claim { settings, slot, moves: 0, patience: 0, last_conflict: None }
    }

    pub(crate) fn slot(&self) -> Option<SlotIndex> {
        self.slot
    }

    /// Number of slots to read the next time, to see those of all hosts and our own.
    pub(crate) fn reach(&self, now: Instant, table: &Table) -> u32 {
        let (used, last) = table.used(now, self.settings.period);
        let last = last.max(self.slot).map(|slot| slot.0);
        if self.slot.is_none() { table.len() } else { reach(used, last, table.len()) }
    }

    /// Looks at all slots, whether ours is still ours.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        table: &Table,
        counters: &mut RecordCounters,
    ) -> Vec<ExchangeEvent> {
        let mut events = Vec::new();
        if let Some(slot) = self.slot {
            events.extend(self.defend(slot, table, counters));
        }
        if self.slot.is_none() {
            self.slot = self.choose(now, table);
            events.extend(self.slot.map(chosen));
        }
        events
    }

    fn defend(
        &mut self,
        slot: SlotIndex,
        table: &Table,
        counters: &mut RecordCounters,
    ) -> Option<ExchangeEvent> {
        // Content that does not change may be older than our claim: a dead host's, or a late read's.
        let Some(rival) = self.rival(table.content(slot)).filter(|_| table.changed(slot)) else {
            self.patience = 0;
            return None;
        };
        counters.slot_conflicts += 1;
        self.patience += 1;
        let moving = self.settings.choice == SlotChoice::Automatic && self.yields_to(&rival);
        if moving {
            self.slot = None;
            self.moves = self.moves.wrapping_add(1);
            self.patience = 0;
        }
        let found = (slot, rival);
        let event = conflict(slot, &found.1, moving);
        let is_known = self.last_conflict.as_ref() == Some(&found);
        self.last_conflict = Some(found);
        (moving || !is_known).then_some(event)
    }

    /// The other writer of this content, unless it is about to leave.
    fn rival(&self, content: &Content) -> Option<Rival> {
        let record = match content {
            Content::Empty => return None,
            Content::Fault(SlotFault::Version(version)) => {
                return Some(Rival::OtherVersion(*version));
            }
            Content::Fault(_) => return None,
            Content::Record(record) => record,
        };
        let SlotRecord { volume, message, .. } = record.as_ref();
        let host = message.from.clone();
        if message.body.leaving || (*volume, &host) == (self.settings.volume, &self.settings.me) {
            None
        } else if *volume == self.settings.volume {
            Some(Rival::Host(host))
        } else {
            Some(Rival::OtherVolume { host, volume: *volume })
        }
    }

    /// Whether this host gives up the slot. The later start gives way: a newcomer does not displace a working host, and both
    /// sides decide alike. But with equal periods the later one may read just before and write just after us, and never see us.
    /// Then this host gives way, after the other had its chances.
    fn yields_to(&self, rival: &Rival) -> bool {
        let seniority = |host: &Identity, volume: VolumeId| -> (Incarnation, HostId, VolumeId) {
            (host.incarnation, host.host.id(), volume)
        };
        let theirs = match rival {
            Rival::Host(host) => seniority(host, self.settings.volume),
            Rival::OtherVolume { host, volume } => seniority(host, *volume),
            Rival::OtherVersion(_) => return true,
        };
        let ours = seniority(&self.settings.me, self.settings.volume);
        ours > theirs || self.patience > STALE_AFTER
    }

    fn choose(&self, now: Instant, table: &Table) -> Option<SlotIndex> {
        let predecessor = || {
            self.records(table)
                .filter(|(_, record)| record.message.from.host == self.settings.me.host)
                .max_by_key(|(_, record)| record.message.from.incarnation)
                .map(|(slot, _)| slot)
        };
        let free = || {
            let SlotSettings { me, period, .. } = &self.settings;
            // Near the front, so that few slots need to be read. A slot beyond the last look is not chosen.
            let (used, _) = table.used(now, *period);
            let slots = u64::from(choice(used, table.len()).min(table.shown()));
            // Hosts that have met in one slot do not meet in the next ones.
            let start = me.host.id().0.rotate_right(self.moves.wrapping_mul(8)) % slots;
            (0..slots)
                .map(|i| SlotIndex(((start + i) % slots) as u32))
                .find(|slot| table.is_free(now, *slot, *period))
        };
        if self.moves > 0 { free() } else { predecessor().or_else(free) }
    }

    fn records<'a>(
        &self,
        table: &'a Table,
    ) -> impl Iterator<Item = (SlotIndex, &'a SlotRecord)> + use<'a> {
        let volume = self.settings.volume;
        table.contents().filter_map(move |(slot, content)| match content {
            Content::Record(record) if record.volume == volume => Some((slot, record.as_ref())),
            _ => None,
        })
    }
}
