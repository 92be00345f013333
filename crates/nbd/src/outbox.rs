//! Messages that wait to be sent on a socket, and go in one vectored send.

use std::collections::VecDeque;

/// Data behind a head. It is not copied.
pub trait Payload {
    /// Its length in bytes.
    fn size(&self) -> usize;

    /// Its bytes from `skip` on, piece by piece.
    fn slices(&self, skip: usize) -> impl Iterator<Item = &[u8]>;
}

impl Payload for &[u8] {
    fn size(&self) -> usize {
        self.len()
    }

    fn slices(&self, skip: usize) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self[skip..])
    }
}

/// A part of the stream.
enum Part<D> {
    /// So many of the bytes in `heads`.
    Head(usize),
    Data(D),
}

/// Bytes to send, in the order of the stream: heads copied, data by reference.
pub struct Outbox<D> {
    heads: Vec<u8>,
    parts: VecDeque<Part<D>>,
    /// Bytes of the first part that were sent before.
    skip: usize,
    heads_sent: usize,
}

impl<D> Default for Outbox<D> {
    fn default() -> Self {
        Self { heads: Vec::new(), parts: VecDeque::new(), skip: 0, heads_sent: 0 }
    }
}

impl<D: Payload> Outbox<D> {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of heads that wait.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Appends what `write` writes.
    pub fn head<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
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

    /// Appends data behind all that waits.
    pub fn data(&mut self, data: D) {
        self.parts.push_back(Part::Data(data));
    }

    /// The slices still to be sent, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.heads_sent;
        self.parts.iter().enumerate().flat_map(move |(i, part)| {
            let skip = if i == 0 { self.skip } else { 0 };
            let (head, data) = match part {
                Part::Head(len) => {
                    sent += len;
                    (Some(&self.heads[sent - len + skip..sent]), None)
                }
                Part::Data(data) => (None, Some(data.slices(skip))),
            };
            head.into_iter().chain(data.into_iter().flatten())
        })
    }

    /// Takes note that `n` more bytes were sent; hands all data that is through to `back`.
    pub fn sent(&mut self, n: usize, mut back: impl FnMut(D)) {
        let mut n = n + self.skip;
        while let Some(part) = self.parts.front() {
            let len = match part {
                Part::Head(len) => *len,
                Part::Data(data) => data.size(),
            };
            if n < len {
                break;
            }
            n -= len;
            match self.parts.pop_front() {
                Some(Part::Data(data)) => back(data),
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

    /// Gives up what was not sent; hands all data to `back`.
    pub fn abandon(&mut self, mut back: impl FnMut(D)) {
        for part in std::mem::take(self).parts {
            if let Part::Data(data) = part {
                back(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_sent_in_any_pieces() {
        let data = &b"0123456789"[..];
        for step in 1..=12 {
            let mut outbox = Outbox::default();
            outbox.head(|out| out.extend_from_slice(b"ab"));
            outbox.head(|out| out.extend_from_slice(b"cd"));
            outbox.data(&data[3..6]);
            outbox.head(|out| out.extend_from_slice(b"ef"));
            let (mut stream, mut returned) = (Vec::new(), Vec::new());
            while !outbox.is_empty() {
                let all: Vec<u8> = outbox.slices().flatten().copied().collect();
                let n = step.min(all.len());
                stream.extend_from_slice(&all[..n]);
                outbox.sent(n, |data| returned.push(data));
            }
            assert_eq!(stream, b"abcd345ef", "in steps of {step}");
            assert_eq!((returned, outbox.head_bytes()), (vec![&data[3..6]], 0));
        }
    }
}
