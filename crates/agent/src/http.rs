//! The agent's HTTP server at its address, and what is not served.

use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::sync::Arc;

use parda_block::SocketFile;
use parda_http::{Listener, Reach, Server};
use parda_nbd::uri::Address;

use crate::config::Http;
use crate::server::bind;
use crate::status::{DiskState, Status};

/// A server at the address of the configuration, until it is dropped.
pub(crate) struct HttpServer {
    place: Http,
    _server: Server,
    _file: Option<SocketFile>,
}

impl HttpServer {
    /// Binds the address and serves there.
    ///
    /// # Errors
    /// The address cannot be bound, or there is no thread to be had.
    pub(crate) fn start(place: &Http, agent: impl parda_http::Agent) -> io::Result<HttpServer> {
        let Http { address, tls } = place;
        let reach = match (address, tls) {
            (Address::Unix(_), _) => Reach::Unix,
            (Address::Tcp { .. }, _) if address.is_local() => Reach::Loopback,
            (Address::Tcp { .. }, Some(_)) => Reach::Tls,
            (Address::Tcp { .. }, None) => Reach::Plain,
        };
        let (listener, file) = match address {
            Address::Unix(path) => {
                let (listener, file) = bind(path)?;
                (Listener::Unix(listener), Some(file))
            }
            Address::Tcp { host, port } => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                (Listener::Tcp(TcpListener::bind(&*addresses)?), None)
            }
        };
        let server = Server::start(listener, tls.clone(), Arc::new(agent), reach)?;
        Ok(HttpServer { place: place.clone(), _server: server, _file: file })
    }

    /// Address of the configuration at which it serves.
    pub(crate) fn address(&self) -> &Address {
        &self.place.address
    }

    /// Whether it is what a configuration wants. Certificates are those of the configuration from then on.
    pub(crate) fn stays(&self, wanted: &[Http]) -> bool {
        let Some(wanted) = wanted.iter().find(|wanted| **wanted == self.place) else {
            return false;
        };
        if let (Some(ours), Some(theirs)) = (&self.place.tls, &wanted.tls) {
            ours.renew(theirs);
        }
        true
    }
}

/// What is configured and not served now, with the reason, one a line.
pub(crate) fn lacking(status: &Status) -> String {
    let mut text = String::new();
    // Names and messages of others may hold line breaks.
    let mut say = |what: &str, fault: Option<&str>| {
        let fault = fault.map_or(String::new(), |fault| format!(": {fault}"));
        let control =
            |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
        text.extend(what.chars().chain(fault.chars()).map(control));
        text.push('\n');
    };
    for volume in &status.volumes {
        if let Some(fault) = &volume.fault {
            say(&format!("volume {} does not run", volume.name), Some(fault));
        }
        for disk in &volume.disks {
            if disk.state == DiskState::Serving && disk.fault.is_none() {
                continue;
            }
            let what = format!("volume {}: disk {} is {}", volume.name, disk.name, disk.state);
            say(&what, disk.fault.as_deref());
        }
        for listener in &volume.listeners {
            if let Some(fault) = &listener.fault {
                say(&format!("volume {}: {}", volume.name, listener.address), Some(fault));
            }
        }
        if let Some(fault) = volume.steer.as_ref().and_then(|steer| steer.fault.as_deref()) {
            say(&format!("volume {}: its device is not steered", volume.name), Some(fault));
        }
    }
    text
}

#[cfg(test)]
mod tests;
