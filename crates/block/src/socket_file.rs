//! The file of a unix socket: bound so that nobody can connect before its owner and mode are set,
//! and removed when its server ends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Who may connect to a unix socket: those who may write to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits of the file, whatever the umask.
    pub mode: u32,
    /// Numeric owner; that of the process if `None`.
    pub owner: Option<u32>,
    /// Numeric group; that of the process if `None`.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// The process's own user alone.
    fn default() -> Self {
        Self { mode: 0o600, owner: None, group: None }
    }
}

/// The file of a unix socket, removed when dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode: another may have been put in its place since.
    instance: Option<(u64, u64)>,
}

impl SocketFile {
    /// Binds as [`SocketFile::bind`] does, in place of a socket that a process which is gone has left behind.
    ///
    /// # Errors
    /// Also: the path leads to a socket that is served, or to a file that is none, which stays.
    pub fn take(path: &Path, access: SocketAccess) -> io::Result<(OwnedFd, SocketFile)> {
        match SocketFile::bind(path, access) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                SocketFile::bind(path, access)
            }
            bound => bound,
        }
    }

    /// Binds `path`, gives the file its owner and mode, and only then listens: until that, a
    /// connect is refused.
    ///
    /// # Errors
    /// The path cannot be bound, or the owner or mode cannot be set; no file is left behind then.
    pub fn bind(path: &Path, access: SocketAccess) -> io::Result<(OwnedFd, SocketFile)> {
        let address = SocketAddrUnix::new(path)?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        // Linux gives the file the mode of the socket's inode, less the umask.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(access.mode & 0o600))?;
        rustix::net::bind(&fd, &address)?;
        let file = SocketFile { path: path.to_owned(), instance: instance(path) };
        grant(path, access)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok((fd, file))
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("there is a file that is not a socket"));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // An answer, or a reason to believe that there is somebody.
        _ => Err(io::Error::other(
            "another process serves it: `ss -lxp` names it. End that one, or choose another path",
        )),
    }
}

/// Sets owner and mode of the socket's file. Whoever can write to the directory could have put a
/// link in its place: the file is opened without following one, and everything is done to that.
fn grant(path: &Path, access: SocketAccess) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file was put in the place of the socket"));
    }
    let (owner, group) = (access.owner.map(Uid::from_raw), access.group.map(Gid::from_raw));
    if owner.is_some() || group.is_some() {
        rustix::fs::chownat(&file, "", owner, group, AtFlags::EMPTY_PATH).map_err(|e| {
            let error = io::Error::from(e);
            io::Error::new(error.kind(), format!("cannot set the socket's owner: {error}"))
        })?;
    }
    // fchmod does not work on such a descriptor, and its way around that is in every kernel.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(itself, Mode::from_raw_mode(access.mode))?;
    Ok(())
}

fn instance(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Removed by hand, or another's.
        if self.instance.is_some() && instance(&self.path) == self.instance {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_file_has_the_mode_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for wanted in [0o600, 0o660, 0o666, 0o000, 0o777] {
            let path = dir.path().join(format!("{wanted:o}"));
            let access = SocketAccess { mode: wanted, ..SocketAccess::default() };
            let (fd, file) = SocketFile::bind(&path, access).unwrap();
            assert_eq!(mode(&path), wanted);
            drop((fd, file));
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_owner_is_set_or_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let root = rustix::process::geteuid().is_root();
        let access = SocketAccess { mode: 0o660, owner: Some(12_345), group: Some(54_321) };
        match SocketFile::bind(&path, access) {
            Ok((_fd, _file)) => {
                let meta = std::fs::metadata(&path).unwrap();
                assert!(root);
                assert_eq!((meta.uid(), meta.gid(), mode(&path)), (12_345, 54_321, 0o660));
            }
            Err(error) => {
                assert!(!root && error.to_string().contains("owner"), "{error}");
                assert!(!path.exists());
            }
        }
    }

    /// A link that was put in the place of the socket leads neither owner nor mode astray.
    #[test]
    fn another_file_in_the_place_of_the_socket_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (precious, link) = (dir.path().join("precious"), dir.path().join("s"));
        std::fs::write(&precious, "").unwrap();
        let before = mode(&precious);
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        for path in [&link, &precious] {
            let access = SocketAccess { mode: 0o666, ..SocketAccess::default() };
            assert!(grant(path, access).is_err());
        }
        assert_eq!(mode(&precious), before);
    }

    #[test]
    fn a_bound_socket_takes_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let bound = SocketFile::bind(&path, SocketAccess::default()).unwrap();
        UnixStream::connect(&path).unwrap();
        assert_eq!(
            SocketFile::bind(&path, SocketAccess::default()).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(path.exists(), "a bind that fails removes nothing");
        drop(bound);
    }
}
