//! The URL of a member of an etcd cluster.

use std::fmt;
use std::net::IpAddr;

use ureq::http::Uri;

/// The client URL of a member: `https://HOST:PORT`, or `http://HOST:PORT` without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    host: String,
    tls: bool,
}

/// Faults of a text that is no endpoint: its form, a secret in it, or text after the port.
const FORM: &str = "must be https://HOST:PORT, or http://HOST:PORT without TLS; IPv6 as [ADDRESS]";
const SECRET: &str = "must not hold a user or password: there are keys for both";
const PATH: &str = "must end after the port: paths are etcd's own";

/// Port of etcd's clients, where none is given.
const PORT: u16 = 2379;

impl Endpoint {
    /// Reads a URL. Without a port it is 2379.
    pub fn parse(text: &str) -> Result<Endpoint, &'static str> {
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(FORM),
        };
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err(SECRET);
        }
        let after = uri.path_and_query().map_or("/", |rest| rest.as_str());
        if !matches!(after, "" | "/") || text.contains('#') {
            return Err(PATH);
        }
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(PORT);
        let is_address = host.len() == bare.len() || bare.parse::<IpAddr>().is_ok();
        let said = authority.as_str().len() > host.len();
        if bare.is_empty() || port == 0 || !is_address || (said && authority.port_u16().is_none()) {
            return Err(FORM);
        }
        let scheme = if tls { "https" } else { "http" };
        Ok(Endpoint { url: format!("{scheme}://{host}:{port}"), host: bare.to_owned(), tls })
    }

    /// Whether it is reached with TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls
    }

    /// Name or address of the member, IPv6 without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the host is a loopback address or `localhost`. Other names are not looked up.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// URL without a path, with its port.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_members_are_read_and_all_others_refused() {
        let shown = |text| Endpoint::parse(text).map(|endpoint| endpoint.to_string());
        for (text, url) in [
            ("https://etcd-1:2379", "https://etcd-1:2379"),
            ("https://etcd-1", "https://etcd-1:2379"),
            ("http://127.0.0.1:4001/", "http://127.0.0.1:4001"),
            ("https://[2001:db8::1]:2379", "https://[2001:db8::1]:2379"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(url));
        }
        for (text, fault) in [
            ("", FORM),
            ("etcd-1:2379", FORM),
            ("ftp://etcd-1", FORM),
            ("https://", FORM),
            ("https://:2379", FORM),
            ("https://etcd-1:0", FORM),
            ("https://etcd-1:", FORM),
            ("https://etcd-1:99999", FORM),
            ("https://[zz]:2379", FORM),
            ("https://root:secret@etcd-1", SECRET),
            ("https://etcd-1/v3", PATH),
            ("https://etcd-1?x", PATH),
        ] {
            assert_eq!(shown(text), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn loopback_is_known_by_address_and_name() {
        let is = |text| Endpoint::parse(text).unwrap().is_loopback();
        assert!(is("http://127.3.2.1:1") && is("http://localhost") && is("http://[::1]:1"));
        assert!(!is("http://10.0.0.1") && !is("http://etcd-1"));
    }
}
