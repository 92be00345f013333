//! Tests of the harness that runs guests in QEMU.

use std::time::{Duration, Instant};

use crate::guest::{Bus, Guest, GuestError, Source};

use crate::{SOON, guest, turn};

#[test]
fn a_guest_does_what_it_is_told_whatever_its_kernel_says_meanwhile() {
    let Some(_turn) = turn() else { return };
    let disk = Source::Null { size: 1 << 30, latency: 5_000_000 };
    let config = guest("one").disk("array", Bus::Scsi(0), disk.clone());
    let config = config.disk("fast", Bus::Virtio, disk);
    let mut guest = Guest::boot(config).unwrap();
    assert!(guest.ok("parda --version", SOON).unwrap().starts_with("parda "));

    // Status, output and errors, and much of it while the kernel talks.
    let output = guest.run("echo out; echo err >&2; exit 7", SOON).unwrap();
    let said = (output.status, output.text(), output.errors());
    assert_eq!(said, (7, "out".to_owned(), "err".to_owned()));
    let noise = "for i in $(seq 100); do echo \"<0>noise $i\" >/dev/kmsg; done";
    let noise = guest.begin(noise).unwrap();
    let many = guest.run("seq 20000", SOON).unwrap().stdout;
    assert!(many.ends_with(b"\n19999\n20000\n") && many.len() == 108_894, "{}", many.len());
    assert!(guest.look(&noise, SOON).unwrap().unwrap().success());
    let console = std::fs::read_to_string(guest.console()).unwrap();
    assert!(console.contains("noise 100"), "{console}");

    // A file in and out, byte for byte.
    let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
    guest.put("/run/a file", &bytes).unwrap();
    assert_eq!(guest.get("/run/a file").unwrap(), bytes);
    let error = guest.ok("cat /nowhere", SOON).unwrap_err();
    assert!(error.to_string().contains("can't open '/nowhere'"), "{error}");

    // What takes too long is killed, with what it began.
    let began = Instant::now();
    let slow = guest.run("sleep 1000 & sleep 1000", Duration::from_millis(300));
    assert!(matches!(slow, Err(GuestError::Late { .. })), "{slow:?}");
    assert!(began.elapsed() < SOON);
    assert!(!guest.run("pidof sleep", SOON).unwrap().success());

    // Its disks are there, by name.
    assert_eq!(guest.device("array").unwrap(), "/dev/sda");
    assert!(guest.device("fast").unwrap().starts_with("/dev/vd"));
    let depth = "echo 5 >/sys/block/sda/device/queue_depth; cat /sys/block/sda/device/queue_depth";
    assert_eq!(guest.ok(depth, SOON).unwrap(), "5");

    // A plug that is pulled, and a kernel that panics.
    guest.restart().unwrap();
    assert_ne!(guest.ok("cat /sys/block/sda/device/queue_depth", SOON).unwrap(), "5");
    let panic = guest.run("echo c >/proc/sysrq-trigger", SOON);
    let error = panic.unwrap_err().to_string();
    assert!(error.starts_with("guest one is gone. Its console last said:"), "{error}");
    let console = std::fs::read_to_string(guest.console()).unwrap();
    assert!(console.contains("Kernel panic - not syncing: sysrq triggered crash"), "{console}");
    assert!(!guest.runs());
}
