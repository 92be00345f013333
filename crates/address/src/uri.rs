//! NBD URIs (the NetworkBlockDevice project's `doc/uri.md`): where a server is and which export.
//!
//! | scheme | example |
//! | --- | --- |
//! | `nbd` | `nbd://array-a.example:10809/vm1`, `nbd://[::1]/vm1` |
//! | `nbd+unix` | `nbd+unix:///vm1?socket=/run/parda/array-a.sock` |
//! | `nbds` | `nbds://array-a.example/vm1?tls-certificates=/etc/pki/parda` |
//! | `nbds+unix` | `nbds+unix:///vm1?socket=/run/a.sock&tls-hostname=array-a&tls-certificates=/etc/pki/parda` |

use std::path::PathBuf;
use std::str::FromStr;

use crate::address::Address;
use crate::certificates::{Certificates, UriTls};
use crate::export_name::{ExportName, ExportNameError};

/// The port of NBD, as registered at IANA.
const DEFAULT_PORT: u16 = 10809;

/// An NBD URI, such as `nbds://host:10809/export`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// Where the server is.
    pub address: Address,
    /// The export, empty for the server's default.
    pub export: ExportName,
    /// TLS settings, if the scheme has TLS.
    pub tls: Option<UriTls>,
}

/// Reason why a string is no NBD URI that we support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another scheme, or none.
    #[error(
        "{0:?} is not an NBD URI: it must begin with nbd://, nbd+unix://, nbds:// or nbds+unix://"
    )]
    Scheme(String),
    /// A parameter of TLS where there is none.
    #[error("{0:?} is for TLS: write nbds:// or nbds+unix://")]
    NotTls(String),
    /// The URI names no host.
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
        let Parameters { socket, certificates, hostname } = Parameters::parse(query)?;
        let (transport, secure) = match scheme {
            "nbds" => ("nbd", true),
            "nbds+unix" => ("nbd+unix", true),
            plain => (plain, false),
        };
        let address = match transport {
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
            _ => return Err(scheme_error()),
        };
        let tls = match (secure, certificates, hostname) {
            (true, certificates, hostname) => Some(UriTls {
                certificates: certificates
                    .map_or(Certificates::Unsaid, |dir| Certificates::Directory(dir.into())),
                name: hostname.unwrap_or_else(|| host(&address).to_owned()),
            }),
            (false, None, None) => None,
            (false, Some(_), _) => return Err(UriError::NotTls("tls-certificates".to_owned())),
            (false, None, Some(_)) => return Err(UriError::NotTls("tls-hostname".to_owned())),
        };
        Ok(Self { address, export: ExportName::new(unescape(export)?)?, tls })
    }
}

/// The name of the host, which for a unix socket is this one.
fn host(address: &Address) -> &str {
    match address {
        Address::Tcp { host, .. } => host,
        Address::Unix(_) | Address::Vhost(_) => "localhost",
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

/// Parameters behind the `?`, by the names that libnbd has for them.
#[derive(Default)]
struct Parameters {
    socket: Option<String>,
    certificates: Option<String>,
    hostname: Option<String>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, UriError> {
        let mut found = Self::default();
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            let unknown = || UriError::Parameter(parameter.to_owned());
            let (key, value) = parameter.split_once('=').ok_or_else(unknown)?;
            let place = match key {
                "socket" => &mut found.socket,
                "tls-certificates" if !value.is_empty() => &mut found.certificates,
                "tls-hostname" if !value.is_empty() => &mut found.hostname,
                _ => return Err(unknown()),
            };
            if place.replace(unescape(value)?).is_some() {
                return Err(unknown());
            }
        }
        Ok(found)
    }
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
            tls: None,
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
    fn tls_is_with_the_host_of_the_uri_unless_it_says_another_name() {
        let tls = |text: &str| text.parse::<Uri>().unwrap().tls;
        let directory = |dir: &str, name: &str| {
            let certificates = Certificates::Directory(dir.into());
            Some(UriTls { certificates, name: name.to_owned() })
        };
        let tcp = "nbds://array.example/x?tls-certificates=/etc/pki/a%20b";
        assert_eq!(tls(tcp), directory("/etc/pki/a b", "array.example"));
        assert_eq!(tls(&format!("{tcp}&tls-hostname=a")), directory("/etc/pki/a b", "a"));
        let unix = "nbds+unix:///x?socket=/s&tls-certificates=/c";
        assert_eq!(tls(unix), directory("/c", "localhost"));
        assert_eq!(tls("nbds://[::1]/x").unwrap().certificates, Certificates::Unsaid);
        assert_eq!(tls("nbds://[::1]/x").unwrap().name, "::1");
        assert_eq!(tls("nbd://h/x"), None);
        let error = |s: &str| s.parse::<Uri>().unwrap_err();
        for wrong in ["tls-certificates=", "tls-hostname=", "tls-psk-file=/k"] {
            assert_eq!(error(&format!("nbds://h/x?{wrong}")), UriError::Parameter(wrong.into()));
        }
        assert_eq!(
            error("nbd://h/x?tls-certificates=/c"),
            UriError::NotTls("tls-certificates".into())
        );
        assert!(matches!(error("nbd+unix:///x?socket=/s&tls-hostname=h"), UriError::NotTls(_)));
        assert!(matches!(error(&format!("{unix}&socket=/t")), UriError::Parameter(_)));
        assert!(matches!(error(&format!("{unix}&tls-certificates=/d")), UriError::Parameter(_)));
    }

    #[test]
    fn refuses_the_rest_by_name() {
        let error = |s: &str| s.parse::<Uri>().unwrap_err();
        assert!(matches!(error("http://x"), UriError::Scheme(_)));
        assert!(matches!(error("/dev/sda"), UriError::Scheme(_)));
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
