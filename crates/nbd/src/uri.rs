//! NBD URIs (the NetworkBlockDevice project's `doc/uri.md`): where a server is and which export.
//!
//! | scheme | example |
//! | --- | --- |
//! | `nbd` | `nbd://array-a.example:10809/vm1`, `nbd://[::1]/vm1` |
//! | `nbd+unix` | `nbd+unix:///vm1?socket=/run/parda/array-a.sock` |

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::export::{ExportName, ExportNameError};

/// The port of NBD, as registered at IANA.
pub const DEFAULT_PORT: u16 = 10809;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// [`DEFAULT_PORT`] unless given.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A string that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither shape.
    #[error("must be unix:PATH or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:10809")]
    Shape,
    /// More than the kernel takes.
    #[error("is too long for a socket: at most {max} bytes", max = Address::MAX_UNIX_PATH)]
    TooLong,
}

impl Address {
    /// The kernel's limit on the path of a socket, less its final NUL.
    const MAX_UNIX_PATH: usize = 107;

    /// Whether only this host can reach it: a unix socket, an address of the loopback network, or
    /// `localhost`. Other names are not looked up, and count as reachable from elsewhere.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(ip) => ip.to_canonical().is_loopback(),
                Err(_) => host == "localhost",
            },
        }
    }
}

/// The reverse of its [`Display`](fmt::Display).
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(AddressError::Shape),
                1..=Self::MAX_UNIX_PATH => Ok(Self::Unix(PathBuf::from(path))),
                _ => Err(AddressError::TooLong),
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

/// An NBD URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Where the server is.
    pub address: Address,
    /// The export, empty for the server's default.
    pub export: ExportName,
}

/// Why a string is no NBD URI that we support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another scheme, or none.
    #[error("{0:?} is not an NBD URI: it must begin with nbd:// or nbd+unix://")]
    Scheme(String),
    /// TLS.
    #[error("{0:?} asks for TLS, which is not supported: use nbd:// or nbd+unix://")]
    Tls(String),
    /// No host.
    #[error("an nbd:// URI needs a host, as in nbd://host:10809/export")]
    NoHost,
    /// User names have no meaning here.
    #[error("an NBD URI takes no user name")]
    UserInfo,
    /// A port that is no number from 1 to 65535.
    #[error("{0:?} is not a port number from 1 to 65535")]
    Port(String),
    /// A unix URI with a host.
    #[error("an nbd+unix:// URI has no host, but {0:?} was given: write nbd+unix:///export")]
    HostInUnix(String),
    /// A unix URI without a socket.
    #[error("an nbd+unix:// URI needs ?socket=/path/of/the/socket")]
    NoSocket,
    /// A parameter that has no meaning here.
    #[error("unknown parameter {0:?} in an NBD URI")]
    Parameter(String),
    /// A broken `%` escape.
    #[error("{0:?} has a % that is not followed by two hexadecimal digits, or is not UTF-8")]
    Escape(String),
    /// The name of the export.
    #[error(transparent)]
    ExportName(#[from] ExportNameError),
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(s: &str) -> Result<Self, UriError> {
        let scheme_error = || UriError::Scheme(s.to_owned());
        let (scheme, rest) = s.split_once("://").ok_or_else(scheme_error)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let socket = socket_parameter(query)?;
        let address = match scheme {
            "nbd" => {
                if socket.is_some() {
                    return Err(UriError::Parameter("socket".to_owned()));
                }
                tcp_address(authority)?
            }
            "nbd+unix" if !authority.is_empty() => {
                return Err(UriError::HostInUnix(authority.to_owned()));
            }
            "nbd+unix" => {
                let path = socket.filter(|p| !p.is_empty()).ok_or(UriError::NoSocket)?;
                Address::Unix(PathBuf::from(path))
            }
            "nbds" | "nbds+unix" => return Err(UriError::Tls(s.to_owned())),
            _ => return Err(scheme_error()),
        };
        Ok(Self { address, export: ExportName::new(unescape(export)?)? })
    }
}

fn tcp_address(authority: &str) -> Result<Address, UriError> {
    if authority.contains('@') {
        return Err(UriError::UserInfo);
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => {
            let port = rest.strip_prefix(':').ok_or_else(|| UriError::Port(rest.to_owned()))?;
            (host, Some(port))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(UriError::NoHost);
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(UriError::Port(text.to_owned())),
        },
    };
    Ok(Address::Tcp { host: unescape(host)?, port })
}

fn socket_parameter(query: &str) -> Result<Option<String>, UriError> {
    let mut socket = None;
    for parameter in query.split('&').filter(|p| !p.is_empty()) {
        match parameter.split_once('=') {
            Some(("socket", path)) if socket.is_none() => socket = Some(unescape(path)?),
            _ => return Err(UriError::Parameter(parameter.to_owned())),
        }
    }
    Ok(socket)
}

fn unescape(s: &str) -> Result<String, UriError> {
    let error = || UriError::Escape(s.to_owned());
    let mut out = Vec::with_capacity(s.len());
    let mut bytes = s.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit().ok_or_else(error)?, digit().ok_or_else(error)?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Uri {
        Uri {
            address: Address::Tcp { host: host.to_owned(), port },
            export: ExportName::new(export).unwrap(),
        }
    }

    #[test]
    fn accepts_what_the_uri_document_shows() {
        for (text, uri) in [
            ("nbd://example.com", tcp("example.com", 10809, "")),
            ("nbd://example.com/", tcp("example.com", 10809, "")),
            ("nbd://10.0.0.1:99/a/b", tcp("10.0.0.1", 99, "a/b")),
            ("nbd://[fe80::1]:99/vm%201", tcp("fe80::1", 99, "vm 1")),
            ("nbd://[::1]/x", tcp("::1", 10809, "x")),
        ] {
            assert_eq!(text.parse(), Ok(uri), "{text}");
        }
        let unix: Uri = "nbd+unix:///vm1?socket=/run/a%20b.sock".parse().unwrap();
        assert_eq!(unix.address, Address::Unix("/run/a b.sock".into()));
        assert_eq!(unix.export.as_str(), "vm1");
    }

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
    fn refuses_the_rest_by_name() {
        let error = |s: &str| s.parse::<Uri>().unwrap_err();
        assert!(matches!(error("http://x"), UriError::Scheme(_)));
        assert!(matches!(error("/dev/sda"), UriError::Scheme(_)));
        assert!(matches!(error("nbds://x"), UriError::Tls(_)));
        assert_eq!(error("nbd:///x"), UriError::NoHost);
        assert_eq!(error("nbd://u@h/x"), UriError::UserInfo);
        assert_eq!(error("nbd://h:0/x"), UriError::Port("0".into()));
        assert_eq!(error("nbd://h:65536/x"), UriError::Port("65536".into()));
        assert_eq!(error("nbd://[::1]x/x"), UriError::Port("x".into()));
        assert_eq!(error("nbd+unix://h/x?socket=/s"), UriError::HostInUnix("h".into()));
        assert_eq!(error("nbd+unix:///x"), UriError::NoSocket);
        assert_eq!(error("nbd+unix:///x?socket="), UriError::NoSocket);
        assert_eq!(error("nbd://h/x?tls=1"), UriError::Parameter("tls=1".into()));
        assert!(matches!(error("nbd://h/%zz"), UriError::Escape(_)));
        assert!(matches!(error("nbd://h/%ff"), UriError::Escape(_)));
        assert_eq!(error("nbd://h/%00"), UriError::ExportName(ExportNameError::Nul));
    }
}
