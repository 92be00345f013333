//! What a path or an NBD URI really leads to, however it is spelled. Two names of one place are told
//! by the device and inode of what they open, not by their text.
//!
//! | spelled as | compared as |
//! | --- | --- |
//! | a regular file, also by a symbolic or hard link | device of its file system and inode |
//! | a block device | its device number |
//! | a partition | the whole disk, from where the partition begins |
//! | a loop device | the file behind it, from the loop device's offset |
//! | a path of a multipath device | the multipath device |
//! | an NBD export | the server's address and the export's name |
//! | what is not there yet | its name in the directory that holds it |

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use parda_address::{Address, Socket, Uri};
use rustix::fs::{self, FileType, Stat, major, minor};

use super::loops::{self, Behind};

/// Most layers of partitions, loop devices and dangling links that are followed.
const MOST_LAYERS: usize = 64;

/// The size of a sector in sysfs, whatever the device's own is.
const SECTOR: u64 = 512;

/// Open file, device or NBD server that holds a disk's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Medium {
    /// A regular file, by the device of its file system and its inode there.
    File { device: u64, inode: u64 },
    /// A block device, by its number.
    Device(u64),
    /// An export of an NBD server.
    Nbd { server: Server, export: String },
    /// Nothing that could be looked at, by its name.
    Name(PathBuf),
}

/// NBD server behind a disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    /// By the path of its socket, without symbolic links. A server that starts again makes a new
    /// socket there.
    Path(PathBuf),
    /// By host name or address, in lower case, and port.
    Tcp { host: String, port: u16 },
}

/// A stretch of bytes and what holds it. To make one asks file systems and the kernel; to compare two asks nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    medium: Medium,
    range: Range<u64>,
    /// The device with the file system of a file.
    carrier: Option<Box<Stretch>>,
}

impl Medium {
    /// Files and devices that were opened or found.
    pub(crate) fn of(stat: &Stat) -> Medium {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Medium::Device(stat.st_rdev),
            _ => Medium::File { device: stat.st_dev, inode: stat.st_ino },
        }
    }

    /// Medium that a path leads to. A path that cannot be looked at is taken by its name: a volume
    /// that is not mounted yet is no failure.
    pub(crate) fn at(path: &Path) -> Medium {
        fs::stat(path).map_or_else(|_| Medium::Name(named(path)), |stat| Medium::of(&stat))
    }

    /// Medium behind an open loop device, or behind an open partition of one.
    pub(crate) fn behind(device: impl AsFd) -> io::Result<Medium> {
        Ok(match Behind::of(device)? {
            Behind { device, inode, number: 0 } => Medium::File { device, inode },
            Behind { number, .. } => Medium::Device(number),
        })
    }

    /// Kernel's path of the file behind a loop device, or behind a partition of one. Another file may be there.
    pub(crate) fn file_behind(&self) -> Option<PathBuf> {
        let dir = self.in_sysfs()?;
        // The directory of a partition is in that of its disk.
        let file = ["loop/backing_file", "../loop/backing_file"].into_iter();
        file.map(|file| read(&dir.join(file))).find_map(Result::ok).map(PathBuf::from)
    }

    /// Whether the kernel refuses every write to a device.
    pub(crate) fn is_read_only(&self) -> bool {
        self.in_sysfs().is_some_and(|dir| read(&dir.join("ro")).is_ok_and(|ro| ro == "1"))
    }

    /// Directory of a block device, by a symbolic link. To resolve that takes more system calls than to read what is there.
    fn in_sysfs(&self) -> Option<PathBuf> {
        let Medium::Device(number) = *self else { return None };
        Some(format!("/sys/dev/block/{}:{}", major(number), minor(number)).into())
    }
}

impl Stretch {
    /// A range of what holds it, or of what is below that.
    pub(crate) fn new(medium: Medium, range: Range<u64>) -> Stretch {
        let mut stretch = match medium {
            Medium::Device(number) => resolve(number, range),
            medium => Stretch::bare(medium, range),
        };
        // A file system without a device (NFS, FUSE) has a number without a major one.
        if let Medium::File { device, .. } = stretch.medium
            && major(device) != 0
        {
            stretch.carrier = Some(Box::new(resolve(device, 0..u64::MAX)));
        }
        stretch
    }

    fn bare(medium: Medium, range: Range<u64>) -> Stretch {
        Stretch { medium, range, carrier: None }
    }

    /// Open file, device or NBD server that holds it, below all layers.
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// A range of what a path leads to; without a range, all of it.
    #[must_use]
    pub fn of_path(path: &Path, range: Option<Range<u64>>) -> Stretch {
        Stretch::new(Medium::at(path), range.unwrap_or(0..u64::MAX))
    }

    /// A range of what a path leads to, by its name alone: its file system does not answer.
    #[must_use]
    pub fn named(path: &Path, range: Option<Range<u64>>) -> Stretch {
        Stretch::bare(Medium::Name(absolute(path)), range.unwrap_or(0..u64::MAX))
    }

    /// A range of an NBD export; without a range, all of it.
    #[must_use]
    pub fn of_export(uri: &Uri, range: Option<Range<u64>>) -> Stretch {
        let (server, export) = (server(&uri.address), uri.export.as_str().to_owned());
        Stretch::new(Medium::Nbd { server, export }, range.unwrap_or(0..u64::MAX))
    }

    /// Whether a byte of one is a byte of the other, too. A device and a file of the file system on
    /// it count as such: a write to the one destroys the other.
    #[must_use]
    pub fn meets(&self, other: &Stretch) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        (self.medium == other.medium && overlap) || self.carries(other) || other.carries(self)
    }

    /// Whether every byte of the other one is a byte of it.
    pub(crate) fn covers(&self, other: &Stretch) -> bool {
        let inside = self.range.start <= other.range.start && other.range.end <= self.range.end;
        self.medium == other.medium && inside
    }

    /// Whether a byte of what a path leads to is a byte of it. Two files are compared without a look at what carries them.
    #[must_use]
    pub fn meets_path(&self, path: &Path) -> bool {
        match (Medium::at(path), &self.medium) {
            (other @ Medium::File { .. }, Medium::File { .. }) => other == self.medium,
            (other, _) => Stretch::new(other, 0..u64::MAX).meets(self),
        }
    }

    /// Whether this is a device with the file system of that file.
    fn carries(&self, other: &Stretch) -> bool {
        let (Medium::Device(_), Some(carrier)) = (&self.medium, &other.carrier) else {
            return false;
        };
        carrier.medium == self.medium
            && self.range.start < carrier.range.end
            && carrier.range.start < self.range.end
    }
}

/// Stretches, each with a value. Overlapping stretches are found without a look at all of them.
#[derive(Debug)]
pub struct Stretches<T> {
    all: Vec<(Stretch, T)>,
    /// By what holds them.
    held: HashMap<Medium, Vec<usize>>,
    /// Files by the device with their file system.
    carried: HashMap<Medium, Vec<usize>>,
}

impl<T> Default for Stretches<T> {
    fn default() -> Self {
        Self { all: Vec::new(), held: HashMap::new(), carried: HashMap::new() }
    }
}

impl<T> Stretches<T> {
    /// Adds a stretch with its value.
    pub fn insert(&mut self, stretch: Stretch, value: T) {
        let at = self.all.len();
        self.held.entry(stretch.medium.clone()).or_default().push(at);
        if let Some(carrier) = &stretch.carrier {
            self.carried.entry(carrier.medium.clone()).or_default().push(at);
        }
        self.all.push((stretch, value));
    }

    /// Values of those that meet this one, as [`Stretch::meets`] has it.
    pub fn meeting(&self, stretch: &Stretch) -> impl Iterator<Item = &T> {
        let carrier = stretch.carrier.as_ref().and_then(|carrier| self.held.get(&carrier.medium));
        [self.held.get(&stretch.medium), self.carried.get(&stretch.medium), carrier]
            .into_iter()
            .flatten()
            .flatten()
            .map(|at| &self.all[*at])
            .filter(|(other, _)| other.meets(stretch))
            .map(|(_, value)| value)
    }

    /// Values of those that have the same file, device or server.
    pub(crate) fn on(&self, medium: &Medium) -> impl Iterator<Item = &T> {
        self.held.get(medium).into_iter().flatten().map(|at| &self.all[*at].1)
    }

    /// Number of stretches that were added and kept.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Keeps only those whose value passes.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        for (stretch, value) in std::mem::take(self).all {
            if keeps(&value) {
                self.insert(stretch, value);
            }
        }
    }
}

fn server(address: &Address) -> Server {
    match address.socket() {
        Socket::Tcp(host, port) => Server::Tcp { host: host.to_lowercase(), port },
        Socket::Unix(path) => Server::Path(path.canonicalize().unwrap_or_else(|_| named(path))),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// One spelling for all names of a missing file: the target of its links, in a canonical directory if that exists.
fn named(path: &Path) -> PathBuf {
    let mut named = absolute(path);
    for _ in 0..MOST_LAYERS {
        let place = (named.parent().map(Path::canonicalize), named.file_name());
        let (Some(Ok(directory)), Some(name)) = place else { break };
        let there = directory.join(name);
        match there.read_link() {
            Ok(target) => named = directory.join(target),
            Err(_) => return there,
        }
    }
    named
}

/// Looks through partitions, loop devices and paths of multipath devices to what is below them.
fn resolve(number: u64, range: Range<u64>) -> Stretch {
    let mut at = Stretch::bare(Medium::Device(number), range);
    for _ in 0..MOST_LAYERS {
        let Medium::Device(number) = at.medium else { break };
        match below(number, &at.range) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// Devices right below a block device, as sysfs has them. `None` if the device is a whole one.
fn below(number: u64, range: &Range<u64>) -> Option<Stretch> {
    let dir = Medium::Device(number).in_sysfs()?;
    if dir.join("partition").exists() {
        let (start, len) = (sectors(&dir.join("start"))?, sectors(&dir.join("size"))?);
        let disk = device_number(&dir.join("../dev"))?;
        return Some(Stretch::bare(Medium::Device(disk), within(range, start, len)));
    }
    if let Ok(file) = read(&dir.join("loop/backing_file")) {
        let start = read(&dir.join("loop/offset")).ok()?.parse().ok()?;
        let range = within(range, start, sectors(&dir.join("size"))?);
        let medium = behind(number, &dir).unwrap_or_else(|_| Medium::at(Path::new(&file)));
        return Some(Stretch::bare(medium, range));
    }
    let holders = dir.join("holders").read_dir().ok()?;
    holders.flatten().find_map(|holder| {
        let uuid = read(&holder.path().join("dm/uuid")).ok()?;
        let number = device_number(&holder.path().join("dev"))?;
        uuid.starts_with("mpath-").then(|| Stretch::bare(Medium::Device(number), range.clone()))
    })
}

/// Medium behind a loop device, whichever file has its name by now. Fails if the device cannot be opened.
fn behind(number: u64, dir: &Path) -> io::Result<Medium> {
    let dir = dir.canonicalize()?;
    let device = loops::open(&Path::new("/dev").join(dir.file_name().unwrap_or_default()))?;
    if Medium::of(&fs::fstat(&device)?) != Medium::Device(number) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Medium::behind(device)
}

/// A range of something that begins at `start` of what is below it and is `len` long.
fn within(range: &Range<u64>, start: u64, len: u64) -> Range<u64> {
    let shift = |at: u64| start.saturating_add(at.min(len));
    shift(range.start)..shift(range.end)
}

fn read(file: &Path) -> io::Result<String> {
    std::fs::read_to_string(file).map(|text| text.trim_end_matches('\n').to_owned())
}

fn sectors(file: &Path) -> Option<u64> {
    read(file).ok()?.parse::<u64>().ok()?.checked_mul(SECTOR)
}

fn device_number(file: &Path) -> Option<u64> {
    let text = read(file).ok()?;
    let (major, minor) = text.split_once(':')?;
    Some(fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use parda_testkit::LoopDevice;

    use super::*;

    fn path(path: impl AsRef<Path>, range: Option<Range<u64>>) -> Stretch {
        Stretch::of_path(path.as_ref(), range)
    }

    fn nbd(uri: &str) -> Stretch {
        Stretch::of_export(&uri.parse().unwrap(), None)
    }

    #[test]
    fn one_file_is_one_place_however_it_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("img"), [0; 4096]).unwrap();
        fs::write(at("other"), [0; 4096]).unwrap();
        fs::hard_link(at("img"), at("hard")).unwrap();
        symlink("img", at("soft")).unwrap();
        symlink(dir.path(), at("dir")).unwrap();
        let img = path(at("img"), None);
        for same in ["./img", "dir/img", "hard", "soft", "dir/dir/img"] {
            assert!(img.meets(&path(at(same), None)), "{same}");
        }
        assert!(!img.meets(&path(at("other"), None)));
        // Neither is there yet.
        assert!(path(at("new"), None).meets(&path(at("dir/./new"), None)));
        symlink("dir/new", at("to-new")).unwrap();
        symlink("circle", at("circle")).unwrap();
        assert!(path(at("new"), None).meets(&path(at("to-new"), None)));
        assert!(path(at("circle"), None).meets(&path(at("dir/circle"), None)));
        assert!(!path(at("new"), None).meets(&path(at("new2"), None)));
    }

    #[test]
    fn ranges_that_do_not_overlap_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("img");
        fs::write(&file, [0; 4096]).unwrap();
        let low = path(&file, Some(0..4096));
        assert!(!low.meets(&path(&file, Some(4096..8192))));
        assert!(low.meets(&path(&file, Some(4095..8192))));
        assert!(low.meets(&path(&file, None)));
    }

    #[test]
    fn those_that_meet_are_found_among_many() {
        let dir = tempfile::tempdir().unwrap();
        let (file, name) = (dir.path().join("img"), dir.path().join("none"));
        fs::write(&file, [0; 4096]).unwrap();
        let all = [
            path(&file, Some(0..4096)),
            path(&file, Some(4096..8192)),
            path(&name, None),
            // A device, and files of the file systems on it and on another one.
            Stretch::bare(Medium::Device(1), 4096..8192),
            carried(1, 0..4096, 1),
            carried(2, 8000..9000, 1),
            carried(3, 0..u64::MAX, 2),
        ];
        let mut stretches = Stretches::default();
        for (n, stretch) in all.iter().enumerate() {
            let met = (0..n).filter(|other| all[*other].meets(stretch)).collect::<Vec<_>>();
            let mut found: Vec<usize> = stretches.meeting(stretch).copied().collect();
            found.sort_unstable();
            assert_eq!(found, met, "{stretch:?}");
            stretches.insert(stretch.clone(), n);
        }
        assert_eq!(stretches.meeting(&all[3]).collect::<Vec<_>>(), [&3, &5]);
        stretches.retain(|n| *n != 3);
        assert_eq!(
            (stretches.meeting(&all[3]).collect::<Vec<_>>(), stretches.len()),
            (vec![&5], 6)
        );
    }

    /// A file with that inode, on a file system on that range of a device.
    fn carried(inode: u64, range: Range<u64>, device: u64) -> Stretch {
        let carrier = Some(Box::new(Stretch::bare(Medium::Device(device), range)));
        let medium = Medium::File { device, inode };
        Stretch { medium, range: 0..u64::MAX, carrier }
    }

    #[test]
    fn exports_are_told_by_their_server_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let uri = |export: &str, socket: &Path| {
            format!("nbd+unix:///{export}?socket={}", socket.display())
        };
        let before = nbd(&uri("a", &socket));
        assert!(before.meets(&nbd(&uri("a", &dir.path().join("./nbd")))));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        symlink(&socket, dir.path().join("link")).unwrap();
        assert!(nbd(&uri("a", &socket)).meets(&nbd(&uri("a", &dir.path().join("link")))));
        assert!(!nbd(&uri("a", &socket)).meets(&nbd(&uri("b", &socket))));
        assert!(nbd("nbd://Array/a").meets(&nbd("nbd://array:10809/a")));
        assert!(!nbd("nbd://array/a").meets(&nbd("nbd://array:10810/a")));
        assert!(!nbd("nbd://array/a").meets(&path("/a", None)));
    }

    #[test]
    fn a_loop_device_is_the_file_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("img");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        let part = ["--offset", "65536", "--sizelimit", "131072"];
        let Some(device) = LoopDevice::new(&file, &part) else { return };
        let of_device = path(device.path(), None);
        assert!(of_device.meets(&path(&file, None)));
        assert!(!of_device.meets(&path(&file, Some(0..65536))));
        assert!(of_device.meets(&path(&file, Some(65536..65537))));
        assert!(!of_device.meets(&path(&file, Some(196_608..1 << 20))));
        assert!(path(device.path(), Some(4096..8192)).meets(&path(&file, Some(69632..69633))));
        assert!(!path(device.path(), Some(4096..8192)).meets(&path(&file, Some(65536..69632))));
    }

    #[test]
    fn a_loop_device_is_its_file_whatever_has_the_name_of_it_by_now() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("img"), dir.path().join("link"));
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        fs::hard_link(&file, &link).unwrap();
        let Some(device) = LoopDevice::new(&file, &[]) else { return };
        fs::remove_file(&file).unwrap();
        let another = dir.path().join("img (deleted)");
        fs::write(&another, vec![0; 1 << 20]).unwrap();
        assert!(path(device.path(), None).meets(&path(&link, None)));
        assert!(!path(device.path(), None).meets(&path(&another, None)));
    }
}
