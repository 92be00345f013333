//! `[http]`: where metrics and health are, checked.

use parda_address::{Address, Protocol};
use parda_config::{Document, Error};
use parda_tls::ServerFiles;

use crate::file;

/// A place of the HTTP server.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Address of the server.
    pub address: Address,
    /// TLS of its clients. The server reads the files later: disks do not wait for a certificate.
    pub tls: Option<ServerFiles>,
}

/// Checks the `[http]` table of the file.
pub(super) fn check(doc: &Document, http: &file::HttpTable) -> Result<Http, Error> {
    let at = doc.part("http");
    let address: Address = at.read("address", http.address.parse())?;
    let (is_unix, is_local) = (address.path().is_some(), address.is_local());
    let is_vhost = address.protocol() == Protocol::Vhost;
    at.refuse_if(is_vhost, "address", "is for disks: vhost-user is not HTTP")?;
    let of_tcp = "is for TCP: no other host reaches a unix socket";
    at.refuse_if(http.plain && is_unix, "plain", of_tcp)?;
    at.refuse_if(http.tls.is_some() && is_unix, "tls", of_tcp)?;
    let both = http.tls.is_some() && http.plain;
    at.refuse_if(both, "plain", "contradicts tls: take one of them out")?;
    let message = "is not a loopback address, and whoever reaches it can read the names and the load of \
                   all disks: add tls and tokens, or plain = true for metrics and health alone";
    at.refuse_if(!is_local && !http.plain && http.tls.is_none(), "address", message)?;
    let message = "needs tokens, the file of those who may ask: other hosts reach the address";
    at.refuse_if(!is_local && http.tls.is_some() && http.tokens.is_none(), "tls", message)?;
    let any_port = matches!(address, Address::Tcp { port: 0, .. });
    at.refuse_if(any_port, "address", "needs a port that Prometheus can be told: 0 is any")?;
    // A browser follows the URL.
    let is_web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
    let is_url = |url: &String| is_web(url) && url.contains("{host}");
    let message = "must be a URL with {host} in it, such as https://{host}:9843/";
    at.refuse_if(!http.pages.as_ref().is_none_or(is_url), "pages", message)?;
    Ok(Http { address, tls: http.tls.clone() })
}
