//! The agent's HTTP servers as the configuration and their certificates change.

use std::time::Duration;

use parda_address::Address;
use parda_awake::Instant;

use super::HttpServer;
use crate::api::Api;
use crate::config::Http;
use crate::status::HttpPlace;

/// Interval of retries for an address that cannot be bound, or a certificate that cannot be used. Also the interval of looks for shown
/// certificates that expire.
const PAUSE: Duration = Duration::from_secs(10);

/// The servers at the addresses of the configuration. A faulty server is tried again later, as disks must not wait for it.
#[derive(Default)]
pub(crate) struct HttpServers {
    servers: Vec<HttpServer>,
    /// Time at which [`HttpServers::serve`] is due again.
    pub(crate) due: Option<Instant>,
}

impl HttpServers {
    /// Serves at these places, with the certificates of now. Faults are logged once, and once more after a reload.
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

    /// Serves at one place. Whether it is answered there, and the fault that there is. A server whose certificate has expired is stopped:
    /// none would start with it either. `again`: the certificate is read again in any case, not only before it expires.
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
            Err(error) => {
                let help = error.downcast_ref().and_then(parda_block::error_help);
                (false, Some(format!("{error}{}", help.unwrap_or_default())))
            }
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
