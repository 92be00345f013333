//! Holes: told by BLOCK_STATUS and by reads, on every kind of backend.

use crate::common;

use common::{Client, at, config, disk, file, file_as, name, read, spawn, write};
use parda_address::{Address, Uri};
use parda_block::{BackendConfig, Direct, DiskRegion, Lock, Volume};
use parda_control::Bytes;
use parda_disk::{Errno, Op};
use parda_nbd::Framing;
use parda_nbd::client::{Expected, Reply};

const BLOCK: u64 = 4096;
/// Blocks of a disk.
const BLOCKS: u64 = 256;

fn status(offset: u64, len: u32) -> Op {
    Op::BlockStatus { extent: at(offset, len), one: false }
}

fn zeroes(offset: u64, len: u32, fast: bool) -> Op {
    Op::WriteZeroes { extent: at(offset, len), fua: false, no_hole: false, fast }
}

/// The whole map of a disk in blocks, and whether each extent is a hole. Asks as a client does
/// that takes what it gets and asks again.
fn map(client: &mut Client, blocks: u64) -> Vec<(u64, bool)> {
    let (mut map, mut offset) = (Vec::<(u64, bool)>::new(), 0);
    while offset < blocks * BLOCK {
        let rest = (blocks * BLOCK - offset) as u32;
        let reply = client.call(status(offset, rest), &[]).unwrap();
        assert!(!reply.is_empty());
        for extent in reply.chunks_exact(8) {
            let word = |at: usize| u32::from_be_bytes(extent[at..at + 4].try_into().unwrap());
            let (len, hole) = (u64::from(word(0)), word(4) == 3);
            assert!(hole || word(4) == 0);
            assert!(len > 0 && len % BLOCK == 0, "{len}");
            offset += len;
            match map.last_mut() {
                Some(last) if last.1 == hole => last.0 += len / BLOCK,
                _ => map.push((len / BLOCK, hole)),
            }
        }
    }
    assert_eq!(offset, blocks * BLOCK);
    map
}

/// Every kind of backend that tells of holes, each with a disk `d` that has none but holes.
fn backends(test: impl Fn(&mut Client)) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let create = |name: &str| {
        std::fs::File::create(path(name)).unwrap().set_len(BLOCKS * BLOCK).unwrap();
        path(name)
    };
    let sized = BackendConfig::Memory { size: Bytes(BLOCKS * BLOCK) };
    let uncached = file_as(&create("direct"), Direct::Auto, Lock::On);
    let cached = file_as(&create("cached"), Direct::Off, Lock::On);
    let array = path("array");
    let nbd = |socket: &std::path::Path| BackendConfig::Nbd {
        uri: Uri { address: Address::Unix(socket.into()), export: name("behind"), tls: None },
        options: parda_block::NbdOptions::default(),
    };
    let behind = spawn(vec![disk("behind", file(&create("behind")), &array)]);
    for (index, backend) in [sized, uncached, cached, nbd(&array)].into_iter().enumerate() {
        let socket = path(&format!("s{index}"));
        let volume = spawn(vec![disk("d", backend, &socket)]);
        test(&mut Client::connect(&socket, "d"));
        drop(volume);
    }
    drop(behind);
}

#[test]
fn writes_trims_and_zeroes_show_in_the_map() {
    backends(|client| {
        assert_eq!(map(client, BLOCKS), [(BLOCKS, true)]);
        let data = vec![7; 8 * BLOCK as usize];
        client.call(write(16 * BLOCK, data.len() as u32), &data).unwrap();
        client.call(write(64 * BLOCK, data.len() as u32), &data).unwrap();
        let holes = [(16, true), (8, false), (40, true), (8, false), (BLOCKS - 72, true)];
        assert_eq!(map(client, BLOCKS), holes);
        let trim = Op::Trim { extent: at(18 * BLOCK, 2 * BLOCK as u32), fua: false };
        client.call(trim, &[]).unwrap();
        client.call(zeroes(64 * BLOCK, 8 * BLOCK as u32, true), &[]).unwrap();
        let holes = [(16, true), (2, false), (2, true), (4, false), (BLOCKS - 24, true)];
        assert_eq!(map(client, BLOCKS), holes);
        // One extent, if that is what was asked for.
        let one = Op::BlockStatus { extent: at(0, 64 * BLOCK as u32), one: true };
        let extent = [16 * BLOCK as u32, 3].map(u32::to_be_bytes).concat();
        assert_eq!(client.call(one, &[]), Ok(extent));
        assert_eq!(client.call(status(BLOCKS * BLOCK, 4096), &[]), Err(Errno::Inval));
        assert_eq!(client.call(status(0, 0), &[]), Err(Errno::Inval));
    });
}

#[test]
fn a_map_of_many_extents_comes_in_bounded_replies() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("data"), dir.path().join("s"));
    let blocks = 2400;
    let data = std::fs::File::create(&path).unwrap();
    data.set_len(blocks * BLOCK).unwrap();
    for block in (0..blocks).step_by(2) {
        std::os::unix::fs::FileExt::write_all_at(&data, &[1; 4096], block * BLOCK).unwrap();
    }
    let _volume = spawn(vec![disk("d", file(&path), &socket)]);
    let mut client = Client::connect(&socket, "d");
    let reply = client.call(status(0, (blocks * BLOCK) as u32), &[]).unwrap();
    assert!(reply.len() <= 8 * parda_disk::status::MAX_EXTENTS, "{}", reply.len());
    let map = map(&mut client, blocks);
    assert_eq!(map.len() as u64, blocks);
    assert!(map.iter().enumerate().all(|(i, extent)| *extent == (1, i % 2 == 1)));
}

#[test]
fn a_region_tells_of_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("data"), dir.path().join("s"));
    let data = std::fs::File::create(&path).unwrap();
    data.set_len(64 * BLOCK).unwrap();
    for block in [0, 9, 20, 63] {
        std::os::unix::fs::FileExt::write_all_at(&data, &[1; 4096], block * BLOCK).unwrap();
    }
    let mut part = disk("d", file(&path), &socket);
    part.region = Some(DiskRegion { offset: Bytes(8 * BLOCK), len: Bytes(16 * BLOCK) });
    let _volume = Volume::spawn(config(vec![part])).unwrap();
    let mut client = Client::connect(&socket, "d");
    assert_eq!(map(&mut client, 16), [(1, true), (1, false), (10, true), (1, false), (3, true)]);
}

#[test]
fn zeroes_are_read_whether_they_are_sent_or_not() {
    backends(|client| {
        let mut data = vec![0; 64 << 10];
        data[40_000] = 1;
        client.call(write(0, data.len() as u32), &data).unwrap();
        for (offset, len) in
            [(0, 65_536), (0, 4096), (32_768, 8192), (40_960, 8192), (1 << 17, 4096)]
        {
            let range = offset as usize..offset as usize + len as usize;
            let expected = data.get(range).map_or(vec![0; len as usize], <[u8]>::to_vec);
            assert_eq!(client.call(read(offset, len), &[]).unwrap(), expected, "{offset} {len}");
        }
    });
}

#[test]
fn an_error_says_where_it_happened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("data"), dir.path().join("s"));
    let data = std::fs::File::create(&path).unwrap();
    data.set_len(64 * BLOCK).unwrap();
    let cached = file_as(&path, Direct::Off, Lock::On);
    let volume = spawn(vec![disk("d", cached, &socket)]);
    let mut client = Client::connect(&socket, "d");
    // Shorter than the export, and no period has ended since.
    data.set_len(10 * BLOCK).unwrap();
    client.send(read(8 * BLOCK, 4 * BLOCK as u32), &[]);
    let mut bytes = Vec::new();
    let head = loop {
        let mut more = [0; 4096];
        let n = std::io::Read::read(&mut client.socket, &mut more).unwrap();
        bytes.extend_from_slice(&more[..n]);
        let expected = Expected::Data(at(8 * BLOCK, 4 * BLOCK as u32));
        if let Some(head) =
            parda_nbd::client::reply(&bytes, Framing::Structured, |_| Some(expected)).unwrap()
        {
            break head;
        }
    };
    match head.reply {
        Reply::Error { errno: Errno::Io, at, last: true, .. } => assert_eq!(at, Some(10 * BLOCK)),
        other => panic!("{other:?}"),
    }
    drop(volume);
}
