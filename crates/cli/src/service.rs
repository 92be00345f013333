//! The user of the service, with whose rights the service's configuration is checked.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use parda_terminal::Failure;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use uzers::{get_group_by_name, get_user_by_name, get_user_groups};

/// Configuration that the unit `parda.service` names, and commands take if none is named.
pub(crate) const CONFIGURATION: &str = "/etc/parda.toml";

/// Restarts this program with the rights of the service's user, if root checks the service's configuration. Root could open files that the
/// service cannot. Does nothing for a service that runs as root, or that systemd does not know.
pub(crate) fn with_its_rights(config: &Path) -> Result<(), Failure> {
    if config != Path::new(CONFIGURATION) || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // Systemd may not answer: the check goes on with the rights that it has.
    let show =
        ["3", "systemctl", "show", "--property=User,Group,SupplementaryGroups", "parda.service"];
    let Ok(shown) = Command::new("timeout").args(show).output() else { return Ok(()) };
    let shown = String::from_utf8_lossy(&shown.stdout);
    let value = |key: &str| shown.lines().find_map(|line| line.strip_prefix(key));
    let Some(name) = value("User=").filter(|name| !name.is_empty()) else { return Ok(()) };
    let known = user_and_groups(name, value("Group="), value("SupplementaryGroups="));
    let Some((user, primary, groups)) = known else {
        eprintln!(
            "parda: note: checked with root's rights, as this host does not know the user or a group of parda.service"
        );
        return Ok(());
    };
    if user == 0 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(primary));
    // These calls change this thread, whose credentials the new program inherits.
    let taken = set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    let error = match taken {
        Ok(()) => Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).exec(),
        Err(errno) => errno.into(),
    };
    Err(Failure::new(format!("cannot check with the rights of the user {name}: {error}")))
}

/// A user's number, the number of its primary group, and all its groups, including those that a unit adds.
fn user_and_groups(
    name: &str,
    first: Option<&str>,
    more: Option<&str>,
) -> Option<(u32, u32, Vec<Gid>)> {
    let user = get_user_by_name(name)?;
    let number = |name: &str| get_group_by_name(name).map(|group| group.gid());
    let primary = match first.filter(|name| !name.is_empty()) {
        Some(name) => number(name)?,
        None => user.primary_group_id(),
    };
    let own = get_user_groups(name, primary).unwrap_or_default();
    let mut groups: Vec<_> = own.iter().map(|group| Gid::from_raw(group.gid())).collect();
    for name in more.unwrap_or_default().split_whitespace() {
        groups.push(Gid::from_raw(number(name)?));
    }
    Some((user.uid(), primary, groups))
}
