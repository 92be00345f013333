//! What every block of a disk may hold, given what clients asked for and what they were told.
//!
//! An operation that completed before another was sent comes before it; all others are concurrent
//! and may take effect in either order. A write is durable once it completed with FUA, or once a
//! FLUSH succeeded that was sent after the write had completed. After a crash a block may hold
//! the data of any operation that no durable operation came after. Nothing else is legal: not an
//! older version, not a mixture, not the data of another block or of nobody.

use std::collections::HashMap;

/// Bytes of one block. Clients write whole blocks.
pub(crate) const BLOCK: usize = 4096;

/// The number of an operation; the content of the blocks that it writes follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// What an operation does to the blocks in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Write,
    Zero,
    /// Leaves old data or zeroes, as the server likes.
    Trim,
}

/// What one block was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Zeroes,
    Data(OpId),
}

/// A position in the order in which requests were sent and replies received.
type Time = u64;

#[derive(Clone, Debug)]
struct Entry {
    id: OpId,
    effect: Effect,
    sent: Time,
    /// When the reply came that said it succeeded.
    completed: Option<Time>,
    durable: bool,
}

/// One client connection's view of what a FLUSH of its own covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Writes that completed before are not covered: the connection did not exist, or a FLUSH on
    /// it has failed since.
    covers_from: Time,
}

/// A FLUSH that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    sent: Time,
}

/// The operations on every block, and the time.
#[derive(Debug)]
pub(crate) struct History {
    blocks: Vec<Block>,
    now: Time,
    next_id: u64,
    /// Promises of durability so far.
    pub(crate) promises: u64,
}

#[derive(Clone, Debug)]
struct Block {
    /// What the block held before all entries. It is durable.
    base: Content,
    entries: Vec<Entry>,
}

impl History {
    /// A disk of zeroes.
    pub(crate) fn new(blocks: usize) -> History {
        let block = Block { base: Content::Zeroes, entries: Vec::new() };
        History { blocks: vec![block; blocks], now: 0, next_id: 1, promises: 0 }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    pub(crate) fn connect(&mut self) -> Connection {
        Connection { covers_from: self.tick() }
    }

    /// An operation on `range` is about to be sent.
    pub(crate) fn send(&mut self, range: std::ops::Range<usize>, effect: Effect) -> OpId {
        let (id, sent) = (OpId(self.next_id), self.tick());
        self.next_id += 1;
        for block in &mut self.blocks[range] {
            let entry = Entry { id, effect, sent, completed: None, durable: false };
            block.entries.push(entry);
        }
        id
    }

    /// An operation has succeeded; durably, if it was sent with FUA.
    pub(crate) fn complete(&mut self, range: std::ops::Range<usize>, id: OpId, durable: bool) {
        let now = self.tick();
        self.promises += u64::from(durable);
        for block in &mut self.blocks[range] {
            for entry in block.entries.iter_mut().filter(|e| e.id == id) {
                entry.completed = Some(now);
                entry.durable |= durable;
            }
        }
    }

    /// A FLUSH is about to be sent.
    pub(crate) fn flush(&mut self) -> Flush {
        Flush { sent: self.tick() }
    }

    /// A FLUSH on this connection has succeeded.
    pub(crate) fn flushed(&mut self, connection: Connection, flush: Flush) {
        self.promises += 1;
        for entry in self.blocks.iter_mut().flat_map(|b| &mut b.entries) {
            let covered = connection.covers_from..flush.sent;
            entry.durable |= entry.completed.is_some_and(|t| covered.contains(&t));
        }
    }

    /// A FLUSH on this connection has failed: what completed before is promised no more.
    pub(crate) fn flush_failed(&mut self, connection: &mut Connection) {
        connection.covers_from = self.tick();
    }

    /// Whether a block may hold that.
    fn is_legal(&self, block: usize, found: Content) -> bool {
        let Block { base, entries } = &self.blocks[block];
        let kept = |e: &&Entry| e.durable && e.effect != Effect::Trim;
        let overwritten = |completed: Option<Time>| {
            completed.is_some_and(|t| entries.iter().filter(kept).any(|later| later.sent > t))
        };
        let from_entry = entries.iter().any(|entry| {
            let matches = match (entry.effect, found) {
                (Effect::Write, Content::Data(id)) => entry.id == id,
                (Effect::Zero | Effect::Trim, Content::Zeroes) => true,
                _ => false,
            };
            matches && !overwritten(entry.completed)
        });
        from_entry || (*base == found && !entries.iter().any(|e| kept(&e)))
    }

    /// Holds what was found against what may be, and begins anew from there: all that was found
    /// counts as durable, and all that was under way as never sent.
    ///
    /// Returns what is wrong, a line for each block.
    pub(crate) fn settle(&mut self, found: &[Content]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (block, content) in found.iter().enumerate() {
            if !self.is_legal(block, *content) {
                let Block { base, entries } = &self.blocks[block];
                wrong.push(format!(
                    "block {block} holds {content:?}; was {base:?}, then {entries:?}"
                ));
            }
            self.blocks[block] = Block { base: *content, entries: Vec::new() };
        }
        wrong
    }
}

/// The content of a block that an operation writes.
pub(crate) fn content(id: OpId, block: usize) -> Vec<u8> {
    let one = [id.0.to_le_bytes(), (block as u64 ^ 0x7061_7264_6100_0000).to_le_bytes()].concat();
    one.repeat(BLOCK / one.len())
}

/// What a block holds, or its first bytes if nobody ever wrote that.
pub(crate) fn read_content(block: usize, bytes: &[u8]) -> Result<Content, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(Content::Zeroes);
    }
    let id = bytes[..8].try_into().map(|b| OpId(u64::from_le_bytes(b))).unwrap();
    if bytes == content(id, block) {
        return Ok(Content::Data(id));
    }
    let mut parts: HashMap<&[u8], usize> = HashMap::new();
    bytes.chunks(16).for_each(|part| *parts.entry(part).or_default() += 1);
    Err(format!(
        "block {block} holds what nobody wrote, in {} different parts: {:?}…",
        parts.len(),
        &bytes[..32]
    ))
}

mod tests {
    use super::*;

    fn data(id: OpId) -> Content {
        Content::Data(id)
    }

    #[test]
    fn what_is_not_durable_may_be_lost_and_what_is_may_not() {
        let mut history = History::new(1);
        let connection = history.connect();
        let first = history.send(0..1, Effect::Write);
        assert!(history.is_legal(0, data(first)), "it may have been done without a reply");
        history.complete(0..1, first, false);
        assert!(history.is_legal(0, Content::Zeroes), "it was not flushed");
        let flush = history.flush();
        let second = history.send(0..1, Effect::Write);
        history.complete(0..1, second, false);
        history.flushed(connection, flush);
        assert!(!history.is_legal(0, Content::Zeroes));
        assert!(history.is_legal(0, data(first)) && history.is_legal(0, data(second)));
        let third = history.send(0..1, Effect::Zero);
        history.complete(0..1, third, true);
        assert!(!history.is_legal(0, data(first)) && !history.is_legal(0, data(second)));
        assert!(history.is_legal(0, Content::Zeroes));
    }

    #[test]
    fn concurrent_writes_may_land_in_either_order() {
        let mut history = History::new(1);
        let [a, b] = [0, 1].map(|_| history.send(0..1, Effect::Write));
        history.complete(0..1, b, true);
        history.complete(0..1, a, true);
        assert!(history.is_legal(0, data(a)) && history.is_legal(0, data(b)));
        assert!(!history.is_legal(0, Content::Zeroes));
    }

    #[test]
    fn a_trim_takes_nothing_away_and_allows_zeroes() {
        let mut history = History::new(1);
        let write = history.send(0..1, Effect::Write);
        history.complete(0..1, write, true);
        assert!(!history.is_legal(0, Content::Zeroes));
        let trim = history.send(0..1, Effect::Trim);
        history.complete(0..1, trim, true);
        assert!(history.is_legal(0, Content::Zeroes) && history.is_legal(0, data(write)));
    }

    #[test]
    fn a_failed_flush_frees_its_connection_from_promises_and_no_other() {
        let mut history = History::new(1);
        let (mut told, other) = (history.connect(), history.connect());
        let write = history.send(0..1, Effect::Write);
        history.complete(0..1, write, false);
        history.flush_failed(&mut told);
        let flush = history.flush();
        history.flushed(told, flush);
        assert!(history.is_legal(0, Content::Zeroes), "this connection knows of the loss");
        history.flushed(other, flush);
        assert!(!history.is_legal(0, Content::Zeroes), "this one was told that all is well");
    }

    #[test]
    fn what_was_settled_does_not_come_back() {
        let mut history = History::new(1);
        let old = history.send(0..1, Effect::Write);
        assert!(history.settle(&[Content::Zeroes]).is_empty());
        assert!(!history.is_legal(0, data(old)), "a write of a dead server landed later");
        assert_eq!(history.settle(&[data(old)]).len(), 1);
    }

    #[test]
    fn a_block_is_what_one_operation_wrote_there() {
        assert_eq!(read_content(3, &content(OpId(7), 3)), Ok(data(OpId(7))));
        assert_eq!(read_content(3, &[0; BLOCK]), Ok(Content::Zeroes));
        assert!(read_content(4, &content(OpId(7), 3)).is_err(), "another block's data");
        let mut torn = content(OpId(7), 3);
        torn[512..1024].copy_from_slice(&content(OpId(8), 3)[512..1024]);
        assert!(read_content(3, &torn).is_err());
    }
}
