//! Checks whether a host is a guest, and its settings.

use crate::file;
use crate::guest::GuestSettings;

/// An invalid key below `host`, and what is wrong with it.
pub(crate) type Fault = (&'static str, &'static str);

/// Settings of a host that is a guest, checked.
pub(crate) fn guest(host: &file::Host) -> Result<Option<GuestSettings>, Fault> {
    let written = match (host.kind, &host.guest) {
        (file::Kind::Process, None) => return Ok(None),
        (file::Kind::Process, Some(_)) => {
            return Err(("guest", "means nothing for a host that is not of kind = \"guest\""));
        }
        (file::Kind::Guest, written) => written.unwrap_or_default(),
    };
    match written.queue_depth {
        Some(0) => return Err(("guest.queue_depth", "must be at least 1")),
        Some(_) if !host.outside => {
            return Err((
                "guest.queue_depth",
                "is its agent's affair, unless it is outside control",
            ));
        }
        _ => {}
    }
    let own_disks = host.vm.iter().skip(1).find(|vm| {
        vm.same_disk_as.is_none() || vm.same_disk_as != Some(disk_of_first(host).to_owned())
    });
    if own_disks.is_some() {
        let says = "a guest has one disk: all its VMs but the first must have same_disk_as that";
        return Err(("vm", says));
    }
    if host.vm.iter().any(|vm| vm.burst.is_some()) {
        return Err(("vm", "a guest's VMs cannot have `burst`: its queue is its kernel's"));
    }
    if host.vm.iter().any(|vm| vm.latency_target.is_some()) {
        return Err((
            "vm",
            "a guest's VMs cannot have `latency_target`: how long each waits in its kernel is not known",
        ));
    }
    Ok(Some(written))
}

/// Name of the VM whose disk the guest's first VM uses.
fn disk_of_first(host: &file::Host) -> &str {
    host.vm.first().map_or("", |vm| vm.same_disk_as.as_deref().unwrap_or(&vm.name))
}
