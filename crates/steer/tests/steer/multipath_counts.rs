//! What a multipath device completes, by Little's law: counted above its paths.
use crate::common;

use common::Tree;
use parda_steer::measure::{Little, Measure};

const IDLE: &str = "0 0 0 0 0 0 0 0 0 0 0";

#[test]
fn an_io_that_finds_a_path_full_and_takes_the_next_is_one() {
    let tree = Tree::new();
    let paths = [tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16")];
    let san = tree.mapped(0, "san", "mpath-3600", &[&paths[0], &paths[1]]);
    let counts = |dir: &str, stat: &str| tree.file(&format!("{dir}/stat"), stat);
    for dir in paths.iter().chain([&san]) {
        tree.file(&format!("{dir}/queue/iostats"), "1");
        tree.file(&format!("{dir}/inflight"), "3 0");
        counts(dir, IDLE);
    }
    let ios = |requests: bool| {
        if requests {
            tree.folder(&format!("{san}/mq/0"));
        }
        let watched = tree.resolve(&san).unwrap().watched();
        let mut little = Little::open(tree.path(), &watched, None).unwrap();
        counts(&san, "100 0 800 0 0 0 0 0 0 0 0");
        // Twenty of the hundred were handed to both.
        paths.iter().for_each(|dir| counts(dir, "60 0 400 0 0 0 0 0 0 0 0"));
        let done = little.read().unwrap().classes[0].ios;
        paths.iter().chain([&san]).for_each(|dir| counts(dir, IDLE));
        done
    };
    assert_eq!(ios(false), 120, "one that makes no requests is counted below");
    assert_eq!(ios(true), 100);
}
