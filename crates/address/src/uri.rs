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

use crate::address::{Address, Socket};
use crate::certificates::{Certificates, UriTls};
use crate::export_name::ExportName;

/// The port of NBD, as registered at IANA.
const DEFAULT_PORT: u16 = 10809;

/// An NBD URI, such as `nbds://host:10809/export`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// Address of the server.
    pub address: Address,
    /// The export, empty for the server's default.
    pub export: ExportName,
    /// TLS settings, if the scheme has TLS.
    pub tls: Option<UriTls>,
}

/// Reason why a string is no NBD URI that we support, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UriError(String);

fn refuse<T>(why: impl Into<String>) -> Result<T, UriError> {
    Err(UriError(why.into()))
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(s: &str) -> Result<Self, UriError> {
        let other_scheme = || {
            refuse(format!(
                "{s:?} is not an NBD URI: it must begin with nbd://, nbd+unix://, nbds:// or nbds+unix://"
            ))
        };
        let Some((scheme, rest)) = s.split_once("://") else { return other_scheme() };
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
                    return unknown("socket");
                }
                tcp_address(authority)?
            }
            "nbd+unix" if !authority.is_empty() => {
                return refuse(format!(
                    "an nbd+unix:// URI has no host, but {authority:?} was given: write nbd+unix:///export"
                ));
            }
            "nbd+unix" => {
                let Some(path) = socket.filter(|p| !p.is_empty()) else {
                    return refuse("an nbd+unix:// URI needs ?socket=/path/of/the/socket");
                };
                Address::Unix(PathBuf::from(path))
            }
            _ => return other_scheme(),
        };
        let tls = match (secure, certificates, hostname) {
            (true, certificates, hostname) => Some(UriTls {
                certificates: certificates
                    .map_or(Certificates::Unsaid, |dir| Certificates::Directory(dir.into())),
                name: hostname.unwrap_or_else(|| host(&address).to_owned()),
            }),
            (false, None, None) => None,
            (false, certificates, _) => {
                let for_tls =
                    if certificates.is_some() { "tls-certificates" } else { "tls-hostname" };
                return refuse(format!("{for_tls:?} is for TLS: write nbds:// or nbds+unix://"));
            }
        };
        let export = ExportName::new(unescape(export)?).or_else(|e| refuse(e.to_string()))?;
        Ok(Self { address, export, tls })
    }
}

/// The name of the host, which for a unix socket is this one.
fn host(address: &Address) -> &str {
    match address.socket() {
        Socket::Tcp(host, _) => host,
        Socket::Unix(_) => "localhost",
    }
}

fn tcp_address(authority: &str) -> Result<Address, UriError> {
    if authority.contains('@') {
        return refuse("an NBD URI takes no user name");
    }
    let no_port = |text: &str| refuse(format!("{text:?} is not a port number from 1 to 65535"));
    let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => {
            let Some(port) = rest.strip_prefix(':') else { return no_port(rest) };
            (host, Some(port))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return refuse("an nbd:// URI needs a host, as in nbd://host:10809/export");
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port != 0 => port,
            _ => return no_port(text),
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
            let Some((key, value)) = parameter.split_once('=') else { return unknown(parameter) };
            let place = match key {
                "socket" => &mut found.socket,
                "tls-certificates" if !value.is_empty() => &mut found.certificates,
                "tls-hostname" if !value.is_empty() => &mut found.hostname,
                _ => return unknown(parameter),
            };
            if place.replace(unescape(value)?).is_some() {
                return unknown(parameter);
            }
        }
        Ok(found)
    }
}

fn unknown<T>(parameter: &str) -> Result<T, UriError> {
    refuse(format!("unknown parameter {parameter:?} in an NBD URI"))
}

fn unescape(s: &str) -> Result<String, UriError> {
    let error = || {
        UriError(format!(
            "{s:?} has a % that is not followed by two hexadecimal digits, or is not UTF-8"
        ))
    };
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
        for wrong in ["tls-certificates=", "tls-hostname=", "tls-psk-file=/k"] {
            refused(&format!("nbds://h/x?{wrong}"), &format!("unknown parameter {wrong:?}"));
        }
        refused("nbd://h/x?tls-certificates=/c", "\"tls-certificates\" is for TLS");
        refused("nbd+unix:///x?socket=/s&tls-hostname=h", "\"tls-hostname\" is for TLS");
        refused(&format!("{unix}&socket=/t"), "unknown parameter \"socket=/t\"");
        refused(&format!("{unix}&tls-certificates=/d"), "unknown parameter");
    }

    fn refused(uri: &str, why: &str) {
        let error = uri.parse::<Uri>().unwrap_err().to_string();
        assert!(error.contains(why), "{uri}: {error}");
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for (uri, why) in [
            ("http://x", "\"http://x\" is not an NBD URI"),
            ("/dev/sda", "\"/dev/sda\" is not an NBD URI"),
            ("nbd:///x", "needs a host"),
            ("nbd://u@h/x", "no user name"),
            ("nbd://h:0/x", "\"0\" is not a port number"),
            ("nbd://h:65536/x", "\"65536\" is not a port number"),
            ("nbd://[::1]x/x", "\"x\" is not a port number"),
            ("nbd+unix://h/x?socket=/s", "has no host, but \"h\""),
            ("nbd+unix:///x", "needs ?socket="),
            ("nbd+unix:///x?socket=", "needs ?socket="),
            ("nbd://h/x?tls=1", "unknown parameter \"tls=1\""),
            ("nbd://h/x?socket=/s", "unknown parameter \"socket\""),
            ("nbd://h/%zz", "hexadecimal digits"),
            ("nbd://h/%ff", "not UTF-8"),
            ("nbd://h/%00", "must not contain a NUL byte"),
        ] {
            refused(uri, why);
        }
    }
}
