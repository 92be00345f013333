//! Requests that wait to be sent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// A part of the byte stream.
enum Part {
    /// This many bytes of `heads`.
    Heads(usize),
    /// A range of the data that writes carry.
    Data(Range<usize>),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Heads(len) => *len,
            Self::Data(range) => range.len(),
        }
    }
}

/// Requests in stream order. Their headers are copied; the data of writes is referred to by range.
#[derive(Default)]
pub(crate) struct Outbox {
    heads: Vec<u8>,
    /// Bytes of `heads` whose parts were sent completely.
    heads_through: usize,
    parts: VecDeque<Part>,
    /// Bytes of the first part that were sent already.
    skip: usize,
}

/// Largest number of slices in one send.
pub(crate) const SLICES: usize = 256;

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends a request header, written by `write`.
    pub(crate) fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.heads.len();
        write(&mut self.heads);
        let added = self.heads.len() - before;
        match self.parts.back_mut() {
            Some(Part::Heads(len)) => *len += added,
            _ => self.parts.push_back(Part::Heads(added)),
        }
    }

    /// Appends a range of the data.
    pub(crate) fn data(&mut self, range: Range<usize>) {
        self.parts.push_back(Part::Data(range));
    }

    /// Fills `slices` with what is to be sent next. Returns how many were filled.
    pub(crate) fn fill<'a>(&'a self, data: &'a [u8], slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut head = self.heads_through;
        let mut filled = 0;
        for (slot, part) in slices.iter_mut().zip(&self.parts) {
            let bytes = match part {
                Part::Heads(len) => {
                    head += len;
                    &self.heads[head - len..head]
                }
                Part::Data(range) => &data[range.clone()],
            };
            *slot = IoSlice::new(if filled == 0 { &bytes[self.skip..] } else { bytes });
            filled += 1;
        }
        filled
    }

    /// Records that `n` more bytes were sent.
    pub(crate) fn sent(&mut self, n: usize) {
        let mut n = n + self.skip;
        while let Some(part) = self.parts.front()
            && n >= part.len()
        {
            n -= part.len();
            if let Some(Part::Heads(len)) = self.parts.pop_front() {
                self.heads_through += len;
            }
        }
        self.skip = n;
        if self.parts.is_empty() {
            self.heads.clear();
            self.heads_through = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_being_sent_in_any_pieces() {
        let data = b"0123456789";
        for step in 1..=12 {
            let mut outbox = Outbox::default();
            outbox.head(|out| out.extend_from_slice(b"ab"));
            outbox.head(|out| out.extend_from_slice(b"cd"));
            outbox.data(3..6);
            outbox.head(|out| out.extend_from_slice(b"ef"));
            let mut stream = Vec::new();
            while !outbox.is_empty() {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let filled = outbox.fill(data, &mut slices);
                let all: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                let n = step.min(all.len());
                stream.extend_from_slice(&all[..n]);
                outbox.sent(n);
            }
            assert_eq!(stream, b"abcd345ef", "in steps of {step}");
            assert!(outbox.heads.is_empty());
        }
    }
}
