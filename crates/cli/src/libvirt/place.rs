//! Whether two names lead to the same place: paths to one file or socket, addresses of one server.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use parda_address::Address;

/// Whether two paths lead to the same file, device or socket, by hard links as well. Of a path that leads to nothing yet, the
/// directory and the name count.
pub(super) fn same_file(one: &Path, other: &Path) -> Result<bool, String> {
    if one == other {
        return Ok(true);
    }
    match (found(one)?, found(other)?) {
        (Some(one), Some(other)) => Ok(identity(&one) == identity(&other)),
        (None, None) => Ok(to_be(one)? == to_be(other)?),
        _ => Ok(false),
    }
}

fn found(path: &Path) -> Result<Option<Metadata>, String> {
    match std::fs::metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The device of a node, which may have several nodes, or else the file.
fn identity(about: &Metadata) -> (bool, u64, u64) {
    match about.file_type().is_block_device() {
        true => (true, about.rdev(), 0),
        false => (false, about.dev(), about.ino()),
    }
}

/// Most links that the kernel follows.
const LINKS: u32 = 40;

/// The path that a file will have: without links and `..`.
fn to_be(path: &Path) -> Result<PathBuf, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    real(&std::path::absolute(path).map_err(wrong)?, LINKS)
        .ok_or_else(|| format!("{}: nothing says where this leads", path.display()))
}

/// The path without links and `..`, as far as its directories exist. `None` if a `..` leaves a missing directory.
fn real(path: &Path, links: u32) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let (parent, name) = (path.parent()?, path.file_name()?);
    match std::fs::read_link(path) {
        Ok(target) => real(&parent.join(target), links.checked_sub(1)?),
        Err(_) => Some(real(parent, links)?.join(name)),
    }
}

/// Whether a path is below a directory when links and `..` are followed. A link that leads nowhere is not.
pub(super) fn below(path: &Path, directory: &Path) -> bool {
    let real = |path: &Path| std::path::absolute(path).ok().and_then(|path| real(&path, 0));
    real(path).zip(real(directory)).is_some_and(|(path, directory)| path.starts_with(directory))
}

/// Whether a client of one address may reach the server at another. All addresses of this host count as one, as a server that listens
/// at 0.0.0.0 has them all.
pub(super) fn same_server(one: &Address, other: &Address) -> Result<bool, String> {
    match (one, other) {
        (Address::Unix(one), Address::Unix(other)) => same_file(one, other),
        (Address::Tcp { host: a, port: p }, Address::Tcp { host: b, port: q }) => {
            if p != q || a == b {
                return Ok(p == q);
            }
            let (one, other) = (resolved(a, *p)?, resolved(b, *q)?);
            let common = one.iter().any(|a| other.iter().any(|b| a == b));
            Ok(common || (one.iter().any(is_here) && other.iter().any(is_here)))
        }
        _ => Ok(false),
    }
}

fn resolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let wrong = |why: String| format!("the address of {host} is not known: {why}");
    let found = (host, port).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    let found = found.map(|at| SocketAddr::new(at.ip().to_canonical(), port));
    Ok(found.collect())
}

/// Whether an address is of this host. The kernel binds a socket to those alone; nothing is sent.
fn is_here(at: &SocketAddr) -> bool {
    let ip = at.ip();
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_that_leads_out_of_a_directory_is_not_below_it() {
        let stage = tempfile::tempdir().unwrap();
        let inside = stage.path().join("in");
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::write(stage.path().join("out"), "").unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("in", stage.path().join("link")).unwrap();
        symlink("../nowhere", inside.join("dangling")).unwrap();
        for (path, expected) in [
            ("in/deep/a", true),
            ("link/deep/a", true),
            ("in/deep/../a", true),
            ("in/../out", false),
            ("in/none/../../out", false),
            ("in/up/out", false),
            ("in/up/none", false),
            ("in/dangling", false),
        ] {
            assert_eq!(below(&stage.path().join(path), &inside), expected, "{path}");
            assert_eq!(below(&stage.path().join(path), &stage.path().join("link")), expected);
        }
    }

    #[test]
    fn a_file_or_socket_is_the_same_by_every_path_to_it() {
        let stage = tempfile::tempdir().unwrap();
        let at = |path: &str| stage.path().join(path);
        std::fs::create_dir(at("run")).unwrap();
        std::fs::write(at("image"), "").unwrap();
        std::fs::write(at("other"), "").unwrap();
        std::fs::hard_link(at("image"), at("hard")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("run/bound")).unwrap();
        for (target, link) in
            [("image", "soft"), ("run", "varrun"), ("run/later", "dangling"), ("loop", "loop")]
        {
            symlink(target, at(link)).unwrap();
        }
        for (one, other, expected) in [
            ("image", "hard", true),
            ("image", "soft", true),
            ("image", "run/../image", true),
            ("image", "other", false),
            ("image", "none", false),
            ("run/bound", "varrun/bound", true),
            ("run/later", "varrun/later", true),
            ("run/later", "run/../run/later", true),
            ("run/later", "dangling", true),
            ("run/later", "run/bound", false),
            ("run/later", "run/none", false),
            ("none/a", "varrun/../none/a", true),
        ] {
            assert_eq!(same_file(&at(one), &at(other)), Ok(expected), "{one} {other}");
            assert_eq!(same_file(&at(other), &at(one)), Ok(expected), "{other} {one}");
        }
        for unknown in ["loop", "none/../later"] {
            assert!(same_file(&at("run/later"), &at(unknown)).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_server_is_the_same_by_every_address_of_its_host() {
        let at = |text: &str| text.parse::<Address>().unwrap();
        for (one, other, expected) in [
            ("tcp:127.0.0.1:10809", "tcp:localhost:10809", true),
            ("tcp:127.0.0.1:10809", "tcp:[::1]:10809", true),
            ("tcp:127.0.0.1:10809", "tcp:0.0.0.0:10809", true),
            ("tcp:[::]:10809", "tcp:127.0.0.1:10809", true),
            ("tcp:10.1.1.1:10809", "tcp:[::ffff:10.1.1.1]:10809", true),
            ("tcp:127.0.0.1:10809", "tcp:localhost:10810", false),
            ("tcp:0.0.0.0:10809", "tcp:192.0.2.7:10809", false),
            ("unix:/run/parda/none", "tcp:127.0.0.1:10809", false),
        ] {
            assert_eq!(same_server(&at(one), &at(other)), Ok(expected), "{one} {other}");
            assert_eq!(same_server(&at(other), &at(one)), Ok(expected), "{other} {one}");
        }
        let unknown = same_server(&at("tcp:127.0.0.1:10809"), &at("tcp:a..b:10809"));
        assert!(unknown.unwrap_err().contains("a..b"));
        // A name of no address is the same as itself, and at another port another server.
        assert_eq!(same_server(&at("tcp:a..b:1"), &at("tcp:a..b:1")), Ok(true));
        assert_eq!(same_server(&at("tcp:a..b:1"), &at("tcp:c..d:2")), Ok(false));
    }
}
