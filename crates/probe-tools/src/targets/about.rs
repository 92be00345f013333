//! Description of a target by the kernel: a device and its queue, or a file and its file system.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{major, minor};

/// Facts about a device: its model, and the settings of its queue.
pub(crate) fn device(number: u64) -> Vec<String> {
    let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let Ok(dir) = fs::canonicalize(link) else { return Vec::new() };
    // A partition has its disk's.
    let disk = if dir.join("partition").exists() { dir.join("..") } else { dir.clone() };
    let read = |file: &str| {
        let text = fs::read_to_string(disk.join(file)).ok()?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then_some(text)
    };
    let name = fs::canonicalize(&disk).unwrap_or(disk.clone());
    let mut what = vec![name.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    what.extend(read("device/vendor").filter(|vendor| !vendor.starts_with("0x")));
    what.extend(read("device/model"));
    what.extend(read("loop/backing_file").map(|file| format!("of the file {file}")));
    what.extend(read("queue/rotational").map(|rotates| {
        if rotates == "1" { "rotates".to_owned() } else { "does not rotate".to_owned() }
    }));
    let mut queue = Vec::new();
    queue.extend(read("queue/scheduler").map(|all| format!("scheduler {}", chosen(&all))));
    queue.extend(read("queue/nr_requests").map(|number| format!("nr_requests {number}")));
    queue.extend(read("device/queue_depth").map(|number| format!("queue depth {number}")));
    queue.extend(read("queue/write_cache"));
    [what, queue].into_iter().filter(|line| !line.is_empty()).map(|line| line.join(", ")).collect()
}

/// Facts about a file: its file system, its device, and how much of it is holes.
pub(crate) fn file(path: &Path, found: &Metadata) -> Vec<String> {
    let mut about = Vec::from_iter(file_system(path));
    let there = found.blocks() * 512;
    if there < found.len() / 100 * 99 {
        about.push(format!(
            "{:.0} % of it are holes: reads there never reach a disk",
            100.0 - 100.0 * there as f64 / found.len() as f64
        ));
    }
    about.extend(device(found.dev()));
    about
}

/// Kind, mount point and source of the file system that a file is in.
fn file_system(path: &Path) -> Option<String> {
    let columns = ["--noheadings", "--nofsroot", "--raw", "--output", "FSTYPE,TARGET,SOURCE"];
    let found = Command::new("findmnt").args(columns).arg("--target").arg(path).output().ok()?;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let [kind, at, source] = found.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    Some(format!("a file on {kind}, mounted at {at} from {source}"))
}

/// The chosen entry of a list such as `none [bfq]`.
fn chosen(list: &str) -> &str {
    let inside = list.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(list, |(chosen, _)| chosen)
}
