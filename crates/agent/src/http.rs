//! The agent's HTTP server at its address, and the parts that are not served.

pub(crate) mod servers;

use std::error::Error;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use parda_address::Socket;
use parda_block::SocketFile;
use parda_http::{ClientReach, HttpListener, ServerThread};
use parda_tls::{Acceptor, FileError};

use crate::config::Http;
use crate::socket::bind;
use crate::status::{DiskState, Status};
use parda_input::escaped;

/// A server at the address of the configuration, until it is dropped.
pub(crate) struct HttpServer {
    place: Http,
    /// TLS of its clients, with the certificate that is shown.
    tls: Option<Arc<Acceptor>>,
    _server: ServerThread,
    _file: Option<SocketFile>,
}

impl HttpServer {
    /// Reads the certificate, binds the address and serves there.
    ///
    /// # Errors
    /// The certificate cannot be used, or the address cannot be bound.
    fn start(place: &Http, agent: impl parda_http::Agent) -> Result<HttpServer, Box<dyn Error>> {
        let Http { address, tls } = place;
        let reach = match tls {
            _ if address.path().is_some() => ClientReach::Unix,
            _ if address.is_local() => ClientReach::Loopback,
            Some(_) => ClientReach::Tls,
            None => ClientReach::Plain,
        };
        let tls = tls.clone().map(Acceptor::new).transpose()?.map(Arc::new);
        let (listener, file) = match address.socket() {
            Socket::Unix(path) => {
                let (listener, file) = bind(path)?;
                (HttpListener::Unix(listener), Some(file))
            }
            Socket::Tcp(host, port) => {
                let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
                (HttpListener::Tcp(TcpListener::bind(&*addresses)?), None)
            }
        };
        let server = ServerThread::start(listener, tls.clone(), Arc::new(agent), reach)?;
        Ok(HttpServer { place: place.clone(), tls, _server: server, _file: file })
    }

    /// Reads the certificate again, and shows it from then on.
    ///
    /// # Errors
    /// The certificate cannot be used, and the one from before is still shown. The one from before is shown.
    fn renew(&self) -> Result<(), FileError> {
        if let Some(ours) = &self.tls {
            ours.renew(&Acceptor::new(ours.files().clone())?);
        }
        Ok(())
    }

    /// Whether the certificate that is shown is valid, `ahead` from now.
    fn is_in_force(&self, ahead: Duration) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_in_force(ahead))
    }
}

/// Configured parts that are not served now, with the reason, one a line.
pub(crate) fn lacking(status: &Status) -> String {
    let mut text = String::new();
    // Names and messages of others may hold line breaks.
    let mut say = |what: &str, fault: Option<&str>| {
        let fault = fault.map_or(String::new(), |fault| format!(": {fault}"));
        text.push_str(&escaped(&format!("{what}{fault}"), |_| false));
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
        for listener in volume.listeners.iter().filter(|listener| !listener.is_bound) {
            if let Some(fault) = &listener.fault {
                say(&format!("volume {}: {}", volume.name, listener.address), Some(fault));
            }
        }
        if let Some(steer) = volume.steer.as_ref().filter(|steer| steer.fault.is_some()) {
            let what = match &steer.qemu {
                Some(_) => "a VM is not throttled",
                None => "its device is not steered",
            };
            say(&format!("volume {}: {what}", volume.name), steer.fault.as_deref());
        }
    }
    text
}

#[cfg(test)]
mod tests;
