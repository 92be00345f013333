//! What is not ours is not written: real file systems, volume managers and images, looked at before
//! and after, by `init` and by a host with the place in its configuration.
use crate::common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{exchange, make, publication};
use parda_control::{Bytes, Instant};
use parda_exchange::region::FileRegion;
use parda_exchange::{
    Exchange as _, Header, InitError, Location, Made, Site, SlotCount, VolumeName, init,
};

const SLOTS: u32 = 64;
const SIZE: u64 = 64 << 20;

fn slots() -> SlotCount {
    SlotCount::new(SLOTS).unwrap()
}

fn try_init(path: &Path, offset: Option<u64>, volume: Option<&str>) -> Result<Made, InitError> {
    let site = Site::new(Location::Path(path.to_owned()), offset.map(Bytes)).unwrap();
    let volume = volume.map(|name| VolumeName::new(name).unwrap());
    init(&site, slots(), volume, Duration::from_secs(9))
}

/// A host that tries for some periods. What it says in each of them, which is the same.
fn host(path: &Path, offset: Option<u64>, slot: u32) -> String {
    let region = FileRegion::new(path, offset.map(Bytes), slots()).unwrap();
    let mut host = exchange(region, "a", slot);
    let mut said = Vec::new();
    for now in 0..3 {
        said.push(host.collect(Instant(now)).unwrap_err().to_string());
        host.publish(&publication(1.0)).unwrap_err();
    }
    said.dedup();
    assert_eq!(said.len(), 1);
    said.remove(0)
}

/// Neither a host nor `init` changes a byte, nor, of `what` is known by name, `init` with an offset.
fn is_left_alone(path: &Path, what: &str) {
    let before = fs::read(path).unwrap();
    let said = host(path, None, 5);
    eprintln!("{what}: {said}");
    assert!(said.contains(&path.display().to_string()) && said.contains("Nothing was written"));
    host(path, Some(4096), 0);
    let error = try_init(path, None, Some("array-a")).unwrap_err().to_string();
    eprintln!("{what}: {error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert!(error.to_lowercase().contains(what), "{what}: {error}");
    // The first stretch of zeros that has room for it.
    let room = slots().place_bytes() as usize;
    let free = (1..).map(|i| i * room).find(|at| {
        before.get(*at..at + room).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
    });
    let free = free.unwrap() as u64;
    if !what.is_empty() && free + room as u64 <= before.len() as u64 {
        try_init(path, Some(free / 4096 * 4096), None).unwrap_err();
    }
    assert!(fs::read(path).unwrap() == before, "{what} was changed");
}

/// Runs a tool on a new sparse file. Without the tool, there is no file.
fn image(dir: &Path, size: u64, line: &[&str], input: &str) -> Option<PathBuf> {
    let path = dir.join(line[0]);
    fs::File::create(&path).unwrap().set_len(size).unwrap();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
    let paths = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let child = command.env("PATH", paths).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|_| eprintln!("SKIPPED: {} is not installed", line[0])).ok()?;
    use std::io::Write;
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    assert!(child.wait().unwrap().success(), "{line:?}");
    Some(path)
}

#[test]
fn file_systems_and_volumes_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let tools: [(&str, &[&str], &str); 7] = [
        ("ext", &["mkfs.ext4", "-q", "-F"], ""),
        ("xfs", &["mkfs.xfs", "-q", "-f"], ""),
        ("btrfs", &["mkfs.btrfs", "-q", "-f"], ""),
        ("swap", &["mkswap"], ""),
        ("partition table", &["sfdisk", "-q", "--label", "gpt"], ",\n"),
        ("partition table", &["fdisk", "-w", "always"], "o\nn\n\n\n\n\nw\n"),
        (
            "luks",
            &[
                "cryptsetup",
                "luksFormat",
                "-q",
                "--pbkdf-force-iterations=1000",
                "--pbkdf=pbkdf2",
                "--key-file=-",
            ],
            "key",
        ),
    ];
    // These need images of half a GB, or derive keys: PARDA_LONG=1 cargo test --workspace --test exchange -- foreign
    let long = std::env::var_os("PARDA_LONG").is_some();
    let tools = tools.iter().filter(|(what, ..)| long || !["xfs", "btrfs", "luks"].contains(what));
    for &(what, line, input) in tools {
        // XFS and Btrfs take no small ones.
        let size = if ["xfs", "btrfs"].contains(&what) { 512 << 20 } else { SIZE };
        if let Some(path) = image(dir.path(), size, line, input) {
            is_left_alone(&path, what);
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn disk_images_and_other_data_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for format in ["qcow2", "vmdk", "vhdx"] {
        let path = at(format);
        let mut tool = Command::new("qemu-img");
        tool.args(["create", "-q", "-f", format]).arg(&path).arg("64M");
        let Ok(status) = tool.status() else {
            eprintln!("SKIPPED: qemu-img is not installed");
            break;
        };
        assert!(status.success());
        is_left_alone(&path, format);
    }
    // The label of an LVM physical volume and of MD, and a file of 128 bytes.
    for (name, offset, mark, what) in [
        ("lvm", 512, &b"LABELONE\x01\0\0\0\0\0\0\0"[..], "lvm"),
        ("md", 4096, b"\xfc\x4e\x2b\xa9", "md raid"),
        ("database", 70_000, b"rows", "other data"),
        ("last", SIZE - 1, b"x", "other data"),
    ] {
        let file = fs::File::create(at(name)).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(mark, offset).unwrap();
        is_left_alone(&at(name), if ["database", "last"].contains(&name) { "" } else { what });
    }
    fs::write(at("small"), [b'x'; 128]).unwrap();
    is_left_alone(&at("small"), "");
}

/// Byte by byte: a slot or a header with one byte that is not ours, anywhere in its 4096.
#[test]
fn one_byte_anywhere_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let whole = Header::new(slots(), None).encode();
    for at in (0..4096).step_by(97).chain([510, 511, 512, 1080, 4086, 4095]) {
        // In place of the header.
        let mut bytes = vec![0; slots().place_bytes() as usize];
        bytes[at] = 1;
        fs::write(&path, &bytes).unwrap();
        host(&path, None, 0);
        try_init(&path, None, None).unwrap_err();
        assert!(fs::read(&path).unwrap() == bytes, "byte {at} of the header");
        // In the slot.
        bytes[..4096].copy_from_slice(&whole.0);
        bytes[at] = whole.0[at];
        bytes[4096 + at] = 1;
        fs::write(&path, &bytes).unwrap();
        let mut host = exchange(FileRegion::new(&path, None, slots()).unwrap(), "a", 0);
        host.collect(Instant(0)).unwrap();
        host.publish(&publication(1.0)).unwrap_err();
        assert!(fs::read(&path).unwrap() == bytes, "byte {at} of the slot");
    }
}

#[test]
fn a_new_disk_of_a_vm_is_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vm.img");
    fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let error = try_init(&path, None, None).unwrap_err();
    assert!(error.to_string().contains(" has 8388608 bytes, but"), "{error}");
    assert!(host(&path, None, 0).contains("never made an exchange"));
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn links_are_not_followed_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), [0; 128]).unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    std::os::unix::fs::symlink("nothing", at("dangling")).unwrap();
    for link in ["link", "dangling"] {
        let error = try_init(&at(link), None, None).unwrap_err().to_string();
        assert!(error.contains("it is a symbolic link to "), "{error}");
        let region = FileRegion::new(&at(link), None, slots()).unwrap();
        let error = exchange(region, "a", 0).collect(Instant(0)).unwrap_err().to_string();
        assert!(error.contains("it is a symbolic link to "), "{error}");
    }
    assert_eq!(fs::read(at("file")).unwrap(), [0; 128]);
    assert!(!at("nothing").exists());
}

#[test]
fn a_place_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("empty"), []).unwrap();
    // As an interrupted `init` leaves it.
    fs::write(at("zeros"), vec![0; slots().place_bytes() as usize]).unwrap();
    fs::write(at("short"), vec![0; 5000]).unwrap();
    for name in ["new", "empty", "zeros", "short"] {
        let Ok(Made::New(header)) = try_init(&at(name), None, Some("array-a")) else {
            panic!("{name}")
        };
        let made = fs::read(at(name)).unwrap();
        assert_eq!(made.len() as u64, slots().place_bytes());
        assert!(made[..4096] == header.encode().0 && made[4096..].iter().all(|byte| *byte == 0));
        assert_eq!(try_init(&at(name), None, Some("array-a")).unwrap(), Made::Already(header));
        for other in [None, Some("array-b")] {
            let error = try_init(&at(name), None, other).unwrap_err();
            assert!(error.to_string().contains("is an exchange already"), "{error}");
        }
        assert_eq!(fs::read(at(name)).unwrap(), made);
    }
    let error = try_init(&at("not-mounted/x"), None, None).unwrap_err().to_string();
    assert!(error.contains("is the volume mounted?"), "{error}");
    assert!(!at("not-mounted").exists());
    // A region is of something that is there.
    assert!(try_init(&at("region"), Some(4096), None).is_err() && !at("region").exists());
}

#[test]
fn a_torn_header_and_a_file_of_format_1_are_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    // A header whose last byte is zero, as chance has it, would be whole without it.
    let mut headers = std::iter::repeat_with(|| Header::new(slots(), None).encode());
    let whole = headers.find(|whole| whole.0[511] != 0).unwrap();
    for cut in [1, 8, 20, 300, 511] {
        let mut torn = vec![0; slots().place_bytes() as usize];
        torn[..cut].copy_from_slice(&whole.0[..cut]);
        fs::write(&path, &torn).unwrap();
        host(&path, None, 0);
        let error = try_init(&path, None, None).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert!(fs::read(&path).unwrap() == torn);
    }
    let mut old = vec![0; 64 * 4096];
    old[..8].copy_from_slice(b"PARDASLT");
    old[8] = 1;
    fs::write(&path, &old).unwrap();
    assert!(host(&path, None, 3).contains("format 1"));
    let error = try_init(&path, None, None).unwrap_err().to_string();
    assert!(error.contains("an exchange of format 1"), "{error}");
    assert!(fs::read(&path).unwrap() == old);
}

#[test]
fn a_region_inside_another_exchange_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    make(&path, Some(Bytes::kib(64)), SLOTS);
    let inside = try_init(&path, Some(128 << 10), None).unwrap_err().to_string();
    assert!(inside.contains("another exchange around it"), "{inside}");
    let over = try_init(&path, Some(0), None).unwrap_err().to_string();
    assert!(over.contains("data at byte 65536"), "{over}");
    try_init(&path, Some((64 << 10) + slots().place_bytes()), None).unwrap();
}

#[test]
fn a_device_in_use_or_with_a_file_system_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let sh = |line: &str| {
        let done = Command::new("sh").args(["-c", line]).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap().trim().to_owned())
    };
    let Some(device) = sh(&format!("losetup --find --show '{}'", file.display())) else {
        eprintln!("SKIPPED: cannot make a loop device here (not root?)");
        return;
    };
    let path = Path::new(&device);
    let judge = || {
        make(path, None, SLOTS);
        sh(&format!("dd if=/dev/zero of={device} bs=1M count=1 conv=fsync")).unwrap();
        sh(&format!("PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F {device}")).unwrap();
        let before = fs::read(&file).unwrap();
        let error = try_init(path, None, None).unwrap_err().to_string();
        assert!(error.contains("ext4"), "{error}");
        host(path, None, 1);
        // A stretch of zeros within the file system.
        let error = try_init(path, Some(SIZE / 2 + (1 << 20)), None).unwrap_err().to_string();
        assert!(error.contains("ext4, says libblkid"), "{error}");
        assert!(fs::read(&file).unwrap() == before);
        let mount = dir.path().join("mnt");
        fs::create_dir(&mount).unwrap();
        if sh(&format!("mount {device} '{}'", mount.display())).is_some() {
            let tried = try_init(path, None, None);
            sh(&format!("umount '{}'", mount.display())).unwrap();
            let error = tried.unwrap_err().to_string();
            assert!(error.contains("is in use: it is mounted"), "{error}");
        }
    };
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
    sh(&format!("losetup --detach {device}"));
    judged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
