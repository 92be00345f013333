//! All slots as they were last read, and which of them move.

use parda_control::{Instant, Span};

use crate::freshness::{Liveness, Watch};
use crate::region::{Block, SlotIndex};
use crate::slot::{self, Content, RECORD_BYTES, SlotFault};

/// All slots as they were last read.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    /// Number of slots at the front that the last look showed. The others are as of an earlier
    /// look.
    shown: u32,
}

#[derive(Debug)]
struct Slot {
    content: Content,
    /// Whether the content differs from the look before.
    changed: bool,
    /// By the bytes, so that a host whose records cannot be read is seen to move, too.
    watch: Watch<[u8; RECORD_BYTES]>,
}

impl Table {
    /// The first look, at all slots.
    pub(crate) fn new(now: Instant, blocks: &[Block]) -> Table {
        let slots = blocks.iter().zip(indices()).map(|(block, slot)| Slot {
            content: slot::decode(block, slot),
            changed: false,
            watch: Watch::new(now, mark(block)),
        });
        Table { slots: slots.collect(), shown: blocks.len() as u32 }
    }

    /// Another look, at all slots or at some at the front.
    pub(crate) fn look(&mut self, now: Instant, blocks: &[Block]) {
        self.shown = blocks.len() as u32;
        self.slots.iter_mut().skip(blocks.len()).for_each(|seen| seen.changed = false);
        for ((seen, block), slot) in self.slots.iter_mut().zip(blocks).zip(indices()) {
            seen.changed = seen.watch.look(now, mark(block));
            seen.content = slot::decode(block, slot);
        }
    }

    /// Every slot and its content.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (SlotIndex, &Content)> {
        indices().zip(self.slots.iter().map(|slot| &slot.content))
    }

    pub(crate) fn content(&self, slot: SlotIndex) -> &Content {
        &self.slots[slot.0 as usize].content
    }

    /// Whether the slot's content differs from the look before.
    pub(crate) fn changed(&self, slot: SlotIndex) -> bool {
        self.slots[slot.0 as usize].changed
    }

    /// Whether taking the slot harms no host. The owner has at least `period` for each of
    /// [`GONE_AFTER`](crate::freshness::GONE_AFTER) periods.
    pub(crate) fn is_free(&self, now: Instant, slot: SlotIndex, period: Span) -> bool {
        let seen = &self.slots[slot.0 as usize];
        let gone_by = |period| seen.watch.liveness(now, period) == Liveness::Gone;
        match &seen.content {
            Content::Empty => true,
            Content::Record(record) if record.message.body.leaving => true,
            Content::Record(record) => gone_by(record.message.body.period.max(period)),
            // Not ours to destroy, however long it lies there.
            Content::Fault(SlotFault::NotARecord) => false,
            Content::Fault(_) => gone_by(period),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of slots at the front that the last look showed.
    pub(crate) fn shown(&self) -> u32 {
        self.shown
    }

    /// Number of slots that are not [free](Table::is_free), and the last of these.
    pub(crate) fn used(&self, now: Instant, period: Span) -> (u32, Option<SlotIndex>) {
        let slots = indices().take(self.slots.len());
        let used = slots.filter(|slot| !self.is_free(now, *slot, period));
        used.fold((0, None), |(count, _), slot| (count + 1, Some(slot)))
    }
}

fn indices() -> impl Iterator<Item = SlotIndex> {
    (0..).map(SlotIndex)
}

fn mark(block: &Block) -> [u8; RECORD_BYTES] {
    std::array::from_fn(|i| block.0[i])
}
