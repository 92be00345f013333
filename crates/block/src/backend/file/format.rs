//! Images of formats other than raw, recognized by their first bytes.
//!
//! Served raw, their headers and tables would be the guest's data: the guest would find nothing of
//! its own. Its writes would destroy the image.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType};
use rustix::io::pread;

use crate::backend::{OpenError, loops};

/// A format, as QEMU calls its driver, and how an image begins at an offset.
const BEGINNINGS: &[(&str, usize, &[u8])] = &[
    ("qcow2", 0, b"QFI\xfb"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("vpc", 0, b"conectix"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    (EXCHANGE, 0, b"PARDAXCH"),
];

/// The place where the hosts of a volume meet (docs/exchange-format.md).
const EXCHANGE: &str = "exchange";

/// How a VHD of fixed size ends: with the footer that others begin with, 512 bytes long.
const VHD_FOOTER: &[u8] = b"conectix";

/// An image of another format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    path: PathBuf,
    /// As QEMU calls it.
    format: &'static str,
    disk: String,
    read_only: bool,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, format, disk, read_only } = self;
        let path = path.display();
        if *format == EXCHANGE {
            return write!(
                f,
                "{path} is an exchange, where hosts meet: a guest would write over it, and they over the guest's \
                 data. If it is none any more, clear its first 4096 bytes, or set format = \"raw\" for this disk"
            );
        }
        let (on, writable) = if *read_only { ("on", "off") } else { ("off", "on") };
        write!(
            f,
            "{path} is a {format} image, and would be served with its header and tables as the \
             disk's data. If that is what it is, set format = \"raw\" for this disk. Else let \
             QEMU serve the image, and make that the disk's path:\n    qemu-storage-daemon \
             --blockdev driver=file,node-name=file,filename={path},read-only={on} \
             --blockdev driver={format},node-name=image,file=file,read-only={on} \
             --nbd-server addr.type=unix,addr.path=/run/{disk}.sock \
             --export type=nbd,id=export,node-name=image,name={disk},writable={writable}\n    \
             path = \"nbd+unix:///{disk}?socket=/run/{disk}.sock\""
        )
    }
}

impl Image {
    /// The image of another format that is at `path`; `None` if there is none that can be read.
    #[must_use]
    pub fn at(path: &Path, disk: &str, read_only: bool) -> Option<Image> {
        let fd = loops::open(path).ok()?;
        let kind = FileType::from_raw_mode(fs::fstat(&fd).ok()?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return None;
        }
        let size = fs::seek(&fd, fs::SeekFrom::End(0)).ok()?;
        match refuse_images(&fd, size, disk, path, read_only) {
            Err(OpenError::Format(image)) => Some(image),
            _ => None,
        }
    }
}

/// The format of an image with this head and tail; `None` if it seems to be raw.
fn format_of(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let begins = |offset: usize, magic: &[u8]| {
        head.get(offset..).is_some_and(|rest| rest.starts_with(magic))
    };
    let known = BEGINNINGS.iter().find(|&&(_, offset, magic)| begins(offset, magic));
    let ends = || tail.starts_with(VHD_FOOTER).then_some("vpc");
    known.map(|(format, ..)| *format).or_else(ends)
}

/// Fails if the file is an image of another format.
pub(crate) fn refuse_images(
    fd: &OwnedFd,
    size: u64,
    disk: &str,
    path: &Path,
    read_only: bool,
) -> Result<(), OpenError> {
    let read = |at: u64| -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; 512];
        let n = pread(fd, &mut bytes, at)
            .map_err(|e| OpenError::Open { path: path.into(), source: e.into() })?;
        bytes.truncate(n);
        Ok(bytes)
    };
    let tail = if size >= 512 { read(size - 512)? } else { Vec::new() };
    let Some(format) = format_of(&read(0)?, &tail) else { return Ok(()) };
    let (path, disk) = (path.into(), disk.to_owned());
    Err(OpenError::Format(Image { path, format, disk, read_only }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_by_their_beginning_or_end() {
        for &(format, offset, magic) in BEGINNINGS {
            let mut head = vec![0; 512];
            head[offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(format_of(&head, &[]), Some(format));
            head[offset] ^= 0xff;
            assert_eq!(format_of(&head, &[]), None);
        }
        assert_eq!(format_of(&[0; 512], b"conectix\0\0\0\x02"), Some("vpc"));
        assert_eq!(format_of(&[], &[]), None);
        assert_eq!(format_of(b"LUKS\xba\xbe\0\x01", &[0; 512]), None, "encrypted data is data");
    }
}
