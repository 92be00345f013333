//! `[[listener]]`, checked: the clients that may connect at an address.

use std::collections::HashSet;
use std::fmt::Write as _;

use parda_address::{Address, Protocol};
use parda_block::{DiskConfig, SocketAccess};
use parda_config::{Document, Error, TablePart};
use uzers::{get_group_by_name, get_user_by_name};

use super::volume::{Volume, Work};
use crate::file;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Address at which clients connect.
    pub address: Address,
    /// Mode, owner and group of a unix socket, if its table has any of them.
    pub access: Option<SocketAccess>,
    /// Clients without TLS are served at an address that other hosts can reach.
    pub plain: bool,
    /// TLS for its clients. The listener reads the files later: other listeners do not wait for them.
    pub tls: Option<file::ListenerTlsTable>,
}

/// Checks the listeners of a file.
pub(super) fn check_all(
    doc: &Document,
    files: &[file::ListenerTable],
) -> Result<Vec<Listener>, Error> {
    let mut all: Vec<Listener> = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let at = doc.part(format!("listener.{i}"));
        let listener = check(&at, file)?;
        let taken = all.iter().any(|other| other.address == listener.address);
        at.refuse_if(taken, "address", "is another [[listener]]'s address already")?;
        all.push(listener);
    }
    Ok(all)
}

/// The listeners that the disks of a volume name, by their `[[listener]]` tables if they have one.
pub(super) fn of_disks(
    at: &TablePart<'_>,
    work: &Work,
    described: &[Listener],
) -> Result<Vec<Listener>, Error> {
    let Work::Serve(disks) = work else { return Ok(Vec::new()) };
    let mut seen = HashSet::new();
    let first = disks.iter().enumerate().filter(|(_, disk)| seen.insert(&disk.listen));
    let listeners = first.map(|(i, DiskConfig { listen, .. })| {
        let listener = described.iter().find(|listener| listener.address == *listen).cloned();
        if listener.is_none() && !listen.is_local() {
            return Err(at.error(&format!("disk.{i}.listen"), unprotected(listen)));
        }
        let address = listen.clone();
        Ok(listener.unwrap_or(Listener { address, access: None, plain: false, tls: None }))
    });
    listeners.collect()
}

/// Addresses of the listeners that no disk uses.
pub(super) fn unused(described: &[Listener], volumes: &[Volume]) -> Vec<Address> {
    let used: HashSet<_> =
        volumes.iter().flat_map(|volume| &volume.listeners).map(|it| &it.address).collect();
    let all = described.iter().map(|listener| &listener.address);
    all.filter(|address| !used.contains(address)).cloned().collect()
}

fn unprotected(address: &Address) -> String {
    format!(
        "is not a loopback address, and NBD without TLS can be read and written by whoever reaches \
         it: add a [[listener]] with address = \"{address}\" and tls, or with plain = true, if that is \
         meant"
    )
}

fn check(at: &TablePart<'_>, file: &file::ListenerTable) -> Result<Listener, Error> {
    let address: Address = at.read("address", file.address.parse())?;
    if matches!(address, Address::Tcp { .. }) {
        for (key, value) in [("mode", &file.mode), ("owner", &file.owner), ("group", &file.group)] {
            at.refuse_if(value.is_some(), key, "is for unix sockets: a TCP address has none")?;
        }
    } else {
        at.refuse_if(file.plain, "plain", "is for TCP: no other host reaches a unix socket")?;
    }
    let tls = file.tls.clone();
    let guest = address.protocol() == Protocol::Vhost && tls.is_some();
    at.refuse_if(guest, "tls", "is for NBD: a guest's memory is shared on this host")?;
    let required = tls.as_ref().is_some_and(|tls| tls.required);
    let message = "contradicts tls, which is required unless it says not";
    at.refuse_if(required && file.plain, "plain", message)?;
    if !address.is_local() && !file.plain && !required {
        let message = "leaves clients without TLS at an address that is not loopback: that takes plain = true as well";
        at.refuse_if(tls.is_some(), "tls.required", message)?;
        return Err(at.error("address", unprotected(&address)));
    }
    let value = |key, text: &Option<String>, read: fn(&str) -> Result<u32, String>| {
        at.read(key, text.as_deref().map(read).transpose())
    };
    let access = SocketAccess {
        mode: value("mode", &file.mode, mode)?.unwrap_or(SocketAccess::default().mode),
        owner: value("owner", &file.owner, user)?,
        group: value("group", &file.group, group)?,
    };
    let says = file.mode.is_some() || file.owner.is_some() || file.group.is_some();
    let access = says.then_some(access);
    Ok(Listener { plain: file.plain && !address.is_local(), address, access, tls })
}

/// Permission bits as chmod(1) takes them.
fn mode(text: &str) -> Result<u32, String> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        _ => Err("must be three octal digits, such as \"0660\"".into()),
    }
}

fn user(text: &str) -> Result<u32, String> {
    id(text, get_user_by_name(text).map(|user| user.uid()), "user")
}

fn group(text: &str) -> Result<u32, String> {
    id(text, get_group_by_name(text).map(|group| group.gid()), "group")
}

/// The number of a user or group, which may be given as such.
fn id(text: &str, known: Option<u32>, kind: &str) -> Result<u32, String> {
    match (known, text.parse()) {
        (Some(id), _) => Ok(id),
        // The last is what chown takes as "leave it".
        (None, Ok(id)) if id != u32::MAX => Ok(id),
        (None, _) => Err(format!("this host has no such {kind}")),
    }
}

/// Warnings about listeners of a volume that are allowed.
pub(super) fn warnings(volume: &Volume) -> impl Iterator<Item = String> {
    volume.listeners.iter().filter_map(|listener| {
        let mut text = format!("{}: ", listener.address);
        if listener.plain {
            text +=
                "clients are served without TLS; whoever reaches this address can read and write";
            for disk in volume.disks().iter().filter(|d| d.listen == listener.address) {
                let _ = write!(text, " {}", disk.name);
            }
        } else if !listener.address.is_local()
            && listener.tls.as_ref().is_some_and(|tls| tls.clients.is_none())
        {
            text += "tls has no clients: whoever reaches this address can read and write";
        } else if let Some(mode) = listener.access.map(|it| it.mode).filter(|it| it & 0o002 != 0) {
            let _ = write!(text, "mode {mode:04o} lets every user of this host connect");
        } else {
            return None;
        }
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_permission_bits() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("600"), Ok(0o600));
        for text in ["", "66", "0o660", "0680", "1777", "00660", "+660", "rw-rw----"] {
            assert!(mode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn users_and_groups_go_by_name_or_number() {
        assert_eq!((user("root"), group("root")), (Ok(0), Ok(0)));
        assert_eq!((user("64055"), group("4294967294")), (Ok(64_055), Ok(u32::MAX - 1)));
        for text in ["nobody-of-this-name", "-1", "4294967295", ""] {
            assert!(user(text).is_err() && group(text).is_err(), "{text:?}");
        }
    }
}
