//! Block status: what is known of the parts of a range, gathered into extents that a reply can
//! carry.

use crate::errno::Errno;
use crate::extent::Extent;

/// Status of an extent, with the bits of NBD's metadata context `base:allocation`. No bit set means
/// data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentStatus(u32);

impl ExtentStatus {
    /// Nothing is known: treat as data.
    pub const DATA: Self = Self(0);
    /// The extent is not allocated.
    pub const HOLE: Self = Self(1 << 0);
    /// The extent reads as zeroes.
    pub const ZERO: Self = Self(1 << 1);
    /// A hole that reads as zeroes.
    pub const HOLE_ZERO: Self = Self(Self::HOLE.0 | Self::ZERO.0);

    /// The flags in a number; others are dropped.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::HOLE_ZERO.0)
    }

    /// The flags as a number.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Status of a whole of which one part has `self` and another `other`.
    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// A number of bytes of one status. It begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its length in bytes.
    pub len: u64,
    /// Status of the extent.
    pub status: ExtentStatus,
}

/// The most extents in one reply. A client that wants more asks again from where they end.
///
/// It bounds what one request of 28 or 32 bytes makes a server do and hold: 8 KiB of reply.
pub const MAX_EXTENTS: usize = 512;

/// Gathers the answer to one BLOCK_STATUS request.
///
/// Parts of a range go in, in order and of any length. Extents come out: neighbours differ in
/// their status, every end is a multiple of the minimum block size, and together they are at most
/// the range that was asked for. A block whose parts differ has what all of its parts have, so
/// that a block with any data in it counts as data.
#[derive(Clone, Debug)]
pub struct Extents {
    asked: Extent,
    align: u32,
    limit: usize,
    list: Vec<Descriptor>,
    /// Bytes of the range that were told of.
    told: u64,
    /// Status that the parts of an unfinished block have in common.
    partial: ExtentStatus,
    full: bool,
}

impl Extents {
    /// An empty answer. `align` is the disk's minimum block size, and the range a multiple of
    /// it. With `one` the answer is one extent.
    #[must_use]
    pub fn new(asked: Extent, align: u32, one: bool) -> Self {
        let limit = if one { 1 } else { MAX_EXTENTS };
        let (list, partial) = (Vec::new(), ExtentStatus::DATA);
        Self { asked, align: align.max(1), limit, list, told: 0, partial, full: false }
    }

    /// An answer that knows nothing: all of the range is data.
    #[must_use]
    pub fn all_data(asked: Extent) -> Self {
        let mut extents = Self::new(asked, 1, true);
        extents.push(asked.len, ExtentStatus::DATA);
        extents
    }

    /// Start of the next part, in bytes from the start of the disk.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.asked.offset.saturating_add(self.told)
    }

    /// End of the range that was asked for, in bytes from the start of the disk.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.asked.offset.saturating_add(self.asked.len)
    }

    /// Whether nothing more can be added: the range is covered, or there are enough extents.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.full || self.told >= self.asked.len
    }

    /// Adds the next `len` bytes. What reaches beyond the range is cut off.
    pub fn push(&mut self, len: u64, status: ExtentStatus) {
        let align = u64::from(self.align);
        let mut rest = (self.asked.len - self.told).min(len);
        while rest > 0 && !self.full {
            let into = self.told % align;
            if into == 0 && rest >= align {
                let whole = rest - rest % align;
                rest -= whole;
                self.told += whole;
                self.add(whole, status);
                continue;
            }
            self.partial = if into == 0 { status } else { self.partial.and(status) };
            let step = rest.min(align - into);
            rest -= step;
            self.told += step;
            if into + step == align {
                self.add(align, self.partial);
            }
        }
    }

    fn add(&mut self, len: u64, status: ExtentStatus) {
        let room = self.list.len() < self.limit;
        match self.list.last_mut() {
            Some(last) if last.status == status => last.len += len,
            _ if room => self.list.push(Descriptor { len, status }),
            _ => self.full = true,
        }
    }

    /// The extents, at least one.
    ///
    /// # Errors
    /// If nothing was added that makes up a block.
    pub fn finish(self) -> Result<Vec<Descriptor>, Errno> {
        if self.list.is_empty() { Err(Errno::Io) } else { Ok(self.list) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUSES: [ExtentStatus; 4] =
        [ExtentStatus::DATA, ExtentStatus::HOLE, ExtentStatus::ZERO, ExtentStatus::HOLE_ZERO];

    /// The same by looking at every byte.
    fn oracle(
        asked: Extent,
        align: u32,
        one: bool,
        parts: &[(u64, ExtentStatus)],
    ) -> Vec<Descriptor> {
        let bytes: Vec<ExtentStatus> = parts
            .iter()
            .flat_map(|(len, status)| std::iter::repeat_n(*status, *len as usize))
            .take(asked.len as usize)
            .collect();
        let blocks = bytes
            .chunks_exact(align as usize)
            .map(|block| ExtentStatus(block.iter().fold(3, |all, status| all & status.0)));
        let mut list: Vec<Descriptor> = Vec::new();
        for status in blocks {
            match list.last_mut() {
                Some(last) if last.status == status => last.len += u64::from(align),
                _ => list.push(Descriptor { len: u64::from(align), status }),
            }
        }
        list.truncate(if one { 1 } else { MAX_EXTENTS });
        list
    }

    proptest! {
        #[test]
        fn extents_agree_with_a_look_at_every_byte(
            (block, blocks, align) in (0u64..9, 1u64..40, 0u32..6),
            one: bool,
            parts in prop::collection::vec((0u64..70, prop::sample::select(&STATUSES[..])), 0..60),
        ) {
            let align = 1 << align;
            let asked = Extent { offset: block * u64::from(align), len: blocks * u64::from(align) };
            let mut extents = Extents::new(asked, align, one);
            for (len, status) in &parts {
                prop_assert!(extents.position() <= extents.end());
                extents.push(*len, *status);
            }
            let expected = oracle(asked, align, one, &parts);
            prop_assert_eq!(extents.finish().unwrap_or_default(), expected);
        }
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_extents() {
        let asked = Extent { offset: 0, len: 1 << 63 };
        let mut extents = Extents::new(asked, 1, false);
        let mut parts = 0;
        while !extents.is_complete() {
            extents.push(1, STATUSES[parts % 2]);
            parts += 1;
        }
        assert_eq!(parts, MAX_EXTENTS + 1);
        assert_eq!(extents.finish().unwrap().len(), MAX_EXTENTS);
    }

    #[test]
    fn nothing_known_is_data_and_nothing_at_all_is_an_error() {
        let asked = Extent { offset: 4096, len: 1 << 62 };
        let all = Descriptor { len: 1 << 62, status: ExtentStatus::DATA };
        assert_eq!(Extents::all_data(asked).finish(), Ok(vec![all]));
        assert_eq!(Extents::new(asked, 512, true).finish(), Err(Errno::Io));
    }
}
