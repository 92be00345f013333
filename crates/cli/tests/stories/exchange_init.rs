//! Making an exchange: once, on purpose, by whoever comes first, and whole or not at all.

use std::fs;

use crate::stage::{PARDA, Stage, config, until};

const SLOTS: u64 = 64;
const WHOLE: u64 = 4096 + SLOTS * 4096;

fn header(stage: &Stage) -> Vec<u8> {
    let bytes = stage.read("exchange");
    assert_eq!(bytes.len() as u64, WHOLE);
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));
    bytes[..4096].to_vec()
}

#[test]
fn of_many_who_make_it_at_once_one_does() {
    let stage = Stage::new();
    for round in 0..3 {
        let line = [PARDA, "exchange", "init", "exchange", "--volume", "array"];
        let start = |i: u32| stage.start(&format!("init-{round}-{i}"), &line);
        let makers: Vec<_> = (0..6).map(start).collect();
        let said: Vec<String> = makers
            .into_iter()
            .map(|mut maker| {
                let status = maker.wait();
                assert!(status.success(), "{}", maker.log());
                maker.done(status).out
            })
            .collect();
        let made = said.iter().filter(|said| said.contains(": made an exchange")).count();
        let found = said.iter().filter(|said| said.contains("already, nothing changed")).count();
        assert_eq!((made, found), (1, 5), "{said:?}");
        header(&stage);
        fs::remove_file(stage.path("exchange")).unwrap();
    }
}

#[test]
fn one_that_is_killed_leaves_what_the_next_one_finishes() {
    let stage = Stage::new();
    let line = [PARDA, "exchange", "init", "exchange"];
    for delay_us in (0..20).map(|i| i * 400) {
        let init = stage.start("killed", &line);
        std::thread::sleep(std::time::Duration::from_micros(delay_us));
        init.kill();
        if let Ok(left) = fs::read(stage.path("exchange")) {
            assert!(left.len() as u64 <= WHOLE);
            let zeros = left.iter().all(|byte| *byte == 0);
            assert!(zeros || left.starts_with(b"PARDAXCH"), "after {delay_us} us");
        }
        stage.exchange("exchange", 64);
        assert!(header(&stage).starts_with(b"PARDAXCH"));
        fs::remove_file(stage.path("exchange")).unwrap();
    }
}

#[test]
fn what_it_says_can_be_acted_upon() {
    let stage = Stage::new();
    stage.write("database", [b'x'; 5000]);
    let said = stage.fails(&[PARDA, "exchange", "init", "database"]);
    assert!(said.contains("database is not empty: it holds other data"), "{said}");
    stage.sparse("vm.img", 1 << 30);
    let said = stage.fails(&[PARDA, "exchange", "init", "vm.img"]);
    assert!(said.contains("has 1073741824 bytes") && said.contains("266240"), "{said}");
    for (offset, says) in [("1000", "multiple of 4096"), ("2GiB", "but they need 266240")] {
        let said = stage.fails(&[PARDA, "exchange", "init", "vm.img", "--offset", offset]);
        assert!(said.contains(says), "{said}");
    }
    assert!(stage.fails(&[PARDA, "exchange", "show", "vm.img"]).contains("never made an exchange"));
    assert!(stage.fails(&[PARDA, "exchange", "show", "none"]).contains("it is not there"));
    stage.exchange("exchange", 64);
    let shown = stage.parda(&["exchange", "show", "exchange"]).out;
    assert!(shown.contains("with 64 slots, for any volume") && shown.contains("empty"), "{shown}");
}

/// Of an exchange that cannot be used `check` tells, and of one that is a disk it makes an error.
#[test]
fn a_check_looks_at_the_exchange() {
    let stage = Stage::new();
    stage.sparse("vm.img", WHOLE);
    std::os::unix::fs::symlink("vm.img", stage.path("link")).unwrap();
    stage.write("database", [b'x'; 5000]);
    let write = |exchange: &str| {
        let text = config("a", "", &[("vm", "vm.img")]);
        let exchange = format!("[volume.exchange]\nfile = \"{exchange}\"\n[[volume.disk]]");
        stage.write("a.toml", text.replace("[[volume.disk]]", &exchange));
    };
    let check = [PARDA, "check", "a.toml"];
    for exchange in ["vm.img", "./vm.img", "link"] {
        write(exchange);
        for line in [&check[..], &[PARDA, "serve", "-c", "a.toml"]] {
            let said = stage.fails(line);
            assert!(said.contains("the disk vm of volume array"), "{said}");
        }
    }
    write("exchange");
    let said = stage.ok(&check);
    let make = "not made yet. On one host, once: parda exchange init exchange --volume array";
    assert!(said.contains(make), "{said}");
    stage.ok(&[PARDA, "exchange", "init", "exchange", "--volume", "array"]);
    assert!(!stage.ok(&check).contains("note: exchange"));
    write("database");
    assert!(stage.ok(&check).contains("note: exchange database: it is no exchange"));
}

/// Another program has the file open with the locks that qemu takes.
#[test]
fn a_disk_that_qemu_serves_is_not_made_an_exchange() {
    let stage = Stage::new();
    stage.sparse("vm.img", WHOLE);
    let socket = stage.path("nbd");
    let socket = socket.to_str().unwrap();
    let line = ["qemu-nbd", "--persistent", "-f", "raw", "--socket", socket, "vm.img"];
    let server = stage.start("qemu-nbd", &line);
    until("qemu-nbd listens", || stage.path("nbd").exists());
    let said = stage.fails(&[PARDA, "exchange", "init", "vm.img"]);
    assert!(said.contains("is in use: another program holds a lock"), "{said}");
    assert!(stage.read("vm.img").iter().all(|byte| *byte == 0));
    server.kill();
}
