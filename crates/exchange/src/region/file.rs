//! Slots in a file on the volume itself, or in a stretch of a block device.

use std::path::{Path, PathBuf};

use parda_control::Bytes;

use super::{
    Access, Block, Kind, Misaligned, Opened, Region, RegionFault, RegionImage, SlotCount,
    SlotIndex, Store, aligned,
};

/// A file, a block device, or a region of one. Never created here: `init` does that.
///
/// The file is open from a read to the write that follows. Between two periods the volume can be
/// unmounted. IO goes past the page cache where possible, because another host's writes do not show
/// in ours.
#[derive(Debug)]
pub struct FileRegion {
    path: PathBuf,
    place: String,
    offset: Option<Bytes>,
    slots: SlotCount,
    opened: Option<Opened>,
}

impl FileRegion {
    /// A file or a block device. With an offset it is a region of something larger, even at 0.
    ///
    /// A file that is an exchange as a whole grows when it was cut short. Nothing else does.
    ///
    /// # Errors
    /// The offset is no multiple of a slot.
    pub fn new(
        path: &Path,
        offset: Option<Bytes>,
        slots: SlotCount,
    ) -> Result<FileRegion, Misaligned> {
        Ok(FileRegion {
            path: path.to_owned(),
            place: path.display().to_string(),
            offset: offset.map(aligned).transpose()?,
            slots,
            opened: None,
        })
    }

    fn start(&self) -> u64 {
        self.offset.map_or(0, |offset| offset.0)
    }

    fn grows(&self, opened: &Opened) -> bool {
        opened.kind() == Kind::File && self.offset.is_none()
    }
}

impl Region for FileRegion {
    fn place(&self) -> &str {
        &self.place
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault> {
        self.opened = None;
        let mut opened = Opened::open(&self.path, Access::Write)?;
        // Locks are of whole files and devices: beside a region there may be disks.
        if self.grows(&opened) {
            opened.share()?;
        }
        let (start, needed) = (self.start(), self.slots.place_bytes());
        let found = opened.size().saturating_sub(start);
        if found < needed && !self.grows(&opened) {
            return Err(RegionFault::TooSmall { needed: Bytes(needed), found: Bytes(found) });
        }
        let mut image = RegionImage::blank(slots);
        opened.read(start, &mut image.0)?;
        image.1 = self.grows(&opened).then(|| opened.state());
        self.opened = Some(opened);
        Ok(image)
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault> {
        let mut opened = self.opened.take().ok_or(RegionFault::NotOpen)?;
        if self.grows(&opened) {
            opened.grow(self.slots.place_bytes())?;
        }
        opened.write(self.start() + slot.offset(), block)
    }

    fn close(&mut self) {
        self.opened = None;
    }
}

#[cfg(test)]
mod tests {
    use parda_input::locks::Locks;

    use super::*;

    fn region(path: &Path, offset: Option<u64>, slots: u32) -> FileRegion {
        FileRegion::new(path, offset.map(Bytes::kib), SlotCount::new(slots).unwrap()).unwrap()
    }

    fn filled(byte: u8) -> Block {
        Block([byte; Block::BYTES])
    }

    fn put(region: &mut FileRegion, slot: u32, byte: u8) -> Result<(), RegionFault> {
        region.read()?;
        region.write(SlotIndex(slot), &filled(byte))
    }

    #[test]
    fn a_missing_file_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        for (name, offset) in [("exchange", None), ("not-mounted/exchange", None), ("sdz", Some(0))]
        {
            let path = dir.path().join(name);
            let fault = put(&mut region(&path, offset, 4), 1, 7).unwrap_err();
            assert!(matches!(fault, RegionFault::Missing), "{fault}");
            assert!(
                !path.exists() && path.parent().is_some_and(|p| p == dir.path() || !p.exists())
            );
        }
    }

    #[test]
    fn nothing_is_written_that_was_not_read_just_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, []).unwrap();
        let mut region = region(&path, None, 4);
        let refused = |region: &mut FileRegion| {
            let fault = region.write(SlotIndex(1), &filled(7)).unwrap_err();
            matches!(fault, RegionFault::NotOpen)
        };
        assert!(refused(&mut region));
        put(&mut region, 1, 7).unwrap();
        assert!(refused(&mut region));
        region.read().unwrap();
        region.close();
        assert!(refused(&mut region));
        // A file that takes the path between the read and the write is not written.
        region.read().unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        std::fs::write(&path, [1; 100]).unwrap();
        region.write(SlotIndex(2), &filled(8)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [1; 100]);
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap()[3 * 4096], 8);
    }

    #[test]
    fn what_is_in_use_as_a_disk_is_not_written_and_is_no_disk_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, []).unwrap();
        let (mut one, mut two) = (region(&path, None, 4), region(&path, None, 4));
        // A backup is in nobody's way.
        let reader = std::fs::File::open(&path).unwrap();
        Locks::of(true, false).take(&reader).unwrap();
        put(&mut one, 1, 6).unwrap();
        drop(reader);
        let (alone, shared) = (Locks::of(false, false), Locks::of(false, true));
        // As QEMU with `share-rw`, which keeps nobody away.
        let admitting = Locks { denies: 0, ..shared };
        for locks in [alone, shared, admitting] {
            let disk = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            // Exchanges are not in the way of one another.
            one.read().unwrap();
            two.read().unwrap();
            let met = || locks.obstacle(&disk).unwrap().is_some() || locks == admitting;
            assert!(met());
            one.write(SlotIndex(1), &filled(7)).unwrap();
            assert!(met());
            two.close();
            assert_eq!(locks.obstacle(&disk).unwrap(), None);
            locks.take(&disk).unwrap();
            let fault = put(&mut one, 1, 8).unwrap_err();
            assert!(matches!(fault, RegionFault::InUse), "{fault}");
            // At an offset, the place is a region, and the rest may hold disks.
            put(&mut region(&path, Some(0), 1), 0, 9).unwrap();
            assert_eq!(std::fs::read(&path).unwrap()[2 * 4096], 7);
        }
    }

    #[test]
    fn a_smaller_count_never_cuts_off_a_larger_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, []).unwrap();
        let mut large = region(&path, None, 8);
        put(&mut large, 7, 7).unwrap();
        put(&mut region(&path, None, 4), 0, 1).unwrap();
        let image = large.read().unwrap();
        assert_eq!((&image.slots()[0], &image.slots()[7]), (&filled(1), &filled(7)));
    }

    #[test]
    fn the_largest_place_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, []).unwrap();
        let mut region = region(&path, None, SlotCount::MAX);
        put(&mut region, SlotCount::MAX - 1, 7).unwrap();
        let image = region.read().unwrap();
        assert_eq!(image.slots().len(), 1024);
        assert_eq!((&image.slots()[1022], &image.slots()[1023]), (&Block::ZERO, &filled(7)));
    }

    #[test]
    fn a_truncated_file_reads_as_far_as_it_goes_and_grows_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, vec![9; 5 * 4096]).unwrap();
        let mut region = region(&path, None, 4);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192 + 100).unwrap();
        let image = region.read().unwrap();
        assert_eq!((image.header(), &image.slots()[0]), (&filled(9), &filled(9)));
        assert_eq!((image.slots()[1].0[99], image.slots()[1].0[100]), (9, 0));
        assert_eq!(image.slots()[2], Block::ZERO);
        region.write(SlotIndex(3), &filled(5)).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 5 * 4096);
        assert_eq!(region.read().unwrap().slots()[3], filled(5));
    }

    #[test]
    fn a_region_stays_within_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        std::fs::write(&path, vec![1; 8 * 4096]).unwrap();
        put(&mut region(&path, Some(4), 4), 3, 5).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 8 * 4096);
        assert!(bytes[5 * 4096..6 * 4096].iter().all(|b| *b == 5));
        assert_eq!(bytes.iter().filter(|b| **b == 5).count(), 4096);
        let fault = put(&mut region(&path, Some(16), 4), 0, 6).unwrap_err();
        let small = RegionFault::TooSmall { needed: Bytes(20_480), found: Bytes(16_384) };
        assert_eq!(fault.to_string(), small.to_string());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let crooked = FileRegion::new(&path, Some(Bytes(512)), SlotCount::new(4).unwrap());
        assert!(matches!(crooked, Err(Misaligned(Bytes(512)))));
    }
}
