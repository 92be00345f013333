//! Sequential prefetch: follows one stream on each LUN and reads its data ahead of the requests.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use slab::Slab;

use crate::error::{ParamError, check};
use crate::units::{Bytes, LunId};

/// Sequential prefetch. Data is dropped once the stream has passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchParams {
    /// Number of reads in a row, each beginning at the end of the last, that make a stream. A write to the
    /// LUN ends the stream.
    pub after: u32,
    /// Size of one fetch, from 4 KiB.
    pub segment: Bytes,
    /// Greatest distance of reading ahead: one segment at first, doubled with every further read. A stream
    /// at this distance is refilled when half of it is used up.
    pub depth: Bytes,
}

impl PrefetchParams {
    pub(super) fn validate(&self) -> Result<(), ParamError> {
        let Self { after, segment, depth } = *self;
        check(after > 0, "controller.prefetch.after", after, "be at least 1")?;
        let possible = (Bytes::kib(4)..=Bytes::gib(1)).contains(&segment);
        check(possible, "controller.prefetch.segment", segment, "be from 4KiB to 1GiB")?;
        let possible = (segment..=Bytes::gib(1)).contains(&depth);
        check(possible, "controller.prefetch.depth", depth, "be from one segment to 1GiB")
    }
}

/// A segment that is in the cache or on its way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchId(usize);

/// A segment to be fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) id: FetchId,
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

#[derive(Clone, Debug)]
struct Segment {
    arrived: bool,
    /// The stream has passed or ended: the segment is dropped as soon as it arrives.
    abandoned: bool,
    waiting: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Stream {
    /// Offset at which a sequential read would begin.
    next: u64,
    reads: u32,
    depth: u64,
    /// The full depth is fetched, and less than half of it used up.
    full: bool,
    /// Fetched range, including fetches in progress; its borders are multiples of the segment's size.
    start: u64,
    end: u64,
    segments: VecDeque<usize>,
}

/// Streams of all LUNs and their fetched segments.
#[derive(Clone, Debug)]
pub(crate) struct Prefetch {
    after: u32,
    segment: u64,
    most: u64,
    streams: Vec<Stream>,
    segments: Slab<Segment>,
    /// Kept for their capacity.
    spare: Vec<Vec<usize>>,
}

impl Prefetch {
    /// Makes the prefetch state of `luns` LUNs. `params` are valid.
    pub(crate) fn new(params: &PrefetchParams, luns: usize) -> Prefetch {
        let segments = VecDeque::new();
        let stream =
            Stream { next: 0, reads: 0, depth: 0, full: false, start: 0, end: 0, segments };
        Prefetch {
            after: params.after,
            segment: params.segment.0,
            most: params.depth.0,
            streams: alloc::vec![stream; luns],
            segments: Slab::new(),
            spare: Vec::new(),
        }
    }

    /// Records a read by `reader`. If the fetched range covers all of it: the number of segments still to
    /// arrive. Each of them returns `reader` when it [arrives](Prefetch::arrived).
    pub(crate) fn read(
        &mut self,
        lun: LunId,
        offset: Bytes,
        len: Bytes,
        reader: usize,
    ) -> Option<u32> {
        let end = offset.0 + len.0;
        let stream = &mut self.streams[lun.0 as usize];
        if stream.next != offset.0 {
            self.reset(lun);
        }
        let stream = &mut self.streams[lun.0 as usize];
        stream.reads = stream.reads.saturating_add(1);
        stream.next = end;
        if !(stream.start <= offset.0 && end <= stream.end) {
            return None;
        }
        let first = stream.start / self.segment;
        let (from, to) = (offset.0 / self.segment - first, (end - 1) / self.segment - first);
        let mut missing = 0;
        for segment in stream.segments.range(from as usize..=to as usize) {
            let segment = &mut self.segments[*segment];
            if !segment.arrived {
                segment.waiting.push(reader);
                missing += 1;
            }
        }
        Some(missing)
    }

    /// Next segment to fetch for the stream of a LUN of this size, if the LUN has a stream. The caller
    /// repeats the call until it returns `None`.
    pub(crate) fn next_fetch(&mut self, lun: LunId, size: Bytes) -> Option<Fetch> {
        let stream = &mut self.streams[lun.0 as usize];
        if stream.reads < self.after {
            return None;
        }
        self.drop_passed(lun);
        let stream = &mut self.streams[lun.0 as usize];
        // Refilled in small steps, each drive would have one segment at a time, with a seek for each.
        let ahead = stream.end.saturating_sub(stream.next);
        if stream.full && ahead > self.most / 2 {
            return None;
        }
        stream.full = false;
        stream.depth = stream.depth.max(self.segment);
        let wanted = (stream.next + stream.depth).min(size.0);
        let end = (stream.end / self.segment + 1) * self.segment;
        if end.min(size.0) > wanted || stream.end >= size.0 {
            stream.full = stream.depth == self.most;
            stream.depth = (2 * stream.depth).min(self.most);
            return None;
        }
        let (offset, end) = (stream.end, end.min(size.0));
        let waiting = self.spare.pop().unwrap_or_default();
        let id = self.segments.insert(Segment { arrived: false, abandoned: false, waiting });
        stream.segments.push_back(id);
        stream.end = end;
        Some(Fetch { id: FetchId(id), offset: Bytes(offset), len: Bytes(end - offset) })
    }

    /// Marks a segment as arrived and adds its waiting readers to `readers`.
    pub(crate) fn arrived(&mut self, FetchId(id): FetchId, readers: &mut Vec<usize>) {
        let segment = &mut self.segments[id];
        segment.arrived = true;
        readers.append(&mut segment.waiting);
        if segment.abandoned {
            self.spare.push(self.segments.remove(id).waiting);
        }
    }

    /// Ends the stream of a LUN.
    pub(crate) fn reset(&mut self, lun: LunId) {
        let stream = &mut self.streams[lun.0 as usize];
        (stream.reads, stream.depth, stream.full) = (0, 0, false);
        (stream.start, stream.end) = (0, 0);
        if !stream.segments.is_empty() {
            self.drop_front(lun, usize::MAX);
        }
    }

    /// Drops the segments that the stream has passed.
    fn drop_passed(&mut self, lun: LunId) {
        let stream = &mut self.streams[lun.0 as usize];
        if stream.next >= stream.end {
            (stream.start, stream.end) = (stream.next, stream.next);
            return self.drop_front(lun, usize::MAX);
        }
        let passed = stream.next / self.segment - stream.start / self.segment;
        if passed > 0 {
            stream.start = stream.next / self.segment * self.segment;
            self.drop_front(lun, passed as usize);
        }
    }

    fn drop_front(&mut self, lun: LunId, count: usize) {
        let all = &mut self.streams[lun.0 as usize].segments;
        for id in all.drain(..count.min(all.len())) {
            if self.segments[id].arrived {
                self.spare.push(self.segments.remove(id).waiting);
            } else {
                self.segments[id].abandoned = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LUN: LunId = LunId(0);
    const SIZE: Bytes = Bytes::mib(64);

    fn prefetch() -> Prefetch {
        let depth = Bytes::mib(1);
        Prefetch::new(&PrefetchParams { after: 8, segment: Bytes::kib(64), depth }, 2)
    }

    fn fetches(prefetch: &mut Prefetch) -> Vec<Fetch> {
        core::iter::from_fn(|| prefetch.next_fetch(LUN, SIZE)).collect()
    }

    fn read(prefetch: &mut Prefetch, block: u64) -> Option<u32> {
        prefetch.read(LUN, Bytes::kib(16 * block), Bytes::kib(16), block as usize)
    }

    #[test]
    fn eight_reads_in_a_row_make_a_stream_and_depth_doubles() {
        let mut prefetch = prefetch();
        for block in 0..7 {
            assert_eq!(read(&mut prefetch, block), None);
            assert!(fetches(&mut prefetch).is_empty());
        }
        read(&mut prefetch, 7);
        let ahead: Vec<u64> = (8..12)
            .map(|block| {
                let bytes = fetches(&mut prefetch).iter().map(|f| f.len.0).sum::<u64>();
                assert_eq!(read(&mut prefetch, block), Some(1), "on its way");
                bytes >> 10
            })
            .collect();
        assert_eq!(ahead, [64, 64, 128, 256]);
    }

    #[test]
    fn the_full_depth_is_filled_again_when_half_of_it_is_used_up() {
        let mut prefetch = prefetch();
        let mut fetched = |block| {
            read(&mut prefetch, block);
            fetches(&mut prefetch).iter().map(|fetch| fetch.len.0 >> 10).sum::<u64>()
        };
        (0..100).for_each(|block| {
            fetched(block);
        });
        let bursts: Vec<u64> = (100..164).map(fetched).filter(|kib| *kib > 0).collect();
        assert_eq!(bursts, [512, 512], "of the 1 MiB that was read meanwhile");
    }

    #[test]
    fn readers_are_named_when_their_segment_arrives() {
        let mut prefetch = prefetch();
        (0..8).for_each(|block| assert_eq!(read(&mut prefetch, block), None));
        let first = fetches(&mut prefetch)[0];
        assert_eq!((read(&mut prefetch, 8), read(&mut prefetch, 9)), (Some(1), Some(1)));
        let mut readers = Vec::new();
        prefetch.arrived(first.id, &mut readers);
        assert_eq!(readers, [8, 9]);
        assert_eq!(read(&mut prefetch, 10), Some(0));
    }

    #[test]
    fn a_gap_or_a_write_ends_the_stream_and_leaves_nothing_behind() {
        for write in [false, true] {
            let mut prefetch = prefetch();
            (0..8).for_each(|block| assert_eq!(read(&mut prefetch, block), None));
            let fetched = fetches(&mut prefetch);
            read(&mut prefetch, 8);
            if write {
                prefetch.reset(LUN);
                assert_eq!(read(&mut prefetch, 9), None);
            } else {
                assert_eq!(read(&mut prefetch, 100), None);
            }
            assert!(fetches(&mut prefetch).is_empty());
            let mut readers = Vec::new();
            fetched.iter().for_each(|fetch| prefetch.arrived(fetch.id, &mut readers));
            assert_eq!(readers, [8], "who waited still gets its data");
            assert!(prefetch.segments.is_empty());
        }
    }

    proptest! {
        /// Reads of any length, in a row or not. Fetches never overlap within a stream or pass the LUN's
        /// end, and held data stays within the depth.
        #[test]
        fn holds_no_more_than_its_depth(
            reads in prop::collection::vec((1_u64..300, prop::bool::weighted(0.02)), 1..400),
        ) {
            let mut prefetch = prefetch();
            let (mut at, mut last_end) = (0, 0);
            for (kib, jump) in reads {
                if jump {
                    (at, last_end) = (at / 2, 0);
                }
                let len = kib << 10;
                if at + len > SIZE.0 {
                    break;
                }
                let _ = prefetch.read(LUN, Bytes(at), Bytes(len), 0);
                at += len;
                for fetch in fetches(&mut prefetch) {
                    prop_assert!(fetch.offset.0 >= last_end && fetch.offset.0 + fetch.len.0 <= SIZE.0);
                    last_end = fetch.offset.0 + fetch.len.0;
                    prop_assert!(last_end <= at + Bytes::mib(1).0);
                    prefetch.arrived(fetch.id, &mut Vec::new());
                }
                prop_assert!(prefetch.segments.len() <= 18);
            }
        }
    }
}
