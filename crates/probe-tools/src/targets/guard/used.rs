//! Users of a device or a file: mounts, swap, other programs, devices built on it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

use super::Why;

/// A device in sysfs.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    number: String,
}

/// Checks that a device, its partitions, and devices built upon these are not in use.
pub(crate) fn device_in_use(path: &Path) -> Result<(), Why> {
    let dir = fs::canonicalize(format!("/sys/dev/block/{}", number(path)?))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let swaps = fs::read_to_string("/proc/swaps")?;
    in_use(&dir, &mounts, &swaps)
}

/// As above, for a device's directory in sysfs, with the lists of mounts and of swap areas.
fn in_use(dir: &Path, mounts: &str, swaps: &str) -> Result<(), Why> {
    let mut all = Vec::new();
    collect(dir, &mut all)?;
    for node in &all {
        if let Some(at) = mounted(mounts, node) {
            return Err(Why::Mounted { what: node.name.clone(), at });
        }
        let swap = swap_paths(swaps).into_iter().any(|swap| is(&swap, &node.number));
        if swap {
            return Err(Why::Swap(node.name.clone()));
        }
    }
    if fs::read_to_string(dir.join("ro")).is_ok_and(|ro| ro.trim() == "1") {
        return Err(Why::ReadOnly);
    }
    let held = |dir: &Path| names(&dir.join("holders"));
    if let Some(holder) = held(dir)?.first() {
        return Err(Why::Held { what: name(dir), holder: holder.clone() });
    }
    let partitions = partitions(dir)?;
    match partitions.first() {
        Some(_) => {
            Err(Why::Partitions(partitions.iter().map(|p| name(p)).collect::<Vec<_>>().join(", ")))
        }
        None => Ok(()),
    }
}

/// Claims a device (`O_EXCL`) until the returned file is closed. Until then nobody can mount the device or
/// claim it.
pub(crate) fn claim(path: &Path) -> Result<File, Why> {
    let exclusively = OFlags::EXCL.bits().cast_signed();
    let opened = File::options().read(true).write(true).custom_flags(exclusively).open(path);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Why::Claimed,
        _ => Why::Io(error),
    })
}

/// Checks that a file is neither behind a loop device nor a swap file.
pub(crate) fn file_in_use(path: &Path) -> Result<(), Why> {
    let file = fs::metadata(path)?;
    let same = |other: &Path| {
        let other = fs::metadata(other).ok();
        other.is_some_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    };
    for disk in names(Path::new("/sys/block"))? {
        let backing = fs::read_to_string(format!("/sys/block/{disk}/loop/backing_file"));
        if backing.is_ok_and(|backing| same(Path::new(backing.trim_end()))) {
            return Err(Why::Backs(format!("/dev/{disk}")));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps")?;
    match swap_paths(&swaps).iter().any(|swap| same(swap)) {
        true => Err(Why::Swap(path.display().to_string())),
        false => Ok(()),
    }
}

/// A device, its partitions, and what is built upon them.
fn collect(dir: &Path, all: &mut Vec<Node>) -> Result<(), Why> {
    let number = fs::read_to_string(dir.join("dev"))?.trim().to_owned();
    if all.iter().any(|node| node.number == number) {
        return Ok(());
    }
    all.push(Node { name: name(dir), number });
    for partition in partitions(dir)? {
        collect(&partition, all)?;
    }
    for holder in names(&dir.join("holders"))? {
        collect(&fs::canonicalize(dir.join("holders").join(holder))?, all)?;
    }
    Ok(())
}

fn partitions(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let below = names(dir)?.into_iter().map(|name| dir.join(name));
    Ok(below.filter(|below| below.join("partition").exists()).collect())
}

/// The names in a directory. Empty if there is no such directory.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name =
        |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = entries.map(name).collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

fn name(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn number(path: &Path) -> io::Result<String> {
    let device = fs::metadata(path)?.rdev();
    Ok(format!("{}:{}", major(device), minor(device)))
}

fn is(path: &Path, device: &str) -> bool {
    let block = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    block && number(path).is_ok_and(|number| number == device)
}

/// Mount point of a device, found by its number, or by its name, as file systems on several devices have
/// numbers of their own.
fn mounted(mounts: &str, node: &Node) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(2);
        let (number, at) = (front.next()?, front.nth(1)?);
        let source = back.split(' ').nth(1)?;
        let it_is = number == node.number || is(&unescape(source), &node.number);
        it_is.then(|| unescape(at))
    })
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
    fn mounts_are_found_by_number_and_their_places_told_plainly() {
        let mounts = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
                      30 22 7:3 / /mnt/my\\040disk rw,noatime shared:1 - xfs /dev/loop3 rw\n";
        let node = |number: &str| Node { name: "x".to_owned(), number: number.to_owned() };
        assert_eq!(mounted(mounts, &node("7:3")), Some(PathBuf::from("/mnt/my disk")));
        assert_eq!(mounted(mounts, &node("254:1")), Some(PathBuf::from("/")));
        assert_eq!(mounted(mounts, &node("254:100")), None);
        let swaps = "Filename\tType\tSize\n/swap\\040file file 4 0 -2\n";
        assert_eq!(swap_paths(swaps), [PathBuf::from("/swap file")]);
        assert!(swap_paths("Filename\tType\n").is_empty());
    }

    /// As sysfs has a disk with a partition on which a logical volume is.
    #[test]
    fn what_is_built_upon_a_partition_uses_the_disk() {
        let sys = tempfile::tempdir().unwrap();
        let add = |dir: &str, number: &str| {
            fs::create_dir_all(sys.path().join(dir).join("holders")).unwrap();
            fs::write(sys.path().join(dir).join("dev"), number).unwrap();
            sys.path().join(dir)
        };
        let (disk, partition) = (add("sda", "8:0\n"), add("sda/sda1", "8:1\n"));
        assert!(in_use(&disk, "", "").is_ok());
        fs::write(partition.join("partition"), "1").unwrap();
        let said = |dir: &Path, mounts: &str| in_use(dir, mounts, "").unwrap_err().to_string();
        assert_eq!(said(&disk, ""), "it has partitions (sda1)");
        let volume = add("dm-3", "253:3\n");
        std::os::unix::fs::symlink(&volume, partition.join("holders/dm-3")).unwrap();
        assert_eq!(said(&partition, ""), "sda1 is used by dm-3, which is built upon it");
        let mounts = "22 1 253:3 / /srv rw - xfs /dev/mapper/vg-srv rw\n";
        for dir in [&disk, &partition, &volume] {
            assert_eq!(said(dir, mounts), "dm-3 is mounted at /srv");
        }
        assert!(in_use(&volume, "", "").is_ok());
    }
}
