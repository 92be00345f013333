//! The user of the service, with whose rights the service's configuration is checked.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use uzers::{get_group_by_name, get_user_by_name, get_user_groups};

use crate::Failure;

/// Configuration that the unit `parda.service` names.
const CONFIGURATION: &str = "/etc/parda.toml";

/// Begins this program anew with the rights of the service's user, if root asks about the service's configuration: root could open what the
/// service cannot. Does nothing where the service is root's, or systemd knows none.
pub(crate) fn with_its_rights(config: &Path) -> Result<(), Failure> {
    if config != Path::new(CONFIGURATION) || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let show = ["show", "--property=User,SupplementaryGroups", "parda.service"];
    let Ok(shown) = Command::new("systemctl").args(show).output() else { return Ok(()) };
    let shown = String::from_utf8_lossy(&shown.stdout);
    let value = |key: &str| shown.lines().find_map(|line| line.strip_prefix(key));
    let user = value("User=").and_then(get_user_by_name).filter(|user| user.uid() != 0);
    let Some(user) = user else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.primary_group_id()));
    let own = get_user_groups(user.name(), user.primary_group_id()).unwrap_or_default();
    let more = value("SupplementaryGroups=").unwrap_or_default();
    let more = more.split_whitespace().filter_map(get_group_by_name);
    let groups: Vec<_> = own.iter().map(|g| g.gid()).chain(more.map(|g| g.gid())).collect();
    let groups: Vec<_> = groups.into_iter().map(Gid::from_raw).collect();
    let name = user.name().to_string_lossy();
    eprintln!("parda: with the rights of the user {name}, as parda.service runs");
    // Of this thread, and then of the program that it begins.
    let taken = set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    let error = match taken {
        Ok(()) => Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).exec(),
        Err(errno) => errno.into(),
    };
    Err(Failure::new(format!("cannot check with the rights of the user {name}: {error}")))
}
