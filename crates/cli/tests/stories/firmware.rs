//! Firmware that boots from a disk by vhost-user: OVMF, which has a file read by one request, however long it is.

use std::path::Path;

use crate::stage::{Stage, until};
use crate::vhost_user::{Qemu, config};

/// The firmware, of the Debian package `ovmf`.
const OVMF: &str = "/usr/share/OVMF/OVMF_CODE.fd";

const SECTOR: usize = 512;
const CLUSTER: usize = 16 * SECTOR;
const ROOT: usize = 512 * 32;

/// A file as long as a unified kernel image is, with nothing in it.
const FILE: usize = 64 << 20;

/// An entry of a directory: name, attributes, first cluster, length.
fn entry(name: &str, attributes: u8, cluster: u16, len: usize) -> Vec<u8> {
    let mut entry = format!("{name:11}").into_bytes();
    entry.push(attributes);
    entry.resize(26, 0);
    entry.extend(cluster.to_le_bytes());
    entry.extend((len as u32).to_le_bytes());
    entry
}

/// A FAT16 file system with `EFI/BOOT/BOOTX64.EFI`, in one piece.
fn file_system() -> Vec<u8> {
    let clusters = FILE / CLUSTER + 16;
    let fat_sectors = ((clusters + 2) * 2).div_ceil(SECTOR);
    let all = SECTOR * (1 + fat_sectors) + ROOT + clusters * CLUSTER;
    let mut boot = b"\xeb\x3c\x90PARDA   ".to_vec();
    boot.extend((SECTOR as u16).to_le_bytes());
    boot.push((CLUSTER / SECTOR) as u8);
    // One reserved sector, one FAT.
    boot.extend([1, 0, 1]);
    boot.extend(((ROOT / 32) as u16).to_le_bytes());
    boot.extend([0, 0, 0xf8]);
    boot.extend((fat_sectors as u16).to_le_bytes());
    boot.extend([63, 0, 255, 0, 0, 0, 0, 0]);
    boot.extend(((all / SECTOR) as u32).to_le_bytes());
    boot.extend([0x80, 0, 0x29, 1, 0, 0, 0]);
    boot.extend(b"PARDA      FAT16   ");
    boot.resize(SECTOR - 2, 0);
    boot.extend([0x55, 0xaa]);

    // Two directories, each of a cluster, then the file.
    let mut fat: Vec<u16> = vec![0xfff8, 0xffff, 0xffff, 0xffff];
    fat.extend(5..5 + (FILE / CLUSTER) as u16 - 1);
    fat.push(0xffff);
    let mut disk = boot;
    disk.extend(fat.into_iter().flat_map(u16::to_le_bytes));
    disk.resize(SECTOR * (1 + fat_sectors), 0);
    let directories = [
        (ROOT, vec![entry("EFI", 0x10, 2, 0)]),
        (CLUSTER, vec![entry(".", 0x10, 2, 0), entry("..", 0x10, 0, 0), entry("BOOT", 0x10, 3, 0)]),
        (
            CLUSTER,
            vec![
                entry(".", 0x10, 3, 0),
                entry("..", 0x10, 2, 0),
                entry("BOOTX64 EFI", 0x20, 4, FILE),
            ],
        ),
    ];
    for (len, entries) in directories {
        let end = disk.len() + len;
        disk.extend(entries.concat());
        disk.resize(end, 0);
    }
    disk.resize(all, 0);
    disk
}

#[test]
fn firmware_reads_a_file_of_64_mib_by_one_request() {
    if !Path::new(OVMF).exists() {
        eprintln!("SKIPPED: {OVMF} is missing (package ovmf)");
        return;
    }
    let stage = Stage::new();
    stage.write("disk", file_system());
    let agent = stage.agent("h", &config("auto"));
    let flash = format!("-drive if=pflash,format=raw,readonly=on,file={OVMF}");
    let mut qemu = Qemu::start(&stage, "512M", &flash);
    qemu.ask("cont", serde_json::json!({}));
    until("the firmware has read the file", || {
        let disk = &agent.volume().disks[0];
        assert_eq!(disk.errors, 0, "after {} bytes", disk.reads.bytes);
        disk.reads.bytes >= FILE as u64
    });
}
