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
    if written.queue_depth == Some(0) {
        return Err(("guest.queue_depth", "must be at least 1"));
    }
    if written.queue_depth.is_some() && !host.outside {
        let says = "is its agent's affair, unless it is outside control";
        return Err(("guest.queue_depth", says));
    }
    let shared = Some(disk_of_first(host));
    if host.vm.iter().skip(1).any(|vm| vm.same_disk_as.as_deref() != shared) {
        let says = "a guest has one disk: all its VMs but the first must have same_disk_as that";
        return Err(("vm", says));
    }
    if host.vm.iter().any(|vm| vm.burst.is_some()) {
        return Err(("vm", "a guest's VMs cannot have `burst`: its queue is its kernel's"));
    }
    if host.vm.iter().any(|vm| vm.latency_target.is_some()) {
        let says = "a guest's VMs cannot have `latency_target`: how long each waits in its kernel is not known";
        return Err(("vm", says));
    }
    Ok(Some(written))
}

/// Name of the VM whose disk the guest's first VM uses.
fn disk_of_first(host: &file::Host) -> &str {
    host.vm.first().map_or("", |vm| vm.same_disk_as.as_deref().unwrap_or(&vm.name))
}
