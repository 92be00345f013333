//! The transport over slots: PARDA's file on the shared volume (§4), one slot per host. Each
//! period costs one read of all slots and one write of one's own.

use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::claim::{Claim, SlotChoice};
use crate::exchange::{
    CollectError, Counters, Exchange, Heard, Message, Publication, PublishError,
};
use crate::freshness::Freshness;
use crate::identity::{Identity, Sequence, VolumeId};
use crate::region::{Region, SlotCount, SlotIndex};
use crate::slot::{self, Content, Record, SlotFault};
use crate::table::Table;

/// What a host must say of itself to use slots.
#[derive(Clone, Debug)]
pub struct SlotSettings {
    /// Who we are.
    pub me: Identity,
    /// The volume that is spoken of.
    pub volume: VolumeId,
    /// Which slot.
    pub choice: SlotChoice,
    /// Our own period: the least that a host of unknown period is given before it is gone.
    pub period: Span,
    /// When a slot's owner is given up.
    pub freshness: Freshness,
}

/// A slot that the region does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slot {slot} does not exist: there are {0} slots, from 0 to {1}", slots.get(), slots.get() - 1)]
pub struct NoSuchSlot {
    /// The slot asked for.
    pub slot: SlotIndex,
    /// How many there are.
    pub slots: SlotCount,
}

/// An exchange over the slots of a region.
pub struct SlotExchange {
    region: Box<dyn Region>,
    me: Identity,
    volume: VolumeId,
    sequence: Sequence,
    claim: Claim,
    /// What the last read that worked has shown.
    table: Option<Table>,
    counters: Counters,
}

impl SlotExchange {
    /// An exchange over `region`. Nothing is read or written yet.
    pub fn new(
        region: impl Region + 'static,
        settings: SlotSettings,
    ) -> Result<SlotExchange, NoSuchSlot> {
        let slots = region.slots();
        if let SlotChoice::Fixed(slot) = settings.choice
            && !slots.contains(slot)
        {
            return Err(NoSuchSlot { slot, slots });
        }
        Ok(SlotExchange {
            region: Box::new(region),
            me: settings.me.clone(),
            volume: settings.volume,
            sequence: Sequence::default(),
            claim: Claim::new(settings),
            table: None,
            counters: Counters::default(),
        })
    }

    /// The slot that is ours, once one is.
    #[must_use]
    pub fn slot(&self) -> Option<SlotIndex> {
        self.claim.slot()
    }

    fn place(&self) -> String {
        self.region.place().to_owned()
    }

    /// The slot to write to, if it is known and holds nothing that a write would destroy.
    fn writable_slot(&self) -> Result<SlotIndex, PublishError> {
        let Some(table) = &self.table else {
            return Err(PublishError::NotRead { place: self.place() });
        };
        let Some(slot) = self.claim.slot() else {
            return Err(PublishError::NoFreeSlot {
                place: self.place(),
                slots: self.region.slots(),
            });
        };
        if *table.content(slot) == Content::Fault(SlotFault::NotARecord) {
            return Err(PublishError::NotARecord { place: self.place(), slot });
        }
        Ok(slot)
    }

    fn messages(&mut self, table: &Table) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (_, content) in table.contents() {
            match content {
                Content::Empty => {}
                Content::Fault(fault) => self.counters.count_fault(fault),
                Content::Record(record) if record.volume != self.volume => {
                    self.counters.other_volume += 1;
                }
                Content::Record(record) => {
                    self.counters.records += 1;
                    messages.push(Arc::new(record.message.clone()));
                }
            }
        }
        messages
    }
}

impl Exchange for SlotExchange {
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        let slot = self.writable_slot()?;
        self.sequence = self.sequence.next();
        let record = Record {
            volume: self.volume,
            slot,
            message: Message { from: self.me.clone(), sequence: self.sequence, body: *publication },
        };
        Ok(self.region.write(slot, &slot::encode(&record)?)?)
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        let blocks = self.region.read()?;
        let table = match self.table.take() {
            None => Table::new(now, &blocks),
            Some(mut table) => {
                table.look(now, &blocks);
                table
            }
        };
        let events = self.claim.observe(now, &table, &mut self.counters);
        let messages = self.messages(&table);
        self.table = Some(table);
        Ok(Heard { messages, events })
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
