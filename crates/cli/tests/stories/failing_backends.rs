//! Storage that errs, fills up or disappears.

use std::thread::sleep;
use std::time::Duration;

use parda_disk::Errno;

use crate::clients::qemu_nbd;
use crate::fuse::FuseFile;
use crate::island::Island;
use crate::stage::{Stage, config, until, uri};
use parda_testkit::{Client, read, write};

const OFF: &str = "mode = \"off\"";

#[test]
fn an_nbd_server_that_comes_back_was_only_slow() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    stage.sparse("other", 32 << 20);
    let mut qemu = qemu_nbd(&stage);
    let disks = [("far", "nbd+unix:///?socket=qemu"), ("near", "other")];
    // Longer than a busy machine needs for another server.
    let hold = "[volume.disk.nbd]\nhold = \"60s\"\n[[volume.disk]]\nname = \"near\"";
    let text = config("host", OFF, &disks);
    let agent = stage.agent("host", &text.replacen("[[volume.disk]]\nname = \"near\"", hold, 1));
    let options = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--verify=crc32c"];
    let loads = ["far", "near"].map(|disk| stage.load(disk, &uri("host", disk), &options));
    let writes = |disk: usize| agent.volume().disks[disk].writes.ios;
    until("both load", || writes(0) > 100 && writes(1) > 100);
    for _ in 0..2 {
        qemu.kill();
        agent.says("lost the NBD server");
        let before = writes(1);
        until("the other disk goes on", || writes(1) > before + 100);
        sleep(Duration::from_millis(300));
        let before = writes(0);
        qemu = qemu_nbd(&stage);
        until("the disk goes on", || writes(0) > before + 100);
    }
    for load in loads {
        load.finish();
    }
    assert_eq!(agent.volume().disks[0].errors, 0);
    agent.stop();
}

#[test]
fn a_full_file_system_costs_the_request_that_met_it() {
    let stage = Stage::new();
    let island = Island::new(&stage, "8m");
    std::fs::File::create(island.path("thin")).unwrap().set_len(64 << 20).unwrap();
    stage.sparse("other", 32 << 20);
    let disks = [("thin", "island/thin"), ("other", "other")];
    let agent = stage.agent_within(&island.enter(), "host", &config("host", OFF, &disks));
    let options = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--verify=crc32c"];
    let load = stage.load("fio", &uri("host", "other"), &options);
    let mut client = Client::connect(&stage.path("host"), "thin");
    let mib = vec![7; 1 << 20];
    let outcomes: Vec<_> = (0..12).map(|i| client.call(write(i << 20, 1 << 20), &mib)).collect();
    assert_eq!(outcomes[0], Ok(vec![]));
    assert_eq!(outcomes[11], Err(Errno::NoSpc), "{outcomes:?}");
    assert_eq!(client.call(read(0, 1 << 20), &[]), Ok(mib.clone()), "what was written is there");
    let before = agent.volume().disks[1].writes.ios;
    until("the other disk goes on", || agent.volume().disks[1].writes.ios > before + 100);
    // Room again: it works again.
    client
        .call(
            parda_disk::Op::Trim {
                extent: parda_disk::Extent { offset: 0, len: 4 << 20 },
                fua: false,
            },
            &[],
        )
        .unwrap();
    assert_eq!(client.call(write(12 << 20, 1 << 20), &mib), Ok(vec![]));
    assert!(agent.volume().disks[0].errors > 0);
    assert_eq!(agent.volume().disks[1].errors, 0);
    load.finish();
    agent.stop();
}

/// A file whose syncs fail while the file `failing` is there.
fn unsafe_file(stage: &Stage) -> FuseFile {
    stage.sparse("data", 16 << 20);
    let (data, flag) = (stage.path("data"), stage.path("failing"));
    let (data, flag) = (data.display(), flag.display());
    let read =
        format!("pread=dd if={data} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none");
    let write = format!("pwrite=dd of={data} oflag=seek_bytes conv=notrunc seek=$4 status=none");
    let flush = format!("flush=if [ -e {flag} ]; then echo EIO the data is lost >&2; exit 1; fi");
    let able = ["zero=true", "can_write=true", "can_flush=true"];
    let plugin = [&["eval", "get_size=echo 16777216", &read, &write, &flush], &able[..]].concat();
    FuseFile::new(stage, "img", &plugin)
}

#[test]
fn a_failed_sync_is_told_to_every_connection() {
    let extent = parda_disk::Extent { offset: 4096, len: 4096 };
    let durable = [
        parda_disk::Op::Flush,
        parda_disk::Op::Write { extent, fua: true },
        parda_disk::Op::WriteZeroes { extent, fua: true, no_hole: true, fast: false },
    ];
    let stage = Stage::new();
    let _file = unsafe_file(&stage);
    for direct in ["on", "off"] {
        let config = config("host", OFF, &[("vm1", "img")]) + &format!("direct = \"{direct}\"\n");
        let agent = stage.agent("host", &config);
        for op in durable {
            let payload = vec![1; if let parda_disk::Op::Write { .. } = op { 4096 } else { 0 }];
            let connect = || Client::connect(&stage.path("host"), "vm1");
            let [mut one, mut two, mut three] = [connect(), connect(), connect()];
            for client in [&mut one, &mut two, &mut three] {
                assert_eq!(client.call(write(0, 4096), &[7; 4096]), Ok(vec![]));
            }
            stage.write("failing", "");
            assert_eq!(one.call(op, &payload), Err(Errno::Io), "{op:?}");
            std::fs::remove_file(stage.path("failing")).unwrap();
            let told = |client: &mut Client| client.call(parda_disk::Op::Flush, &[]);
            assert_eq!(told(&mut two), Err(Errno::Io), "direct {direct}, {op:?}");
            assert_eq!(told(&mut two), Ok(vec![]), "direct {direct}, {op:?}: once");
            drop(three);
            // One that was told of nothing but its own request is told by its next flush.
            let own = if op == parda_disk::Op::Flush { Ok(vec![]) } else { Err(Errno::Io) };
            assert_eq!(told(&mut one), own, "direct {direct}, {op:?}");
            let heir_is_told = || told(&mut connect()) == Err(Errno::Io);
            until("the one that comes in place of the third is told", heir_is_told);
            assert_eq!(told(&mut connect()), Ok(vec![]), "all were told");
        }
        agent.stop();
    }
}
