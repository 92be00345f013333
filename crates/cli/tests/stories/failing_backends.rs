//! Storage that errs, fills up or disappears.

use std::thread::sleep;
use std::time::Duration;

use parda_nbd::Errno;

use crate::clients::qemu_nbd;
use crate::island::Island;
use crate::raw::{Client, read, write};
use crate::stage::{Stage, config, until, uri};

const OFF: &str = "mode = \"off\"";

#[test]
fn an_nbd_server_that_comes_back_was_only_slow() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    stage.sparse("other", 32 << 20);
    let mut qemu = qemu_nbd(&stage);
    let disks = [("far", "nbd+unix:///?socket=qemu"), ("near", "other")];
    let agent = stage.agent("host", &config("host", OFF, &disks));
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
            parda_nbd::Op::Trim {
                extent: parda_nbd::Extent { offset: 0, len: 4 << 20 },
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
