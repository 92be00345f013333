use super::*;
use std::fs::File as StdFile;

use parda_control::Bytes;
use parda_testkit::LoopDevice;

fn wanted(disk: &str, range: Range<u64>, read_only: bool, lock: Lock) -> Wanted<'_> {
    let region = DiskRegion { offset: Bytes(range.start), len: Bytes(range.end - range.start) };
    Wanted { region: Some(region), ..all(disk, read_only, lock) }
}

fn open(path: &Path) -> Arc<OwnedFd> {
    Arc::new(StdFile::options().read(true).write(true).open(path).unwrap().into())
}

fn all(disk: &str, read_only: bool, lock: Lock) -> Wanted<'_> {
    let (path, direct, answered) = (Path::new("img"), Direct::Auto, &|| ());
    Wanted { disk, path, direct, lock, raw: false, read_only, region: None, host: 1, answered }
}

/// Locks of another program, on an open file that is in no table.
fn foreign(path: &Path, read_only: bool, shared: bool, agent: bool) -> Arc<OwnedFd> {
    let fd = open(path);
    let locks = Locks::of(read_only, shared);
    locks.take(&fd).unwrap();
    if !agent {
        // QEMU does not lock the agents' byte.
        locks::release_all(&fd).unwrap();
        locks.take_as_qemu(&fd).unwrap();
    }
    fd
}

#[test]
fn regions_of_one_file_are_apart_and_overlaps_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("img"), dir.path().join("link"));
    std::fs::write(&path, [0; 8192]).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let (a, b, c) = (open(&path), open(&link), open(&path));
    let now = Duration::ZERO;
    let one = claim(&a, &wanted("one", 0..4096, false, Lock::On), now).unwrap();
    let _two = claim(&b, &wanted("two", 4096..8192, false, Lock::On), now).unwrap();
    let overlap = |read_only| claim(&c, &wanted("three", 0..1, read_only, Lock::On), now);
    for read_only in [true, false] {
        let error = overlap(read_only).unwrap_err();
        assert!(matches!(error, OpenError::Overlap { other, .. } if other == "one"));
    }
    drop((one, a));
    overlap(false).unwrap();
}

#[test]
fn a_deleted_file_that_is_being_closed_is_in_the_way_of_no_file_with_its_inode() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("img"), dir.path().join("link"));
    std::fs::write(&path, [0; 4096]).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let (fd, next) = (open(&path), open(&path));
    let lock_off = || all("one", false, Lock::Off);
    let closing = claim(&fd, &lock_off(), Duration::ZERO).unwrap();
    for (name, is_free) in [(&path, false), (&link, true)] {
        std::fs::remove_file(name).unwrap();
        closing.closes();
        assert_eq!(claim(&next, &lock_off(), Duration::ZERO).is_ok(), is_free, "{name:?}");
    }
}

#[test]
fn a_read_only_disk_beside_a_writable_one_sees_other_programs_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, [0; 8192]).unwrap();
    let (a, b, c) = (open(&path), open(&path), open(&path));
    let now = Duration::ZERO;
    let _reads = claim(&a, &wanted("reads", 0..4096, true, Lock::On), now).unwrap();
    // Another program reads, and does not want anybody to write.
    let reader = foreign(&path, true, false, false);
    let error = claim(&b, &wanted("writes", 4096..8192, false, Lock::On), now).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    // The refused disk left no lock, and the first disk still has its own.
    drop(b);
    let read_write = Locks::of(false, false);
    assert!(read_write.obstacle(&c).unwrap().is_some());
    drop(reader);
    let b = open(&path);
    let _writes = claim(&b, &wanted("writes", 4096..8192, false, Lock::On), now).unwrap();
    assert!(Locks::of(true, false).obstacle(&c).unwrap().is_some(), "a disk writes");
}

#[test]
fn who_may_be_beside_whom() {
    let dir = tempfile::tempdir().unwrap();
    // Theirs: read only, shared. Ours: read only, lock.
    for (theirs, ours, both) in [
        ((false, false), (false, Lock::On), false),
        ((false, false), (true, Lock::On), false),
        ((true, false), (false, Lock::On), false),
        ((true, false), (true, Lock::On), true),
        ((true, true), (true, Lock::On), true),
        ((true, true), (false, Lock::On), true),
        ((false, true), (false, Lock::On), false),
        ((false, true), (true, Lock::On), false),
        ((false, true), (false, Lock::Shared), true),
        ((false, true), (true, Lock::Shared), true),
        ((false, false), (true, Lock::Shared), true),
        ((false, false), (false, Lock::Off), true),
    ] {
        for agent in [false, true] {
            // A file of its own: a child of another test has locks of this process until it runs its program.
            let path = dir.path().join(format!("{theirs:?} {ours:?} {agent}"));
            std::fs::write(&path, [0; 4096]).unwrap();
            let them = foreign(&path, theirs.0, theirs.1, agent);
            let fd = open(&path);
            let outcome = claim(&fd, &all("vm1", ours.0, ours.1), Duration::ZERO);
            assert_eq!(outcome.is_ok(), both, "{theirs:?} {ours:?} {agent} {outcome:?}");
            drop((them, outcome));
        }
    }
}

#[test]
fn what_a_killed_agent_left_under_way_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, [0; 4096]).unwrap();
    let left = foreign(&path, false, false, true);
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(left);
        Instant::now()
    });
    let fd = open(&path);
    claim(&fd, &all("vm1", false, Lock::On), Duration::from_secs(60)).unwrap();
    assert!(Instant::now() >= freed.join().unwrap());
}

#[test]
fn a_killed_agent_that_shared_a_disk_is_waited_for_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, [0; 4096]).unwrap();
    let patience = Duration::from_secs(60);
    let at_once = || {
        let (fd, began) = (open(&path), Instant::now());
        let ours = claim(&fd, &all("vm1", false, Lock::Shared), patience).unwrap();
        assert!(began.elapsed() < patience / 2);
        assert_eq!(ours.descriptors(), 2);
    };
    let others = [2, 7, u64::from(u32::MAX), 0].map(|host| {
        let theirs = foreign(&path, false, true, true);
        let lives = locks::share(&theirs, host).unwrap();
        (theirs, lives)
    });
    at_once();
    // One is killed, and the kernel has its IO: of this host while others live, and of another one.
    for host in [1, 3] {
        let left = foreign(&path, false, true, true);
        drop(locks::share(&left, host).unwrap());
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(left);
            Instant::now()
        });
        at_once();
        assert!(Instant::now() >= freed.join().unwrap());
    }
    drop(others);
}

#[test]
fn a_file_whose_locks_hang_keeps_nobody_from_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let [hangs, other] = ["hangs", "other"].map(|name| dir.path().join(name));
    [&hangs, &other].iter().for_each(|path| std::fs::write(path, [0; 4096]).unwrap());
    let turn = Claims::lock().turn(&Stretch::of_path(&hangs, None));
    let taken = turn.lock().unwrap();
    let fd = open(&hangs);
    let waits = std::thread::spawn(move || {
        claim(&fd, &all("hangs", false, Lock::On), Duration::ZERO).map(drop)
    });
    claim(&open(&other), &all("other", false, Lock::On), Duration::ZERO).unwrap();
    assert!(!waits.is_finished());
    drop(taken);
    waits.join().unwrap().unwrap();
}

#[test]
fn disks_of_one_file_must_agree_about_locks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, [0; 8192]).unwrap();
    let (a, b) = (open(&path), open(&path));
    let _one = claim(&a, &wanted("one", 0..4096, false, Lock::On), Duration::ZERO).unwrap();
    let two = claim(&b, &wanted("two", 4096..8192, false, Lock::Shared), Duration::ZERO);
    let error = two.unwrap_err().to_string();
    assert!(error.contains("give both the same `lock`"), "{error}");
}

#[test]
fn the_file_behind_a_loop_device_is_locked_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::new(&path, &[]) else { return };
    let of_device =
        |range| Wanted { path: device.path(), ..wanted("loop", range, false, Lock::On) };
    let (a, b) = (open(device.path()), open(&path));
    let now = Duration::ZERO;
    let served = claim(&a, &of_device(0..4096), now).unwrap();
    assert!(Locks::of(true, false).obstacle(&b).unwrap().is_some(), "it is open for writing");
    // A disk of our own on another part of the file is not in its way.
    let other = claim(&b, &wanted("file", 8192..12288, false, Lock::On), now).unwrap();
    drop((served, a, other, b));
    let (a, them) = (open(device.path()), foreign(&path, false, false, false));
    let error = claim(&a, &of_device(0..4096), now).unwrap_err();
    assert!(matches!(&error, OpenError::InUse { path: place, .. } if *place == path), "{error}");
    drop(them);
    claim(&a, &of_device(0..4096), now).unwrap();
}

#[test]
fn each_device_and_the_file_behind_a_loop_device_on_a_loop_device_are_locked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let Some(lower) = LoopDevice::new(&path, &[]) else { return };
    let Some(upper) = LoopDevice::new(lower.path(), &[]) else { return };
    let of_upper = Wanted { path: upper.path(), ..all("loop", false, Lock::On) };
    for below in [lower.path(), &path] {
        let (a, b) = (open(upper.path()), open(below));
        let served = claim(&a, &of_upper, Duration::ZERO).unwrap();
        assert!(Locks::of(true, false).obstacle(&b).unwrap().is_some(), "{}", below.display());
        drop((served, a, b));
        let (a, them) = (open(upper.path()), foreign(below, false, false, false));
        let error = claim(&a, &of_upper, Duration::ZERO).unwrap_err();
        assert!(matches!(&error, OpenError::InUse { path, .. } if path == below), "{error}");
        drop((them, a));
    }
}

#[test]
fn a_file_that_has_the_name_of_the_one_behind_a_loop_device_is_let_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::new(&path, &[]) else { return };
    std::fs::remove_file(&path).unwrap();
    // As sysfs calls what was deleted.
    let another = dir.path().join("img (deleted)");
    std::fs::write(&another, vec![0; 1 << 20]).unwrap();
    let a = open(device.path());
    let of_device = Wanted { path: device.path(), ..all("loop", false, Lock::On) };
    let _served = claim(&a, &of_device, Duration::ZERO).unwrap();
    assert_eq!(Locks::of(true, false).obstacle(open(&another)).unwrap(), None);
}
