//! The agent's HTTP server at its address, and what is not served.

use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parda_address::Address;
use parda_block::SocketFile;
use parda_http::{Listener, Reach, Server};
use parda_tls::{Acceptor, FileError};

use crate::api::Api;
use crate::config::Http;
use crate::safe::escaped;
use crate::socket::bind;
use crate::status::{DiskState, HttpPlace, Status};

/// After what time an address that cannot be bound, or a certificate that cannot be used, is tried again; and how often it is looked
/// whether certificates that are shown expire.
const PAUSE: Duration = Duration::from_secs(10);

/// The servers at the addresses of the configuration. What has a fault is tried again later, as disks must not wait for it.
#[derive(Default)]
pub(crate) struct HttpServers {
    servers: Vec<HttpServer>,
    due: Option<Instant>,
}

impl HttpServers {
    /// When [`HttpServers::serve`] is to be called again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Serves at these places, with the certificates of now. Faults are told once, and once more after a reload.
    pub(crate) fn serve(&mut self, wanted: &[Http], api: &Api, reloaded: bool) {
        // Old and new addresses may overlap.
        self.servers.retain(|server| {
            let stays = wanted.contains(&server.place);
            if !stays {
                tracing::info!(address = %server.place.address, "no HTTP server there any more");
            }
            stays
        });
        let before = api.views.about().http.clone();
        let mut shown = Vec::new();
        for place in wanted {
            let name = place.address.to_string();
            let before = before.iter().find(|other| other.address == name);
            let before = before.and_then(|place| Some((place.up, place.fault.as_deref()?)));
            let (up, fault) = self.serve_at(place, api, reloaded || before.is_some());
            let news = |fault: &&str| reloaded || before != Some((up, *fault));
            if let Some(fault) = fault.as_deref().filter(news) {
                say_fault(&place.address, up, fault);
            } else if fault.is_none() && before.is_some() {
                tracing::info!(address = name, event = "http_up", "HTTP has no fault any more");
            }
            shown.push(HttpPlace { address: name, up, fault });
        }
        let look = shown.iter().any(|place| place.fault.is_some())
            || self.servers.iter().any(|server| server.tls.is_some());
        self.due = look.then(|| Instant::now() + PAUSE);
        api.views.about().http = shown;
    }

    /// Serves at one place. Whether it is answered there, and the fault that there is. Who shows a certificate that has expired is
    /// stopped: nobody would start with it either. `again`: the certificate is read again in any case, not only before it expires.
    fn serve_at(&mut self, place: &Http, api: &Api, again: bool) -> (bool, Option<String>) {
        if let Some(at) = self.servers.iter().position(|server| server.place == *place) {
            let server = &self.servers[at];
            if !again && server.is_in_force(PAUSE) {
                return (true, None);
            }
            let fault = server.renew().err().map(|error| error.to_string());
            let up = fault.is_none() || server.is_in_force(Duration::ZERO);
            if !up {
                self.servers.remove(at);
            }
            return (up, fault);
        }
        match HttpServer::start(place, api.clone()) {
            Ok(server) => {
                let address = &place.address;
                tracing::info!(%address, tls = place.tls.is_some(), "serves HTTP");
                self.servers.push(server);
                (true, None)
            }
            Err(error) => (false, Some(error.to_string())),
        }
    }
}

fn say_fault(address: &Address, up: bool, fault: &str) {
    if up {
        tracing::error!(
            %address,
            event = "http_certificate",
            "HTTP: {fault}; the certificate from before is shown, and the file is tried again"
        );
    } else {
        tracing::error!(%address, event = "http_down", "no HTTP server: {fault}; it is tried again");
    }
}

/// A server at the address of the configuration, until it is dropped.
struct HttpServer {
    place: Http,
    /// TLS of its clients, with the certificate that is shown.
    tls: Option<Arc<Acceptor>>,
    _server: Server,
    _file: Option<SocketFile>,
}

/// Reason why nobody is answered at an address.
#[derive(Debug, thiserror::Error)]
enum HttpError {
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Certificate(#[from] FileError),
    /// The address cannot be bound, or there is no thread to be had.
    #[error("{error}{help}", error = .0, help = parda_block::error_help(.0).unwrap_or_default())]
    System(#[from] io::Error),
}

impl HttpServer {
    /// Reads the certificate, binds the address and serves there.
    ///
    /// # Errors
    /// The certificate cannot be used, or the address cannot be bound.
    fn start(place: &Http, agent: impl parda_http::Agent) -> Result<HttpServer, HttpError> {
        let Http { address, tls } = place;
        let reach = match (address, tls) {
            (Address::Unix(_) | Address::Vhost(_), _) => Reach::Unix,
            (Address::Tcp { .. }, _) if address.is_local() => Reach::Loopback,
            (Address::Tcp { .. }, Some(_)) => Reach::Tls,
            (Address::Tcp { .. }, None) => Reach::Plain,
        };
        let tls = tls.clone().map(Acceptor::new).transpose()?.map(Arc::new);
        let (listener, file) = match address {
            Address::Unix(path) | Address::Vhost(path) => {
                let (listener, file) = bind(path)?;
                (Listener::Unix(listener), Some(file))
            }
            Address::Tcp { host, port } => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                (Listener::Tcp(TcpListener::bind(&*addresses)?), None)
            }
        };
        let server = Server::start(listener, tls.clone(), Arc::new(agent), reach)?;
        Ok(HttpServer { place: place.clone(), tls, _server: server, _file: file })
    }

    /// Reads the certificate again, and shows it from then on.
    ///
    /// # Errors
    /// It cannot be used. The one from before is shown.
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

/// What is configured and not served now, with the reason, one a line.
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
            let what = if steer.qemu.is_some() {
                "a VM is not throttled"
            } else {
                "its device is not steered"
            };
            say(&format!("volume {}: {what}", volume.name), steer.fault.as_deref());
        }
    }
    text
}

#[cfg(test)]
mod tests;
