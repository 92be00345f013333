//! Messages that wait to be sent on a socket, and go in one vectored send.

use std::collections::VecDeque;

use crate::buffer::{Buffer, Pool};

/// A part of a batch, in the order of the stream.
enum Part {
    /// So many of the bytes in `heads`.
    Head(usize),
    /// The first `len` bytes of a buffer.
    Data { buffer: Buffer, len: usize, owner: u64 },
}

/// Bytes to send, heads copied and data by buffer. Complete once it is with the kernel.
#[derive(Default)]
pub(crate) struct Batch {
    heads: Vec<u8>,
    parts: VecDeque<Part>,
    /// What of the first part was sent before.
    skip: usize,
    heads_sent: usize,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of heads that wait.
    pub(crate) fn head_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Appends what `write` writes.
    pub(crate) fn head<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.heads.len();
        let result = write(&mut self.heads);
        let added = self.heads.len() - before;
        match self.parts.back_mut() {
            _ if added == 0 => {}
            Some(Part::Head(len)) => *len += added,
            _ => self.parts.push_back(Part::Head(added)),
        }
        result
    }

    /// Appends the first `len` bytes of `buffer`, which comes back with its `owner`.
    pub(crate) fn data(&mut self, buffer: Buffer, len: usize, owner: u64) {
        self.parts.push_back(Part::Data { buffer, len, owner });
    }

    /// The slices still to be sent, in order.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut head = self.heads_sent;
        self.parts.iter().enumerate().map(move |(i, part)| {
            let slice = match part {
                Part::Head(len) => {
                    head += len;
                    &self.heads[head - len..head]
                }
                Part::Data { buffer, len, .. } => &buffer[..*len],
            };
            if i == 0 { &slice[self.skip..] } else { slice }
        })
    }

    /// Takes note that `n` more bytes were sent; hands every buffer that is through to `back`.
    pub(crate) fn sent(&mut self, n: usize, mut back: impl FnMut(u64, Buffer)) {
        let mut n = n + self.skip;
        while let Some(part) = self.parts.front() {
            let len = match part {
                Part::Head(len) | Part::Data { len, .. } => *len,
            };
            if n < len {
                break;
            }
            n -= len;
            match self.parts.pop_front() {
                Some(Part::Data { buffer, owner, .. }) => back(owner, buffer),
                Some(Part::Head(len)) => self.heads_sent += len,
                None => {}
            }
        }
        self.skip = n;
        if self.parts.is_empty() {
            *self = Self { heads: std::mem::take(&mut self.heads), ..Self::default() };
            self.heads.clear();
        }
    }

    /// Gives up what was not sent; hands every buffer to `back`.
    pub(crate) fn abandon(&mut self, mut back: impl FnMut(u64, Buffer)) {
        for part in std::mem::take(self).parts {
            if let Part::Data { buffer, owner, .. } = part {
                back(owner, buffer);
            }
        }
    }
}

/// The bytes received on a socket and not yet taken.
pub(crate) struct Inbox {
    /// `None` while the kernel has it.
    pub(crate) buffer: Option<Buffer>,
    start: usize,
    end: usize,
}

/// Room for many requests at once, so that one receive feeds a deep queue.
const INBOX_LEN: usize = 128 << 10;

impl Inbox {
    pub(crate) fn new(pool: &mut Pool) -> Self {
        Self { buffer: Some(pool.take(INBOX_LEN)), start: 0, end: 0 }
    }

    /// What is there; nothing while a receive is under way.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |b| &b[self.start..self.end])
    }

    /// Drops the first `n` bytes.
    pub(crate) fn take(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// Moves as many bytes as there are, and fit, to `to`; returns their number.
    pub(crate) fn take_into(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.end - self.start);
        to[..n].copy_from_slice(&self.bytes()[..n]);
        self.take(n);
        n
    }

    /// The buffer and its free part, for the kernel; what waits is moved to the front first.
    pub(crate) fn lend(&mut self) -> Option<(Buffer, std::ops::Range<usize>)> {
        let mut buffer = self.buffer.take()?;
        buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let free = self.end..buffer.len();
        Some((buffer, free))
    }

    /// Takes the buffer back with `n` more bytes in it.
    pub(crate) fn restore(&mut self, buffer: Buffer, n: usize) {
        self.end = (self.end + n).min(buffer.len());
        self.buffer = Some(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(pool: &mut Pool) -> Batch {
        let mut batch = Batch::default();
        batch.head(|out| out.extend_from_slice(b"ab"));
        batch.head(|out| out.extend_from_slice(b"cd"));
        let mut data = pool.take(3);
        data[..3].copy_from_slice(b"XYZ");
        batch.data(data, 3, 7);
        batch.head(|out| out.extend_from_slice(b"ef"));
        batch
    }

    #[test]
    fn a_batch_survives_being_sent_in_any_pieces() {
        let mut pool = Pool::new();
        for step in 1..=9 {
            let mut batch = batch(&mut pool);
            let (mut stream, mut returned) = (Vec::new(), Vec::new());
            while !batch.is_empty() {
                let rest: Vec<u8> = batch.slices().flatten().copied().collect();
                let n = step.min(rest.len());
                stream.extend_from_slice(&rest[..n]);
                batch.sent(n, |owner, _| returned.push(owner));
            }
            assert_eq!(stream, b"abcdXYZef");
            assert_eq!(returned, [7]);
            assert_eq!(batch.head_bytes(), 0);
        }
    }

    #[test]
    fn an_abandoned_batch_returns_its_buffers() {
        let mut returned = Vec::new();
        batch(&mut Pool::new()).abandon(|owner, _| returned.push(owner));
        assert_eq!(returned, [7]);
    }

    #[test]
    fn an_inbox_keeps_what_was_not_taken() {
        let mut inbox = Inbox::new(&mut Pool::new());
        let (mut buffer, free) = inbox.lend().unwrap();
        buffer[free.start..5].copy_from_slice(b"hello");
        assert_eq!(inbox.bytes(), b"");
        inbox.restore(buffer, 5);
        let mut two = [0; 2];
        assert_eq!(inbox.take_into(&mut two), 2);
        let (buffer, free) = inbox.lend().unwrap();
        assert_eq!(free.start, 3);
        inbox.restore(buffer, 0);
        assert_eq!(inbox.bytes(), b"llo");
    }
}
