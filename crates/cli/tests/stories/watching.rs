//! `parda steer watch`, by whoever may and whoever may not. (What it shows is right: see the stories
//! with guests, and the tests of `parda-steer`.)

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::stage::{PARDA, until, wait_for};
use parda_testkit::disk::{AttachedDisk, end};

const MS: Duration = Duration::from_millis(1);

fn watch(disk: &AttachedDisk, options: &[&str]) -> Command {
    let mut command = Command::new(PARDA);
    command.args(["steer", "watch", "--seconds", "1"]).args(options).arg(&disk.device);
    command
}

/// The same as root without any of its capabilities.
fn bare(command: &Command) -> Output {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(command.get_program());
    setpriv.args(command.get_args()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn who_may_not_load_ebpf_is_told_so_and_has_littles_law() {
    let Some(disk) = AttachedDisk::slow(20 * MS, 20 * MS) else { return };
    let mut fio = disk.load(&["--rw=randread", "--bs=8k", "--iodepth=4"]);
    // In a second of a busy machine there may be no IO.
    let table = wait_for("IO by Little's law", || {
        let table = text(&bare(&watch(&disk, &[])).stdout);
        table.contains("by Little's law").then_some(table)
    });
    let seen = wait_for("a mean by Little's law", || {
        let json = bare(&watch(&disk, &["--json", "-"]));
        let seen: Value = serde_json::from_slice(&json.stdout).unwrap();
        seen["reads"]["mean_ms"].is_f64().then_some(seen)
    });
    let forced = bare(&watch(&disk, &["--method", "ebpf"]));
    until("sizes and latencies are drawn", || {
        let whole = text(&watch(&disk, &[]).output().unwrap().stdout);
        assert!(whole.contains(": measured with eBPF\n"), "{whole}");
        whole.contains("\n 8 KiB") && whole.contains("####")
    });
    end(&mut fio);

    assert!(table.contains(": by Little's law, ± "), "{table}");
    assert!(table.contains(" % (no eBPF: "), "{table}");
    assert_eq!(seen["method"], "little");
    assert!(seen["because"].as_str().unwrap().starts_with("no eBPF: "), "{seen}");
    assert!(seen["reads"]["mean_ms"].as_f64().unwrap() > 19.0, "{seen}");
    let (status, errors) = (forced.status.code(), text(&forced.stderr));
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains(&format!("parda: {}: no eBPF: ", disk.device.display())), "{errors}");
}

#[test]
fn what_is_no_disk_is_refused_by_name() {
    for (what, why) in [
        ("/dev/null", "parda: /dev/null: is no block device\n"),
        (
            "/dev/nowhere",
            "parda: /dev/nowhere: cannot be looked at: No such file or directory (os error 2) (`lsblk` lists the devices of this host)\n",
        ),
    ] {
        let output = Command::new(PARDA).args(["steer", "watch", what]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), why));
    }
}
