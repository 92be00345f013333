//! Table of `parda status` on the disks of a volume.

use parda_agent::status::VolumeStatus;
use parda_terminal::output::{count, number, numbers};

use super::recent::Recent;

pub(super) fn lines(recent: &Recent, volume: &VolumeStatus) -> String {
    let rows = volume.disks.iter().map(|disk| {
        let (device, held) = (disk.device.summary(), disk.held.summary());
        [
            disk.name.clone(),
            disk.shares.to_string(),
            format!("{:.0}", recent.rate(disk.reads.ios)),
            format!("{:.0}", recent.rate(disk.writes.ios)),
            format!("{:.1}", recent.mib(disk.reads.bytes + disk.writes.bytes)),
            format!("{:.1}", recent.at_a_time(&disk.device)),
            number(volume.at_most(disk), 1),
            format!("{:.2}", device.mean),
            format!("{:.2}", device.p99),
            format!("{:.2}", held.mean),
            format!("{:.2}", held.p99),
            volume.limit_of(disk).to_string(),
        ]
    });
    let head =
        "disk|shares|reads/s|writes/s|MiB/s|outstanding|slice|device ms|p99|held ms|p99|limited by";
    let mut text = format!("{}\n", numbers(head, rows));
    for disk in volume.disks.iter().filter(|disk| disk.drain) {
        let clients = match disk.clients {
            0 => "nobody is connected".to_owned(),
            clients => format!("{} still connected", count(clients, "client")),
        };
        text += &format!("  disk {}: drained, takes no new connections; {clients}\n", disk.name);
    }
    for disk in volume.disks.iter().filter(|disk| disk.errors > 0) {
        let failed = count(disk.errors, "IO");
        text += &format!("  disk {}: {failed} FAILED at the array since the start\n", disk.name);
    }
    for disk in &volume.disks {
        for (faults, whose) in
            [(disk.guest_faults, "its guest"), (disk.client_faults, "NBD clients")]
        {
            if faults > 0 {
                let failed = count(faults, "request");
                text += &format!(
                    "  disk {}: {failed} failed by the fault of {whose} since the start\n",
                    disk.name
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::recent::tests::after;

    #[test]
    fn a_disk_whose_ios_are_all_held_is_limited_by_its_slice() {
        let row = |held_now| {
            let mut recent = Recent::between(&after(1, 10.0, 1000), after(1, 12.0, 1000));
            let mut volume = recent.status.volumes.remove(0);
            volume.disks[0].held_now = held_now;
            lines(&recent, &volume).trim_end().lines().nth(1).unwrap().trim_end().to_owned()
        };
        assert!(row(8).ends_with("its slice"), "{}", row(8));
        assert!(row(0).ends_with("nothing done"), "{}", row(0));
    }

    #[test]
    fn a_held_disk_of_a_host_at_its_largest_window_is_limited_by_that_window() {
        let row = |outstanding| {
            let mut recent = Recent::between(&after(1, 10.0, 1000), after(1, 12.0, 5000));
            let mut volume = recent.status.volumes.remove(0);
            let disk = &mut volume.disks[0];
            disk.held = disk.device.clone();
            (volume.window_max, volume.outstanding) = (Some(64.0), outstanding);
            lines(&recent, &volume).trim_end().to_owned()
        };
        assert!(row(64.0).ends_with("window_max"), "{}", row(64.0));
        assert!(row(50.0).ends_with("its slice"), "{}", row(50.0));
    }

    #[test]
    fn disks_of_one_name_are_told_apart_by_their_listeners() {
        let twins = |reads: u64, seconds: f64| {
            let mut status = after(1, seconds, reads);
            let disks = &mut status.volumes[0].disks;
            disks.push(after(1, seconds, 2 * reads).volumes[0].disks[0].clone());
            disks.iter_mut().zip(["unix:a", "unix:b"]).for_each(|(d, at)| d.listen = at.to_owned());
            status
        };
        let recent = Recent::between(&twins(1000, 10.0), twins(5000, 12.0));
        let text = lines(&recent, &recent.status.volumes[0]);
        let row = |key: &str| {
            let line = text.lines().find(|line| line.contains(key)).unwrap_or_default();
            line.split_whitespace().nth(2).map(str::to_owned)
        };
        assert_eq!(row("vm@unix:a").as_deref(), Some("2000"), "{text}");
        assert_eq!(row("vm@unix:b").as_deref(), Some("4000"), "{text}");
    }

    #[test]
    fn a_slice_is_shown_as_no_more_than_the_window() {
        let slice = |slice, window| {
            let mut recent = Recent::between(&after(1, 10.0, 1000), after(1, 12.0, 5000));
            let mut volume = recent.status.volumes.remove(0);
            (volume.disks[0].slice, volume.window) = (slice, window);
            let text = lines(&recent, &volume);
            let row = text.lines().find(|line| line.contains("its own depth")).unwrap();
            row.split_whitespace().nth(6).unwrap().to_owned()
        };
        assert_eq!(slice(Some(3600.0), Some(64.0)), "64.0");
        assert_eq!(slice(Some(12.0), Some(64.0)), "12.0");
        assert_eq!(slice(None, None), "-");
    }
}
