//! Messages that wait to be sent on a socket, and bytes that were received there.

use std::ops::Range;

use parda_nbd::outbox::{Outbox, Payload};

use crate::buffer::{Buffer, Pool};

/// The first `len` bytes of a buffer, which goes back to its `owner`.
pub(crate) struct Data {
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
    pub(crate) owner: u64,
}

impl Payload for Data {
    fn size(&self) -> usize {
        self.len
    }

    fn slices(&self, skip: usize) -> impl Iterator<Item = &[u8]> {
        self.buffer.slices(skip..self.len)
    }
}

/// Bytes to send, heads copied and data by buffer. Complete once it is with the kernel.
pub(crate) type Batch = Outbox<Data>;

/// The bytes received on a socket and not yet taken.
pub(crate) struct Inbox {
    /// `None` while the kernel has it.
    pub(crate) buffer: Option<Buffer>,
    start: usize,
    end: usize,
}

/// What an inbox has at first, in bytes: a small write with its header, or hundreds of reads.
pub(crate) const SMALL: usize = 8 << 10;

/// What the inbox of a busy connection has, in bytes: room for many small writes at once, so that
/// one receive feeds a deep queue.
pub(crate) const LARGE: usize = 128 << 10;

impl Inbox {
    /// An inbox of that size, [`SMALL`] or [`LARGE`].
    pub(crate) fn new(pool: &mut Pool, len: usize) -> Self {
        Self { buffer: Some(pool.take(len)), start: 0, end: 0 }
    }

    /// Its size, in bytes; none while a receive is under way.
    pub(crate) fn len(&self) -> Option<usize> {
        self.buffer.as_ref().map(Buffer::len)
    }

    /// Received bytes; empty while a receive is under way.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |b| &b.front()[self.start..self.end])
    }

    /// Whether some of a message is there, and the rest is waited for.
    pub(crate) fn is_begun(&self) -> bool {
        self.end > self.start
    }

    /// Drops the first `n` bytes.
    pub(crate) fn take(&mut self, n: usize) {
        self.start = self.start.saturating_add(n).min(self.end);
    }

    /// Moves as many bytes as there are, and fit, to that part of `to`; returns their number.
    pub(crate) fn take_into(&mut self, to: &mut Buffer, range: Range<usize>) -> usize {
        let mut taken = 0;
        for slice in to.slices_mut(range) {
            let bytes = &self.bytes()[taken..];
            let n = slice.len().min(bytes.len());
            slice[..n].copy_from_slice(&bytes[..n]);
            taken += n;
        }
        self.take(taken);
        taken
    }

    /// Goes over to a buffer of another size, if what waits fits; returns the former one.
    pub(crate) fn exchange(&mut self, pool: &mut Pool, len: usize) -> bool {
        let Some(mut old) = self.buffer.take_if(|_| self.end - self.start <= len) else {
            return false;
        };
        let mut new = pool.take(len);
        let waits = self.end - self.start;
        new.front_mut()[..waits].copy_from_slice(&old.front_mut()[self.start..self.end]);
        (self.start, self.end) = (0, waits);
        self.buffer = Some(new);
        pool.put(old);
        true
    }

    /// The buffer and its free part, for the kernel; what waits is moved to the front first.
    pub(crate) fn lend(&mut self) -> Option<(Buffer, Range<usize>)> {
        let mut buffer = self.buffer.take()?;
        buffer.front_mut().copy_within(self.start..self.end, 0);
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
    use crate::buffer::PIECE;

    #[test]
    fn an_abandoned_batch_returns_its_buffers() {
        let (mut batch, mut returned) = (Batch::default(), Vec::new());
        batch.head(|out| out.push(1));
        batch.data(Data { buffer: Pool::new(1 << 20).take(3), len: 3, owner: 7 });
        batch.abandon(|data| returned.push(data.owner));
        assert_eq!(returned, [7]);
    }

    #[test]
    fn data_of_many_pieces_is_sent_in_any_pieces() {
        let mut pool = Pool::new(4 << 20);
        let len = 2 * PIECE + 100;
        let mut data = pool.take(len);
        let mut random = fastrand::Rng::with_seed(1);
        data.slices_mut(0..len).for_each(|slice| random.fill(slice));
        let expected = data.slices(0..len).collect::<Vec<_>>().concat();
        let mut batch = Batch::default();
        batch.head(|out| out.push(1));
        batch.data(Data { buffer: data, len, owner: 7 });
        let mut stream = Vec::new();
        while !batch.is_empty() {
            let rest: Vec<&[u8]> = batch.slices().collect();
            assert!(rest.len() <= 4);
            let rest = rest.concat();
            let n = random.usize(1..=rest.len());
            stream.extend_from_slice(&rest[..n]);
            batch.sent(n, |data| pool.put(data.buffer));
        }
        assert!(stream[0] == 1 && stream[1..] == expected);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn an_inbox_keeps_what_was_not_taken() {
        let mut pool = Pool::new(1 << 20);
        let mut inbox = Inbox::new(&mut pool, SMALL);
        let (mut buffer, free) = inbox.lend().unwrap();
        buffer.front_mut()[free.start..5].copy_from_slice(b"hello");
        assert_eq!(inbox.bytes(), b"");
        inbox.restore(buffer, 5);
        let mut two = pool.take(2);
        assert_eq!(inbox.take_into(&mut two, 0..2), 2);
        assert_eq!(two.front()[..2], *b"he");
        let (buffer, free) = inbox.lend().unwrap();
        assert_eq!(free.start, 3);
        inbox.restore(buffer, 0);
        assert_eq!(inbox.bytes(), b"llo");
        for len in [LARGE, SMALL] {
            assert!(inbox.exchange(&mut pool, len));
            assert_eq!((inbox.bytes(), inbox.len()), (&b"llo"[..], Some(len)));
        }
    }
}
