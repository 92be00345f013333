//! Users of a device or a file: mounts, swap, other programs, devices built on it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use serde::Deserialize;

use super::{Why, said, unknown};

/// A device as `lsblk` lists it, with its partitions and the devices that are built upon it.
#[derive(Deserialize)]
struct Node {
    kname: String,
    #[serde(rename = "type")]
    kind: String,
    /// `[SWAP]` of a swap area.
    mountpoint: Option<String>,
    #[serde(default)]
    children: Vec<Node>,
}

/// Checks that a device, its partitions, and devices built upon these are not in use.
pub(crate) fn device_in_use(path: &Path) -> Result<(), Why> {
    let list = said("lsblk", &["--json", "--output", "KNAME,TYPE,MOUNTPOINT"], path)?;
    let number = fs::metadata(path)?.rdev();
    let ro = format!("/sys/dev/block/{}:{}/ro", major(number), minor(number));
    in_use(&list, fs::read_to_string(ro)?.trim() == "1")
}

/// As above, by the list of `lsblk`.
fn in_use(list: &str, read_only: bool) -> Result<(), Why> {
    #[derive(Deserialize)]
    struct List {
        blockdevices: (Node,),
    }
    let List { blockdevices: (node,) } =
        serde_json::from_str(list).map_err(|error| unknown(format!("lsblk: {error}")))?;
    mounted(&node)?;
    if read_only {
        return Err(Why::other("it is read-only"));
    }
    let is_partition = |child: &&Node| child.kind == "part";
    if let Some(holder) = node.children.iter().find(|child| !is_partition(child)) {
        let (what, holder) = (node.kname, &holder.kname);
        return Err(Why::Other(format!("{what} is used by {holder}, which is built upon it")));
    }
    let partitions: Vec<&str> = node.children.iter().map(|child| child.kname.as_str()).collect();
    match partitions.is_empty() {
        true => Ok(()),
        false => Err(Why::Other(format!("it has partitions ({})", partitions.join(", ")))),
    }
}

fn mounted(node: &Node) -> Result<(), Why> {
    let what = &node.kname;
    match &node.mountpoint {
        Some(swap) if swap == "[SWAP]" => Err(Why::Other(format!("{what} is used for swapping"))),
        Some(at) => Err(Why::Other(format!("{what} is mounted at {at}"))),
        None => node.children.iter().try_for_each(mounted),
    }
}

/// Claims a device (`O_EXCL`) until the returned file is closed. Until then nobody can mount the device or
/// claim it.
pub(crate) fn claim(path: &Path) -> Result<File, Why> {
    let exclusively = OFlags::EXCL.bits().cast_signed();
    let opened = File::options().read(true).write(true).custom_flags(exclusively).open(path);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Why::other("another program has it open for itself"),
        _ => error.into(),
    })
}

/// Checks that a file is neither behind a loop device nor a swap file.
pub(crate) fn file_in_use(path: &Path) -> Result<(), Why> {
    let devices = said("losetup", &["--noheadings", "--output", "NAME", "--associated"], path)?;
    if let Some(device) = devices.lines().next() {
        return Err(Why::Other(format!("it is the file behind {}", device.trim())));
    }
    let file = fs::metadata(path)?;
    let same = |other: &PathBuf| {
        let other = fs::metadata(other).ok();
        other.is_some_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    };
    match swap_paths(&fs::read_to_string("/proc/swaps")?).iter().any(same) {
        true => Err(Why::Other(format!("{} is used for swapping", path.display()))),
        false => Ok(()),
    }
}

fn swap_paths(swaps: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().next().map(unescape);
    swaps.lines().skip(1).filter_map(path).collect()
}

/// A path without the octal escapes that the kernel writes in lists, such as `\040` for a blank.
fn unescape(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => plain = plain + "\\" + part,
        }
    }
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_files_are_found_by_their_plain_names() {
        let swaps = "Filename\tType\tSize\n/swap\\040file file 4 0 -2\n";
        assert_eq!(swap_paths(swaps), [PathBuf::from("/swap file")]);
        assert!(swap_paths("Filename\tType\n").is_empty());
    }

    /// A disk with a partition on which a logical volume is.
    #[test]
    fn what_is_built_upon_a_partition_uses_the_disk() {
        let node = |kname: &str, kind: &str, at: &str, children: &str| {
            format!(
                r#"{{"kname":"{kname}","type":"{kind}","mountpoint":{at},"children":[{children}]}}"#
            )
        };
        let why = |node: &str, read_only| {
            let list = format!(r#"{{"blockdevices":[{node}]}}"#);
            in_use(&list, read_only).err().map(|why| why.to_string())
        };
        let on = |at: &str| {
            let volume = node("dm-3", "lvm", at, "");
            let partition = node("sda1", "part", "null", &volume);
            [node("sda", "disk", "null", &partition), partition, volume]
        };
        let [disk, partition, volume] = on("null").map(|node| why(&node, false));
        assert_eq!(disk.unwrap(), "it has partitions (sda1)");
        assert_eq!(partition.unwrap(), "sda1 is used by dm-3, which is built upon it");
        assert_eq!(volume, None);
        assert_eq!(why(&on("null")[2], true).unwrap(), "it is read-only");
        for node in on("\"/srv/a disk\"") {
            assert_eq!(why(&node, false).unwrap(), "dm-3 is mounted at /srv/a disk");
        }
        for node in on("\"[SWAP]\"") {
            assert_eq!(why(&node, false).unwrap(), "dm-3 is used for swapping");
        }
        assert!(why("", false).is_some(), "a device that lsblk does not list is refused");
    }
}
