//! Lines of `parda status` on a steered device.

use parda_agent::status::{QemuStatus, SteerStatus};
use parda_api::first;
use parda_terminal::output::{self, count, numbers};

use super::recent::Recent;

/// Line on the QEMUs of a volume.
fn qemu(steer: &SteerStatus) -> String {
    let QemuStatus { silent, disks, held } = steer.qemu.unwrap_or_default();
    let silent = match silent {
        0 => String::new(),
        n => format!("; SILENT: {}", count(n as u64, "socket")),
    };
    let (vms, disks) = (count(steer.vms.len() as u64, "VM"), count(disks as u64, "disk"));
    format!("QEMU {}: {vms}, {disks}, throttled: {held}{silent}", steer.device)
}

pub(super) fn lines(recent: &Recent, steer: &SteerStatus) -> String {
    let mut text = match (&steer.steered, steer.depth) {
        (Some(_), _) if steer.qemu.is_some() => qemu(steer),
        (None, _) => format!("device {}: gone", steer.device),
        (Some(name), None) => format!("device {} ({name}): nothing is set", steer.device),
        (Some(name), Some(depth)) => {
            let bound = |n: Option<u32>| n.map_or("?".to_owned(), |n| n.to_string());
            let (least, most) = (bound(steer.least), bound(steer.most));
            format!("device {} ({name}): depth {depth} of {least} to {most}", steer.device)
        }
    };
    if steer.cannot_go_lower {
        text += "; CANNOT GO LOWER, though the window is smaller";
    }
    if steer.drops + steer.requeues > 0 {
        text += &format!(
            "; the kernel lowered the depth {}, the array returned {} undone",
            count(steer.drops, "time"),
            count(steer.requeues, "IO")
        );
    }
    if let Some(by) = &steer.measured_by {
        text += &format!("; measured by {by}");
    }
    if let Some(error) = steer.latency_error {
        text += &format!(", within {:.0} %", 100.0 * error);
    }
    text.push('\n');
    if let Some(fault) = &steer.fault {
        text += &format!("  FAULT: {fault}\n");
    }
    let notes = [first(&steer.patterns_without_vm), first(&steer.vms_without_pattern)].concat();
    text.extend(notes.iter().map(|note| format!("  NOTE: {}\n", output::line(note))));
    let ways = [
        ("reads", &steer.reads, &steer.read_latency),
        ("writes", &steer.writes, &steer.write_latency),
    ];
    let rows = ways.map(|(name, counter, latency)| {
        let summary = latency.summary();
        [
            name.to_owned(),
            format!("{:.0}", recent.rate(counter.ios)),
            format!("{:.1}", recent.mib(counter.bytes)),
            format!("{:.1}", recent.at_a_time(latency)),
            format!("{:.2}", summary.mean),
            format!("{:.2}", summary.p50),
            format!("{:.2}", summary.p99),
        ]
    });
    text += &format!("{}\n", numbers("|IO/s|MiB/s|outstanding|device ms|p50|p99", rows));
    if steer.paths.len() > 1 {
        let rows = steer.paths.iter().map(|path| {
            let depth = path.depth.to_string();
            [path.name.clone(), path.method.to_string(), depth, path.state.to_string()]
        });
        text += &format!("{}\n", numbers("path|what is set|depth|state", rows));
    }
    if !steer.vms.is_empty() {
        let rows = steer.vms.iter().map(|vm| {
            [
                vm.name.clone(),
                vm.shares.to_string(),
                format!("{:.0}", recent.rate(vm.ios)),
                format!("{:.1}", recent.mib(vm.bytes)),
                format!("{:.1}", vm.pending),
                vm.held_back_by().unwrap_or("-".to_owned()),
            ]
        });
        text += &format!("{}\n", numbers("VM|shares|IO/s|MiB/s|pending|limited by", rows));
    }
    text
}
