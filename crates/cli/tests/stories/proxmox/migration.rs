//! Guests that move from one node to another while they write.

use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use parda_testkit::Monitor;
use rustix::process::Signal;
use serde_json::json;

use super::{DISK, Nodes, VOLUME, disk};
use crate::stage::{Agent, Process, until, uri, wait_for};

/// A guest without an operating system. In its disk's sector 8 it counts up: it reads the count, compares it with the one in its memory,
/// adds 1 and writes it. At a difference or an error it writes all ones into sector 9, and stops.
///
/// ```text
/// start: xorw %ax,%ax; movw %ax,%ds; movw %ax,%ss; movw $0x7c00,%sp; movb %dl,%bl; xorl %ebp,%ebp
/// again: movb $0x42,%ah; call io; cmpl %ebp,0x8000; jne fail
///        incl %ebp; movl %ebp,0x8000; movb $0x43,%ah; call io; jmp again
/// io:    movb $0,%al; movw $dap,%si; movb %bl,%dl; pushl %ebp; pushw %bx; int $0x13; popw %bx; popl %ebp; jc fail; ret
/// fail:  movb $9,dap+8; movb $0x43,%ah; movb $0,%al; movw $dap,%si; movb %bl,%dl; movl $0xffffffff,0x8000; int $0x13
/// stop:  hlt; jmp stop
/// dap:   .byte 16,0; .word 1; .word 0x8000,0; .quad 8
/// ```
const COUNTER: [u8; 102] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0x88, 0xd3, 0x66, 0x31, 0xed, 0xb4, 0x42,
    0xe8, 0x15, 0x00, 0x66, 0x39, 0x2e, 0x00, 0x80, 0x75, 0x20, 0x66, 0x45, 0x66, 0x89, 0x2e, 0x00,
    0x80, 0xb4, 0x43, 0xe8, 0x02, 0x00, 0xeb, 0xe6, 0xb0, 0x00, 0xbe, 0x56, 0x7c, 0x88, 0xda, 0x66,
    0x55, 0x53, 0xcd, 0x13, 0x5b, 0x66, 0x5d, 0x72, 0x01, 0xc3, 0xc6, 0x06, 0x5e, 0x7c, 0x09, 0xb4,
    0x43, 0xb0, 0x00, 0xbe, 0x56, 0x7c, 0x88, 0xda, 0x66, 0xc7, 0x06, 0x00, 0x80, 0xff, 0xff, 0xff,
    0xff, 0xcd, 0x13, 0xf4, 0xeb, 0xfd, 0x10, 0x00, 0x01, 0x00, 0x00, 0x80, 0x00, 0x00, 0x08, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// Starts QEMU on a node with the disk that the plugin names there.
fn guest(nodes: &Nodes, node: &str, more: &[&str]) -> (Process, Monitor) {
    let mut file = nodes.ok(node, &["blockdev", VOLUME]);
    file["cache"] = json!({ "direct": true });
    let drive =
        json!({ "driver": "raw", "node-name": "drive", "cache": { "direct": true }, "file": file });
    let (drive, qmp) = (drive.to_string(), format!("unix:{node}.qmp,server=on,wait=off"));
    let line = [
        "qemu-system-x86_64",
        "-machine",
        "pc,accel=tcg",
        "-m",
        "32",
        "-nodefaults",
        "-display",
        "none",
        "-blockdev",
        &drive,
        "-device",
        "virtio-blk-pci,drive=drive,bootindex=0",
        "-qmp",
        &qmp,
    ];
    let mut qemu = nodes.stage.start(&format!("qemu-{node}"), &[&line, more].concat());
    let socket = nodes.stage.path(&format!("{node}.qmp"));
    let stream = wait_for("QEMU answers", || {
        assert!(qemu.ended().is_none(), "QEMU on {node}: {}", qemu.log());
        UnixStream::connect(&socket).ok()
    });
    (qemu, Monitor::new(stream).unwrap())
}

/// Makes the disk of the guest that counts, and its VM on node a.
fn counter(nodes: &Nodes) {
    nodes.ok("a", &["alloc", "san", "100", "", "4096"]);
    let image = nodes.stage.path(IMAGE);
    let mut boot = COUNTER.to_vec();
    boot.resize(510, 0);
    boot.extend([0x55, 0xaa]);
    std::fs::write(&image, boot).unwrap();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(4 << 20).unwrap();
    nodes.vm("a", "tags: parda-shares-2000\nscsi0: san:100/vm-100-disk-0.raw\n");
    nodes.ok("a", &["activate", VOLUME]);
}

/// The image, whatever the agents say.
const IMAGE: &str = "store/images/100/vm-100-disk-0.raw";

fn sector(nodes: &Nodes, at: u64) -> u32 {
    let mut bytes = [0; 4];
    let image = std::fs::File::open(nodes.stage.path(IMAGE)).unwrap();
    image.read_exact_at(&mut bytes, at * 512).unwrap();
    u32::from_le_bytes(bytes)
}

/// The guest goes on for so many counts.
fn counts(nodes: &Nodes, more: u32) {
    let to = sector(nodes, 8) + more;
    until(&format!("it counts to {to}"), || {
        let now = sector(nodes, 8);
        assert_eq!(sector(nodes, 9), 0, "the guest read what it did not write, at {now}");
        now >= to
    });
}

/// The guest has moved, and its configuration with it.
fn moved(nodes: &Nodes, source: &mut Monitor, target: &mut Monitor) {
    until("it has moved", || {
        let status = source.ask("query-migrate", json!({})).unwrap()["status"].clone();
        assert!(status != "failed" && status != "cancelled", "{status}");
        status == "completed"
    });
    until("it runs", || target.ask("query-status", json!({})).unwrap()["status"] == "running");
    let conf = |node: &str| nodes.stage.path(&format!("pve/nodes/{node}/qemu-server/100.conf"));
    std::fs::rename(conf("a"), conf("b")).unwrap();
    source.ask("quit", json!({})).unwrap();
}

#[test]
fn a_guest_of_proxmox_moves_while_it_writes_and_loses_nothing() {
    let nodes = Nodes::new();
    let (a, b) = (nodes.agent("a"), nodes.agent("b"));
    counter(&nodes);
    let (mut left, mut source) = guest(&nodes, "a", &[]);
    counts(&nodes, 100);

    // The configuration is the old node's until the VM has moved. Both agents have the image open.
    nodes.ok("b", &["activate", VOLUME]);
    assert_eq!(disk(&b).unwrap().shares, 2000);
    let (_arrived, mut target) = guest(&nodes, "b", &["-incoming", "unix:moves"]);
    assert_eq!((disk(&a).unwrap().clients, disk(&b).unwrap().clients), (1, 1));
    source.ask("migrate", json!({ "uri": "unix:moves" })).unwrap();
    moved(&nodes, &mut source, &mut target);
    left.wait();
    nodes.ok("a", &["deactivate", VOLUME]);
    assert!(disk(&a).is_none());
    counts(&nodes, 100);
    assert!(disk(&b).unwrap().writes.ios > 0);

    // QEMU connects again to an agent that is new.
    b.stop();
    let b = nodes.stage.restart(&[], "b");
    counts(&nodes, 100);
    nodes.fails("b", &["deactivate", VOLUME], "is served on");
    // The guest does look.
    until("it notices what it did not write", || {
        nodes.stage.ok(&["qemu-io", "-f", "raw", "-c", "write 4k 512", &uri("b", DISK)]);
        sector(&nodes, 9) == u32::MAX
    });
    target.ask("quit", json!({})).unwrap();
    nodes.ok("b", &["deactivate", VOLUME]);
    a.stop();
    b.stop();
}

#[test]
fn a_migration_that_is_cut_leaves_the_guest_where_it_was_and_nothing_where_it_went() {
    let nodes = Nodes::new();
    let (a, mut b) = (nodes.agent("a"), nodes.agent("b"));
    counter(&nodes);
    let (mut left, mut source) = guest(&nodes, "a", &[]);
    counts(&nodes, 100);
    let mut cut = |how: &str, b: Agent| {
        nodes.ok("b", &["activate", VOLUME]);
        let (mut incoming, _target) = guest(&nodes, "b", &["-incoming", "unix:moves"]);
        // So slowly that it is cut on its way.
        source.ask("migrate-set-parameters", json!({ "max-bandwidth": 8192 })).unwrap();
        source.ask("migrate", json!({ "uri": "unix:moves" })).unwrap();
        until("it is on its way", || {
            let answer = source.ask("query-migrate", json!({})).unwrap();
            answer["status"] == "active" && answer["ram"]["transferred"].as_u64() > Some(0)
        });
        counts(&nodes, 20);
        assert_eq!((disk(&a).unwrap().clients, disk(&b).unwrap().clients), (1, 1));
        let b = match how {
            "cancelled" => {
                source.ask("migrate_cancel", json!({})).unwrap();
                b
            }
            "killed" => {
                incoming.signal(Signal::KILL);
                b
            }
            // The whole node: what was in /run is gone.
            "off" => {
                incoming.signal(Signal::KILL);
                b.process.kill();
                std::fs::remove_file(nodes.stage.path("b.state")).unwrap();
                nodes.stage.restart(&[], "b")
            }
            how => panic!("{how}"),
        };
        incoming.wait();
        until("the source knows", || {
            let status = source.ask("query-migrate", json!({})).unwrap()["status"].clone();
            assert!(status != "completed", "{how}");
            status == "cancelled" || status == "failed"
        });
        // The guest goes on, with what it had. So say both agents.
        counts(&nodes, 100);
        assert_eq!(source.ask("query-status", json!({})).unwrap()["status"], "running");
        let disk_a = disk(&a).unwrap();
        assert!(disk_a.clients == 1 && disk_a.shares == 2000 && !disk_a.drain, "{disk_a:?}");
        until("its client is gone", || disk(&b).is_none_or(|disk| disk.clients == 0));
        b
    };

    // Proxmox cancels it, and takes back what it did on the other node.
    b = cut("cancelled", b);
    nodes.ok("b", &["deactivate", VOLUME]);
    assert!(disk(&b).is_none());
    // It cannot: the other node's own look at its storages does, but not at once, as QEMU may be about to connect.
    b = cut("killed", b);
    nodes.ok("b", &["status", "san"]);
    assert!(disk(&b).is_some());
    nodes.ok("b", &["looks", "san", "1"]);
    assert!(disk(&b).is_none());
    b = cut("off", b);
    assert!(disk(&b).is_none());
    assert!(b.volume().disks.is_empty());
    // Disks with clients, and those of VMs that are here, stay whatever the time.
    nodes.ok("a", &["looks", "san", "1"]);
    assert_eq!(disk(&a).unwrap().clients, 1);

    // The next one works.
    nodes.ok("b", &["activate", VOLUME]);
    let (_arrived, mut target) = guest(&nodes, "b", &["-incoming", "unix:moves"]);
    nodes.ok("b", &["looks", "san", "1"]);
    source.ask("migrate-set-parameters", json!({ "max-bandwidth": 1u64 << 30 })).unwrap();
    source.ask("migrate", json!({ "uri": "unix:moves" })).unwrap();
    moved(&nodes, &mut source, &mut target);
    left.wait();
    nodes.ok("a", &["deactivate", VOLUME]);
    assert!(disk(&a).is_none());
    assert!(disk(&b).is_some_and(|disk| disk.clients == 1 && disk.shares == 2000));
    counts(&nodes, 100);
    target.ask("quit", json!({})).unwrap();
    nodes.ok("b", &["deactivate", VOLUME]);
    a.stop();
    b.stop();
}
