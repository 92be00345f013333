//! What of the NBD protocol other people's clients see: nbdinfo, nbdcopy, nbdfuse, qemu-img, qemu-io
//! and libnbd's Python module, which runs `nbd_cases.py`, case by case.

use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::clients::qemu_nbd;
use crate::stage::{Agent, Process, Stage, config, noise, uri};

const MIB: u64 = 1 << 20;
const OFF: &str = "mode = \"off\"";
const VM1: &str = "nbd+unix:///vm1?socket=host";

/// A disk of 16 MiB with data from 1 MiB to 3 MiB and from 8 MiB to 9 MiB, and how it is served.
struct Served {
    name: &'static str,
    /// Whether the server behind it tells of holes.
    tells: bool,
    _agents: Vec<Agent>,
    _server: Option<Process>,
    stage: Stage,
}

fn stage() -> Stage {
    let stage = Stage::new();
    fill(&stage, "data");
    stage
}

fn fill(stage: &Stage, name: &str) {
    stage.sparse(name, 16 * MIB);
    let data = std::fs::File::options().write(true).open(stage.path(name)).unwrap();
    for (at, len) in [(1, 2), (8, 1)] {
        data.write_all_at(&noise((len * MIB) as usize), at * MIB).unwrap();
    }
}

/// The same disk on every kind of backend.
fn everywhere(test: impl Fn(&Served)) {
    let serve =
        |stage: &Stage, path: &str| stage.agent("host", &config("host", OFF, &[("vm1", path)]));
    let on_a_file = stage();
    let agents = vec![serve(&on_a_file, "data")];
    test(&Served { name: "file", tells: true, _agents: agents, _server: None, stage: on_a_file });

    let on_qemu = stage();
    let server = Some(qemu_nbd(&on_qemu));
    let agents = vec![serve(&on_qemu, "nbd+unix:///?socket=qemu")];
    test(&Served {
        name: "qemu-nbd",
        tells: true,
        _agents: agents,
        _server: server,
        stage: on_qemu,
    });

    let on_parda = stage();
    let array = on_parda.agent("array", &config("array", OFF, &[("lun", "data")]));
    let agents = vec![serve(&on_parda, &uri("array", "lun")), array];
    test(&Served { name: "parda", tells: true, _agents: agents, _server: None, stage: on_parda });

    let on_nbdkit = stage();
    let kit = ["nbdkit", "-f", "-U", "kit", "--filter=noextents", "file", "data"];
    let server = on_nbdkit.start("nbdkit", &kit);
    crate::stage::until("nbdkit answers", || on_nbdkit.path("kit").exists());
    let agents = vec![serve(&on_nbdkit, "nbd+unix:///?socket=kit")];
    let server = Some(server);
    test(&Served {
        name: "noextents",
        tells: false,
        _agents: agents,
        _server: server,
        stage: on_nbdkit,
    });
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Offset and length in MiB of what a map calls data.
fn data_of(map: &Value, key: &str) -> Vec<(u64, u64)> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    for extent in map.as_array().unwrap() {
        let number = |key: &str| extent[key].as_u64().unwrap();
        let (from, len) =
            (number(if key == "data" { "start" } else { "offset" }), number("length"));
        let is_data = if key == "data" { extent[key] == true } else { extent[key] == 0 };
        match data.last_mut() {
            _ if !is_data => {}
            Some(last) if last.0 + last.1 == from => last.1 += len,
            _ => data.push((from, len)),
        }
    }
    data.iter().map(|(from, len)| (from / MIB, len / MIB)).collect()
}

#[test]
fn maps_show_what_is_allocated() {
    everywhere(|served| {
        let stage = &served.stage;
        let expected = if served.tells { vec![(1, 2), (8, 1)] } else { vec![(0, 16)] };
        let map = json(&stage.ok(&["nbdinfo", "--map", "--json", VM1]));
        assert_eq!(data_of(&map, "type"), expected, "nbdinfo, {}", served.name);
        let map = json(&stage.ok(&["qemu-img", "map", "--output=json", "-f", "raw", VM1]));
        assert_eq!(data_of(&map, "data"), expected, "qemu-img, {}", served.name);
        // Offered though nothing is known of this disk: all of it is data then.
        let info = json(&stage.ok(&["nbdinfo", "--json", VM1]));
        assert_eq!(info["exports"][0]["contexts"], serde_json::json!(["base:allocation"]));
    });
}

#[test]
fn trims_and_zeroes_show_in_the_map() {
    let served = stage();
    let _agent = served.agent("host", &config("host", OFF, &[("vm1", "data")]));
    let map = || data_of(&json(&served.ok(&["nbdinfo", "--map", "--json", VM1])), "type");
    let io =
        |command: &str| served.ok(&["qemu-io", "-f", "raw", "-d", "unmap", VM1, "-c", command]);
    assert_eq!(map(), [(1, 2), (8, 1)]);
    io("discard 1M 1M");
    assert_eq!(map(), [(2, 1), (8, 1)]);
    io("write -z -u 8M 1M");
    assert_eq!(map(), [(2, 1)]);
    io("write -P 3 12M 2M");
    assert_eq!(map(), [(2, 1), (12, 2)]);
}

/// The bytes that a file takes on the disk.
fn allocated(stage: &Stage, name: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    512 * std::fs::metadata(stage.path(name)).unwrap().blocks()
}

#[test]
fn what_is_sparse_stays_sparse() {
    everywhere(|served| {
        let stage = &served.stage;
        stage.ok(&["qemu-img", "convert", "-f", "raw", "-O", "raw", VM1, "converted"]);
        stage.ok(&["nbdcopy", VM1, "copied"]);
        for copy in ["converted", "copied"] {
            assert!(stage.read(copy) == stage.read("data"), "{copy}, {}", served.name);
            if served.tells {
                let bytes = allocated(stage, copy);
                assert!(bytes < 4 * MIB, "{copy} takes {bytes} bytes, {}", served.name);
            }
        }
        stage.ok(&["qemu-img", "compare", "-f", "raw", "-F", "raw", VM1, "data"]);
    });
}

#[test]
fn a_description_is_shown() {
    let stage = Stage::new();
    stage.sparse("data", MIB);
    let described = "name = \"vm1\"\ndescription = \"the accounts, do not touch\"";
    let text = config("host", OFF, &[("vm1", "data")]).replace("name = \"vm1\"", described);
    let _agent = stage.agent("host", &text);
    let list = json(&stage.ok(&["nbdinfo", "--list", "--json", "nbd+unix:///?socket=host"]));
    assert_eq!(list["exports"][0]["description"], "the accounts, do not touch");
    assert!(stage.ok(&["nbdinfo", VM1]).contains("the accounts, do not touch"));
}

/// Every case of `nbd_cases.py`, against one disk through the page cache and one around it.
#[test]
fn libnbd_sees_the_protocol_as_it_is_written() {
    let stage = stage();
    fill(&stage, "more");
    stage.sparse("rest", 16 * MIB);
    let text = config("host", OFF, &[("vm1", "data"), ("direct", "more"), ("readonly", "rest")])
        .replace("path = \"data\"", "path = \"data\"\ndirect = \"off\"")
        .replace("path = \"more\"", "path = \"more\"\ndirect = \"auto\"")
        .replace("path = \"rest\"", "path = \"rest\"\nread_only = true");
    let _agent = stage.agent("host", &text);
    // The Python that Debian's python3-libnbd is for, whatever other Python is installed.
    stage.write("cases.py", include_str!("nbd_cases.py"));
    let said = stage.ok(&["/usr/bin/python3", "cases.py", "host"]);
    assert!(said.contains("all passed"), "{said}");
}

#[test]
fn a_file_that_grew_is_seen_by_who_connects() {
    let stage = Stage::new();
    stage.sparse("data", 4 * MIB);
    let agent = stage.agent("host", &config("host", "period = \"100ms\"", &[("vm1", "data")]));
    let size = || stage.ok(&["nbdinfo", "--size", VM1]).trim().parse::<u64>().unwrap();
    assert_eq!(size(), 4 * MIB);
    let data = std::fs::File::options().write(true).open(stage.path("data")).unwrap();
    data.set_len(6 * MIB).unwrap();
    crate::stage::until("the new size is seen", || size() == 6 * MIB);
    stage.ok(&["qemu-io", "-f", "raw", VM1, "-c", "write -P 5 5M 1M", "-c", "read -P 5 5M 1M"]);
    agent.says("the disk has grown");
    data.set_len(2 * MIB).unwrap();
    crate::stage::until("the file has shrunk", || size() == 2 * MIB);
    agent.says("the disk has shrunk");
    stage.fails(&["qemu-io", "-f", "raw", VM1, "-c", "read 2M 4k"]);
    agent.stop();
}
