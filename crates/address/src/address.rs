//! Addresses of sockets.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Address of a server's socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// Port. A listener at 0 is given a free one.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
    /// The path of a unix socket whose clients speak vhost-user.
    Vhost(PathBuf),
}

/// Socket at an address, whatever the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket<'a> {
    /// Host name or IP address, and port.
    Tcp(&'a str, u16),
    /// The path of a unix socket.
    Unix(&'a Path),
}

/// Protocol that the clients of a server speak at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NBD, over TCP or a unix socket.
    Nbd,
    /// vhost-user, by a unix socket.
    Vhost,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Vhost(path) => write!(f, "vhost-user:{}", path.display()),
        }
    }
}

/// A string that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The string begins with none of `unix:`, `tcp:` and `vhost-user:`.
    #[error("must be unix:PATH, tcp:ADDRESS:PORT, such as tcp:127.0.0.1:10809, or vhost-user:PATH")]
    Shape,
    /// More than the kernel takes.
    #[error("is too long for a socket: at most {max} bytes", max = Address::MAX_UNIX_PATH)]
    TooLong,
}

impl Address {
    /// The kernel's limit on the path of a socket, less its final NUL.
    const MAX_UNIX_PATH: usize = 107;

    /// Kind of its socket.
    #[must_use]
    pub fn socket(&self) -> Socket<'_> {
        match self {
            Self::Tcp { host, port } => Socket::Tcp(host, *port),
            Self::Unix(path) | Self::Vhost(path) => Socket::Unix(path),
        }
    }

    /// Path of its unix socket; none for TCP.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        if let Socket::Unix(path) = self.socket() { Some(path) } else { None }
    }

    /// Protocol of its clients.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Tcp { .. } | Self::Unix(_) => Protocol::Nbd,
            Self::Vhost(_) => Protocol::Vhost,
        }
    }

    /// Whether only this host can reach it: a unix socket, an address of the loopback network, or
    /// `localhost`. Other names are not looked up, and count as reachable from elsewhere.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self.socket() {
            Socket::Tcp(host, _) => match host.parse::<IpAddr>() {
                Ok(ip) => ip.to_canonical().is_loopback(),
                Err(_) => host == "localhost",
            },
            Socket::Unix(_) => true,
        }
    }
}

/// The reverse of its [`Display`](fmt::Display), which has paths without `//` and `.`.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let unix = text.strip_prefix("unix:").map(|path| (path, Self::Unix as fn(PathBuf) -> Self));
        let vhost = || text.strip_prefix("vhost-user:").map(|path| (path, Self::Vhost as _));
        if let Some((path, address)) = unix.or_else(vhost) {
            // One spelling, without `//` and `.`, as an address is told from others by its text.
            let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
            let path: PathBuf = parts.collect();
            return match path.as_os_str().as_bytes() {
                // The kernel's paths end at a NUL.
                bytes if bytes.is_empty() || bytes.contains(&0) => Err(AddressError::Shape),
                bytes if bytes.len() > Self::MAX_UNIX_PATH => Err(AddressError::TooLong),
                _ => Ok(address(path)),
            };
        }
        let tcp = text.strip_prefix("tcp:").and_then(|rest| rest.rsplit_once(':'));
        let (host, port) = tcp.ok_or(AddressError::Shape)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        match port.parse() {
            Ok(port) if !host.is_empty() => Ok(Self::Tcp { host: host.to_owned(), port }),
            _ => Err(AddressError::Shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_local_only_if_it_says_so_itself() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        for text in ["unix:s", "tcp:127.0.0.1:1", "tcp:127.8.0.1:1", "tcp:[::1]:1"] {
            assert!(local(text), "{text}");
        }
        assert!(local("tcp:localhost:1") && local("tcp:[::ffff:127.0.0.1]:1"));
        for text in ["tcp:0.0.0.0:1", "tcp:[::]:1", "tcp:10.0.0.1:1", "tcp:kvm-01:1"] {
            assert!(!local(text), "{text}");
        }
    }

    #[test]
    fn a_path_of_a_socket_has_one_spelling() {
        let address = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for text in ["unix:/run//s", "unix:/run/./s", "unix:/./run/s/"] {
            assert_eq!(address(text).unwrap(), "unix:/run/s", "{text}");
        }
        assert_eq!(address("vhost-user:./a/../s").unwrap(), "vhost-user:a/../s");
        assert_eq!(address("unix:./."), Err(AddressError::Shape));
    }

    #[test]
    fn a_path_ends_where_the_kernel_ends_it() {
        assert_eq!("unix:/run/s\0.sock".parse::<Address>(), Err(AddressError::Shape));
    }
}
