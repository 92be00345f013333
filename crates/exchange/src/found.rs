//! Names of known formats, for messages about places that hold other data. Nothing else depends on this list: a place without
//! an exchange's header is never written.

/// Magic bytes of known formats: (offset, bytes, name).
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", "a VHD image"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"SQLite format 3", "an SQLite database"),
    (0, b"\x7fELF", "a program"),
    (512, b"LABELONE", "an LVM physical volume"),
    (512, b"EFI PART", "a GPT partition table"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, b"\xfc\x4e\x2b\xa9", "an MD RAID member"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
    (510, b"\x55\xaa", "a boot sector or partition table"),
];

/// Number of bytes from the beginning that [`describe`] needs.
pub(crate) const TELLING: usize = 68 << 10;

/// The format of data that begins with `bytes`. For an unknown format, the first byte that is not zero.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let has = |(at, mark, _): &&(usize, &[u8], &str)| {
        bytes.get(*at..).is_some_and(|rest| rest.starts_with(mark))
    };
    match (MARKS.iter().find(has), bytes.iter().position(|byte| *byte != 0)) {
        (Some((_, _, what)), _) => (*what).to_owned(),
        (None, Some(at)) => format!("other data (byte {at} is {:#04x})", bytes[at]),
        (None, None) => "zeros".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_and_the_rest_is_pointed_at() {
        let mut bytes = vec![0; TELLING];
        assert_eq!(describe(&bytes), "zeros");
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        assert_eq!(describe(&bytes), "an ext2, ext3 or ext4 file system");
        bytes[1080] = 0;
        assert_eq!(describe(&bytes), "other data (byte 1081 is 0xef)");
        assert!(MARKS.iter().all(|(at, mark, _)| at + mark.len() <= TELLING));
    }
}
