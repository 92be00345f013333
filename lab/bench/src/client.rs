//! One connection under load: requests out, replies in, latencies measured.

use std::time::Instant;

use parda_disk::{Extent, Op};
use parda_nbd::client::{self, Expected, Reply, ReplyError, put_request};
use parda_nbd::outbox::Outbox;
use parda_nbd::{Cookie, Framing};

use crate::buffered_socket::BufferedSocket;
use crate::measured::LoadMeasured;
use crate::pattern::Pattern;

/// State of the request with one cookie.
#[derive(Clone, Copy)]
struct RequestSlot {
    extent: Extent,
    write: bool,
    /// Bytes of a read that were received.
    got: u64,
    /// Absent while the slot is free.
    began: Option<Instant>,
}

/// Data of a reply that is still to be received.
#[derive(Clone, Copy)]
struct Coming {
    slot: usize,
    left: usize,
    last: bool,
}

/// A connection under load.
pub(crate) struct Client<'a> {
    pub(crate) socket: BufferedSocket,
    framing: Framing,
    pattern: Pattern,
    pub(crate) outbox: Outbox<&'a [u8]>,
    slots: Vec<RequestSlot>,
    free: Vec<usize>,
    coming: Option<Coming>,
    /// Offset in [`Data`] at which the data of the next write begins.
    data_at: usize,
}

/// Source of the data of all writes: random bytes, of which each write sends another range.
pub(crate) struct Data {
    bytes: Vec<u8>,
    block: usize,
}

/// Distance between the beginnings of the data of two writes.
const DATA_STEP: usize = 512;
const DATA_STARTS: usize = 64;

impl Data {
    pub(crate) fn new(block: u32, seed: u64) -> Self {
        let mut bytes = vec![0; block as usize + DATA_STARTS * DATA_STEP];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        Self { bytes, block: block as usize }
    }
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        socket: BufferedSocket,
        framing: Framing,
        pattern: Pattern,
        depth: u32,
    ) -> Self {
        let depth = depth as usize;
        let extent = Extent { offset: 0, len: 0 };
        Self {
            socket,
            framing,
            pattern,
            outbox: Outbox::default(),
            slots: vec![RequestSlot { extent, write: false, got: 0, began: None }; depth],
            free: (0..depth).rev().collect(),
            coming: None,
            data_at: 0,
        }
    }

    /// Whether no request is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Queues requests until the queue depth is reached.
    pub(crate) fn fill(&mut self, data: &'a Data) {
        if self.free.is_empty() {
            return;
        }
        let began = Some(Instant::now());
        while let Some(index) = self.free.pop() {
            let op = self.pattern.next();
            let (extent, write) = match op {
                Op::Write { extent, .. } => (extent, true),
                Op::Read(extent) => (extent, false),
                _ => continue,
            };
            self.slots[index] = RequestSlot { extent, write, got: 0, began };
            self.outbox.head(|out| put_request(out, Cookie(index as u64), op));
            if write {
                let start = self.data_at * DATA_STEP;
                self.outbox.data(&data.bytes[start..start + data.block]);
                self.data_at = (self.data_at + 1) % DATA_STARTS;
            }
        }
    }

    /// Takes all replies that were received. Completed requests are counted in `measured`, if it is
    /// given.
    pub(crate) fn take_replies(
        &mut self,
        now: Instant,
        mut measured: Option<&mut LoadMeasured>,
    ) -> Result<(), String> {
        loop {
            if let Some(coming) = &mut self.coming {
                let n = coming.left.min(self.socket.bytes().len());
                self.socket.take(n);
                coming.left -= n;
                if coming.left > 0 {
                    return Ok(());
                }
                let Coming { slot, last, .. } = *coming;
                self.coming = None;
                if last {
                    self.done(slot, now, measured.as_deref_mut())?;
                }
            }
            let slots = &self.slots;
            let expected = |cookie: Cookie| {
                let slot = slots.get(usize::try_from(cookie.0).ok()?)?;
                slot.began?;
                Some(if slot.write { Expected::Outcome } else { Expected::Data(slot.extent) })
            };
            let Some(head) = client::reply(self.socket.bytes(), self.framing, expected)
                .map_err(|e| e.to_string())?
            else {
                return Ok(());
            };
            self.socket.take(head.taken);
            let index = head.cookie.0 as usize;
            let slot = &mut self.slots[index];
            let last = match head.reply {
                Reply::Done => true,
                Reply::Data { extent, last } => {
                    slot.got += extent.len;
                    self.coming = Some(Coming { slot: index, left: extent.len as usize, last });
                    continue;
                }
                Reply::Hole { extent, last } => {
                    slot.got += extent.len;
                    last
                }
                // The parser refuses this reply to any request but BLOCK_STATUS.
                Reply::Status { .. } => return Err(ReplyError::WrongKind.to_string()),
                Reply::Error { errno, message, .. } => {
                    let Extent { offset, len } = slot.extent;
                    let what = if slot.write { "a write" } else { "a read" };
                    return Err(format!(
                        "the server failed {what} of {len} bytes at {offset}: {errno} {message}"
                    ));
                }
            };
            if last {
                self.done(index, now, measured.as_deref_mut())?;
            }
        }
    }

    fn done(
        &mut self,
        index: usize,
        now: Instant,
        measured: Option<&mut LoadMeasured>,
    ) -> Result<(), String> {
        let slot = &mut self.slots[index];
        if !slot.write && slot.got != slot.extent.len {
            let (got, len) = (slot.got, slot.extent.len);
            return Err(format!("the server sent {got} bytes of a read of {len}"));
        }
        let began = slot.began.take();
        self.free.push(index);
        if let (Some(measured), Some(began)) = (measured, began) {
            let latency = now.saturating_duration_since(began).as_nanos();
            measured.latency.saturating_record(u64::try_from(latency).unwrap_or(u64::MAX));
            if slot.write {
                measured.writes += 1;
            } else {
                measured.reads += 1;
            }
        }
        Ok(())
    }
}
