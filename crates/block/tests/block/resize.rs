//! Backends that grow and shrink while they are served.

use crate::common;

use std::time::{Duration, Instant};

use common::{Client, disk, file, read, spawn, write};
use parda_block::{BackendConfig, Direct, DiskRegion, Handle};
use parda_control::{Bytes, Measurement};
use parda_disk::Errno;

const MIB: u64 = 1 << 20;

/// Ends periods, at whose end the volume looks at its disks, until clients see a disk of that size.
fn until_size(volume: &Handle, socket: &std::path::Path, export: &str, size: u64) -> Client {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        volume.measure(Measurement::default()).unwrap();
        let client = Client::connect(socket, export);
        if client.agreed.size == size {
            return client;
        }
        assert!(Instant::now() < until, "it still has {} bytes", client.agreed.size);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn new_clients_see_what_a_file_has_become() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (|name: &str| dir.path().join(name), dir.path().join("s"));
    let names = ["whole", "region", "odd"];
    let resize = |size: u64| {
        for name in names {
            let options = std::fs::File::options().create(true).append(true).open(path(name));
            options.unwrap().set_len(size).unwrap();
        }
    };
    resize(4 * MIB);
    let mut region = disk("region", file(&path("region")), &socket);
    region.region = Some(DiskRegion { offset: Bytes(MIB), len: Bytes(2 * MIB) });
    let cached = BackendConfig::File {
        path: path("odd"),
        direct: Direct::Off,
        lock: parda_block::Lock::On,
        raw: false,
    };
    let odd = disk("odd", cached, &socket);
    let volume = spawn(vec![disk("whole", file(&path("whole")), &socket), region, odd]);
    let mut before = Client::connect(&socket, "whole");

    resize(6 * MIB);
    let mut grown = until_size(&volume, &socket, "whole", 6 * MIB);
    grown.call(write(6 * MIB - 4096, 4096), &[7; 4096]).unwrap();
    assert_eq!(grown.call(read(6 * MIB - 4096, 4096), &[]), Ok(vec![7; 4096]));
    assert_eq!(grown.call(read(6 * MIB, 4096), &[]), Err(Errno::Inval));
    before.call(read(4 * MIB - 4096, 4096), &[]).unwrap();
    assert_eq!(Client::connect(&socket, "region").agreed.size, 2 * MIB);

    // Down to within the region, and not to a whole block.
    resize(2 * MIB + 1000);
    until_size(&volume, &socket, "odd", 2 * MIB + 1000);
    let mut client = Client::connect(&socket, "whole");
    let whole = client.agreed;
    // Around the page cache too.
    client.call(read(whole.size - 77, 77), &[]).unwrap();
    assert_eq!(whole.size % u64::from(whole.blocks.min()), 0);
    assert!((2 * MIB..=2 * MIB + 1000).contains(&whole.size));
    assert!((MIB..=MIB + 1000).contains(&Client::connect(&socket, "region").agreed.size));
    // A connection of before is refused what is gone, and goes on with what is there.
    assert_eq!(before.call(write(3 * MIB, 4096), &[1; 4096]), Err(Errno::NoSpc));
    assert_eq!(before.call(read(3 * MIB, 4096), &[]), Err(Errno::Inval));
    before.call(write(0, 4096), &[1; 4096]).unwrap();
    assert_eq!(std::fs::metadata(path("whole")).unwrap().len(), 2 * MIB + 1000);
}
