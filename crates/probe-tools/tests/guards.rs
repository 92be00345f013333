//! What `parda probe` writes to: nothing, but what is plainly there to be overwritten. Real devices,
//! real file systems; each refusal leaves every byte as it was.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "what is skipped is said")]

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use parda_probe_tools::{Target, Writes};
use parda_testkit::LoopDevice;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A loop device on a file of zeroes, for as long as it lives.
struct Loop {
    device: LoopDevice,
    file: PathBuf,
    _dir: TempDir,
}

impl Loop {
    /// `None`, said aloud, where there can be none.
    fn new(options: &[&str], prepare: impl FnOnce(&Path)) -> Option<Loop> {
        let dir = tempfile::tempdir().unwrap();
        let file = zeroes(&dir);
        prepare(&file);
        let device = LoopDevice::new(&file, options)?;
        Some(Loop { device, file, _dir: dir })
    }

    /// As the kernel calls it.
    fn name(&self) -> &str {
        self.device.path().file_name().unwrap().to_str().unwrap()
    }

    /// Why it is not written to; not a byte of it may change.
    #[track_caller]
    fn refused(&self, why: &str) {
        let path = self.device.path().to_str().unwrap();
        refused(&self.file, path, &Writes::Allowed, why);
        // Reading it is another matter.
        assert!(!Target::open(path, &Writes::No, None).unwrap().may_be_written());
    }
}

fn zeroes(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("disk");
    File::create(&path).unwrap().set_len(16 * MIB).unwrap();
    path
}

fn write(path: &Path, bytes: &[u8], at: u64) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn ok(program: &str, arguments: &[&Path]) {
    let out = Command::new(program).args(arguments).output().unwrap();
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
}

fn mkfs(path: &Path) {
    ok("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), path]);
}

fn checksum(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(path).unwrap());
    hasher.finish()
}

#[track_caller]
fn refused(content: &Path, name: &str, writes: &Writes, why: &str) {
    let before = checksum(content);
    let error = match Target::open(name, writes, None) {
        Ok(_) => panic!("{name} would be written to"),
        Err(error) => error.to_string(),
    };
    assert_eq!(before, checksum(content), "{error}");
    let found = error.strip_prefix(&format!("{name} will not be written to: "));
    assert!(found.is_some_and(|found| found.starts_with(why)), "{error:?}, not {why:?}");
}

#[test]
fn a_device_of_zeroes_is_marked_and_so_may_be_written_to_again() {
    let Some(disk) = Loop::new(&[], |_| ()) else { return };
    let path = disk.device.path().to_str().unwrap();
    for _ in 0..2 {
        let target = Target::open(path, &Writes::Allowed, None).unwrap();
        assert!(target.may_be_written());
        assert_eq!((target.info().bytes, target.driven_bytes()), (16 * MIB, 14 * MIB));
        // While we have it nobody else takes it for himself, another probe neither.
        let error = Target::open(path, &Writes::Allowed, None).unwrap_err().to_string();
        assert!(error.ends_with("another program has it open for itself"), "{error}");
    }
    let content = fs::read(&disk.file).unwrap();
    assert!(content.starts_with(b"parda probe --allow-writes: "));
    assert!(content[4096..].iter().all(|byte| *byte == 0), "no more than the mark is written");
}

#[test]
fn a_mounted_device_is_refused() {
    let Some(disk) = Loop::new(&[], mkfs) else { return };
    let at = tempfile::tempdir().unwrap();
    ok("mount", &[disk.device.path(), at.path()]);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        disk.refused(&format!("{} is mounted at {}", disk.name(), at.path().display()));
    }));
    ok("umount", &[at.path()]);
    refused.unwrap();
}

#[test]
fn a_device_with_a_file_system_is_refused_though_nobody_uses_it() {
    let Some(disk) = Loop::new(&[], mkfs) else { return };
    disk.refused("it holds ext4 (at 0x438)");
}

/// A table with one partition of 8 MiB, from the first MiB on.
fn partition(path: &Path) {
    let mut block = [0; 512];
    let sectors = |mib: u32| (mib * 2048).to_le_bytes();
    block[450] = 0x83;
    block[454..458].copy_from_slice(&sectors(1));
    block[458..462].copy_from_slice(&sectors(8));
    block[510..].copy_from_slice(&[0x55, 0xaa]);
    write(path, &block, 0);
}

#[test]
fn a_device_with_a_partition_table_is_refused_and_one_with_partitions() {
    let Some(disk) = Loop::new(&[], partition) else { return };
    disk.refused("it holds dos (at 0x1fe)");
    let Some(disk) = Loop::new(&["-P"], partition) else { return };
    let name = disk.name();
    if !Path::new(&format!("/sys/block/{name}/{name}p1")).exists() {
        println!("SKIPPED: this kernel knows no partitions");
        return;
    }
    disk.refused(&format!("it has partitions ({name}p1)"));
}

#[test]
fn swap_space_is_refused_in_use_or_not() {
    let Some(disk) = Loop::new(&[], |file| ok("mkswap", &[file])) else { return };
    disk.refused("it holds swap (at 0xff6)");
    if !Command::new("swapon").arg(disk.device.path()).status().unwrap().success() {
        println!("SKIPPED: there can be no swapping here");
        return;
    }
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        disk.refused(&format!("{} is used for swapping", disk.name()));
    }));
    ok("swapoff", &[disk.device.path()]);
    refused.unwrap();
}

#[test]
fn a_device_that_another_program_has_for_itself_is_refused() {
    let Some(disk) = Loop::new(&[], |_| ()) else { return };
    let exclusively = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let held =
        File::options().read(true).custom_flags(exclusively).open(disk.device.path()).unwrap();
    disk.refused("another program has it open for itself");
    drop(held);
}

#[test]
fn a_device_with_data_that_nobody_knows_is_refused_with_its_place() {
    for at in [5000, 16 * MIB - 1] {
        let Some(disk) = Loop::new(&[], |file| write(file, &[7], at)) else { return };
        disk.refused(&format!("it holds data at byte {at}, "));
    }
}

#[test]
fn a_read_only_device_is_refused() {
    let Some(disk) = Loop::new(&["-r"], |_| ()) else { return };
    disk.refused("it is read-only");
}

#[test]
fn only_files_that_it_made_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let file = zeroes(&dir);
    let path = file.to_str().unwrap();
    let not_ours = "only a file that parda probe has made";
    refused(&file, path, &Writes::Allowed, not_ours);
    write(&file, &[7; 100], 5000);
    refused(&file, path, &Writes::Allowed, not_ours);
    fs::write(&file, [7; 100]).unwrap();
    refused(&file, path, &Writes::Allowed, not_ours);
    let error = Target::open(path, &Writes::Allowed, Some(16 * MIB)).unwrap_err().to_string();
    assert!(error.contains("cannot make it: File exists"), "{error}");

    let ours = dir.path().join("ours");
    let path = ours.to_str().unwrap();
    let target = Target::open(path, &Writes::Allowed, Some(16 * MIB)).unwrap();
    assert_eq!((target.info().bytes, target.driven_bytes()), (16 * MIB, 14 * MIB));
    assert!(Target::open(path, &Writes::To(path.to_owned()), None).unwrap().may_be_written());
    let other = Writes::To("other".to_owned());
    refused(&ours, path, &other, "it is not what --allow-writes names, other");
    assert!(!Target::open(path, &Writes::No, None).unwrap().may_be_written());
    // What is made of it later is not ours.
    mkfs(&ours);
    refused(&ours, path, &Writes::Allowed, "it holds ext4");
}

#[test]
fn a_file_behind_a_loop_device_is_refused() {
    let disk = Loop::new(&[], |file| {
        fs::remove_file(file).unwrap();
        Target::open(file.to_str().unwrap(), &Writes::No, Some(16 * MIB)).unwrap();
    });
    let Some(disk) = disk else { return };
    let why = format!("it is the file behind {}", disk.device.path().display());
    refused(&disk.file, disk.file.to_str().unwrap(), &Writes::Allowed, &why);
    let device =
        Target::open(disk.device.path().to_str().unwrap(), &Writes::Allowed, None).unwrap();
    assert!(device.may_be_written(), "the device itself bears the mark");
}

/// nbdkit with a file as its export, and its URI; killed when dropped.
struct Nbd(Child, String);

impl Nbd {
    fn serve(dir: &TempDir, name: &str, file: &Path, options: &[&str]) -> Nbd {
        let socket = dir.path().join(name);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "--exit-with-parent", "-U"]).arg(&socket).args(options);
        let child = nbdkit.arg("file").arg(file).spawn().unwrap();
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Nbd(child, format!("nbd+unix:///?socket={}", socket.display()))
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_export_is_written_to_if_it_is_named_again_and_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = zeroes(&dir);
    let nbd = Nbd::serve(&dir, "nbd", &file, &[]);
    let named = Writes::To(nbd.1.clone());
    refused(&file, &nbd.1, &Writes::Allowed, "who else uses an export cannot be seen");
    let other = Writes::To("lun0".to_owned());
    refused(&file, &nbd.1, &other, "it is not what --allow-writes names, lun0");
    let only_read = Nbd::serve(&dir, "read-only", &file, &["-r"]);
    refused(&file, &only_read.1, &Writes::To(only_read.1.clone()), "it is read-only");
    for _ in 0..2 {
        let target = Target::open(&nbd.1, &named, None).unwrap();
        assert!(target.may_be_written() && target.driven_bytes() == 14 * MIB);
    }
    let content = fs::read(&file).unwrap();
    assert!(content.starts_with(b"parda probe --allow-writes: "));
    assert!(content[4096..].iter().all(|byte| *byte == 0));
    write(&file, &[7], 15 * MIB + 9);
    refused(&file, &nbd.1, &named, "it holds data at byte 15728649, ");
    mkfs(&file);
    refused(&file, &nbd.1, &named, "it holds ext4 (at 0x438)");
}

#[test]
fn what_is_no_target_is_said_to_be_none_by_name() {
    let said = |name: &str| Target::open(name, &Writes::No, None).unwrap_err().to_string();
    assert!(said("model:cx5").contains("parda-lab probe model:cx5"), "{}", said("model:cx5"));
    assert!(said("/nowhere").contains("/nowhere: No such file"), "{}", said("/nowhere"));
    assert_eq!(said("/dev/null"), "/dev/null: is neither a file nor a block device");
    assert!(said("http://x/y").contains("must begin with nbd://"));
    let gone = said("nbd+unix:///x?socket=/nowhere/nbd");
    assert!(gone.contains("cannot connect") && gone.contains("No such file"), "{gone}");
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    File::create(&empty).unwrap();
    assert!(said(empty.to_str().unwrap()).contains("is empty; make a file"));
    let create = |name: &str, bytes| Target::open(name, &Writes::No, Some(bytes)).unwrap_err();
    assert!(create("model:drive-7200", 1 << 30).to_string().contains("--create makes a file"));
    assert!(create("small", 1 << 20).to_string().contains("16 MiB at least"));
}
