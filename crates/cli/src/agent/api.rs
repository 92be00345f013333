//! The agent that a command asks over its HTTP API.

use std::path::PathBuf;

use clap::Args;
use parda_address::Socket;
use parda_agent::config::api_beside;
use parda_api::State;
use parda_http::client::{AgentAddress, HttpError, ask};
use parda_input::Pipe;
use parda_terminal::{Failure, output};
use parda_tls::{ClientFiles, Connector};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{Named, no_status, unanswered};
use crate::input::configuration;

/// Most bytes of a token's file.
const MOST_TOKEN: u64 = 64 << 10;

/// Where the agent is.
#[derive(Args)]
pub(crate) struct Agent {
    #[command(flatten)]
    agent: Named,
    /// The agent's HTTP server on another host: http://ADDRESS:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "socket"])]
    url: Option<String>,
    /// The CA of the agent's certificate, for https
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// File with the secret of a token, for a TCP address
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Agent {
    /// Server of the agent's API: its unix socket, if there is one.
    fn server(&self) -> Result<AgentAddress, Failure> {
        if let Some(url) = &self.url {
            return self.at(url);
        }
        if let Some(socket) = self.agent.named()? {
            return Ok(AgentAddress::Unix(api_beside(&socket)));
        }
        let config = &self.agent.config;
        let places = configuration(config)?.http_places();
        let unix = places.iter().find(|place| place.address.path().is_some());
        let place = unix.or(places.first());
        match place.map(|place| (place.address.socket(), place)) {
            Some((Socket::Unix(path), _)) => Ok(AgentAddress::Unix(path.to_owned())),
            Some((Socket::Tcp(host, port), place)) if place.tls.is_none() => {
                Ok(AgentAddress::Tcp(match host.contains(':') {
                    true => format!("[{host}]:{port}"),
                    false => format!("{host}:{port}"),
                }))
            }
            Some((_, place)) => Err(Failure::usage(format!(
                "{}: http.tls: name the agent as its certificate does: --url https://HOST:PORT --ca FILE, \
                 where {} is",
                config.display(),
                place.address
            ))),
            None => Err(no_status(config)),
        }
    }

    fn at(&self, url: &str) -> Result<AgentAddress, Failure> {
        let authority = |scheme: &str| {
            url.strip_prefix(scheme).map(|rest| rest.trim_end_matches('/').to_owned())
        };
        if let Some(path) = url.strip_prefix("unix:") {
            return Ok(AgentAddress::Unix(path.into()));
        }
        if let Some(authority) = authority("http://") {
            return Ok(AgentAddress::Tcp(authority));
        }
        let Some(authority) = authority("https://") else {
            return Err(Failure::usage(format!(
                "--url {url}: must be http://ADDRESS:PORT or https://HOST:PORT; an agent of this host is named by \
                 --socket PATH"
            )));
        };
        let Some(ca) = self.ca.clone() else {
            return Err(Failure::usage(
                "--ca: is missing: the CA of the agent's certificate, for https",
            ));
        };
        let name = authority.rsplit_once(':').map_or(authority.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let connector = Connector::new(&ClientFiles { ca, identity: None, name });
        Ok(AgentAddress::Tls(
            authority,
            connector.map_err(|error| Failure::usage(error.to_string()))?,
        ))
    }

    /// Asks for something, below `/api/v1/`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask("GET", path, None)
    }

    /// The volume that is meant, by its name or by that of one of its disks.
    pub(crate) fn volume_of(
        &self,
        volume: Option<&str>,
        disk: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<String, Failure> {
        if let Some(volume) = volume {
            return Ok(volume.to_owned());
        }
        let state: State = self.get("state")?;
        let has = |volume: &&parda_api::Volume| {
            disk.is_none_or(|disk| vms(volume).any(|(key, name)| key == disk || name == disk))
                && tenant.is_none_or(|it| volume.tenants.iter().any(|tenant| tenant.name == it))
        };
        let volumes: Vec<_> = state.volumes.iter().filter(has).map(|v| v.name.clone()).collect();
        let none = |kind: &str, name: &str, all: String| {
            Err(Failure::usage(format!("{kind} {name:?}: no volume has one; {all}")))
        };
        match (&volumes[..], disk, tenant) {
            ([one], ..) => Ok(one.clone()),
            ([], Some(disk), _) => {
                let all = state.volumes.iter().flat_map(vms).map(|(key, _)| key);
                none("disk", disk, there_are(all))
            }
            ([], None, Some(tenant)) => {
                let all = state.volumes.iter().flat_map(|volume| &volume.tenants);
                none("tenant", tenant, there_are(all.map(|tenant| tenant.name.as_str())))
            }
            _ => Err(Failure::usage(format!(
                "--volume: name one of {}",
                output::line(&volumes.join(", "))
            ))),
        }
    }

    /// Sends a request, and reads its answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let server = self.server()?;
        let token = self.token_file.as_ref().map(|file| -> Result<String, Failure> {
            let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
            let text = parda_input::read_text(file, MOST_TOKEN, Pipe::Taken);
            text.map_err(|fault| fault.to_string()).and_then(secret).map_err(wrong)
        });
        let path = format!("/api/v1/{path}");
        let answer = ask(&server, method, &path, body, token.transpose()?.as_deref());
        let answer = answer.map_err(|error| match error {
            HttpError::Refused(400 | 404 | 409, error) => Failure::usage(error),
            HttpError::Connect(ref cause) => {
                Failure::new(format!("{server}: {error}{}", unanswered(cause)))
            }
            HttpError::NotHttp(_) if matches!(server, AgentAddress::Tcp(_)) => Failure::usage(format!(
                "{server}: {error}: an agent with TLS is named by --url https://HOST:PORT --ca FILE"
            )),
            error => Failure::new(format!("{server}: {error}")),
        })?;
        serde_json::from_value(answer).map_err(|error| {
            Failure::new(format!("{server}: the answer is of another version: {error}"))
        })
    }
}

/// The secret that a file of a client holds alone. No message shows it.
fn secret(text: String) -> Result<String, String> {
    let of_agent = "the agent's own file has lines NAME ROLE SECRET: put the SECRET of one of them alone into a file";
    match text.trim() {
        "" => Err(format!("is empty: must hold the secret of a token; {of_agent}")),
        secret if secret.lines().count() > 1 => {
            let lines = secret.lines().count();
            Err(format!("has {lines} lines: must hold one secret; {of_agent}"))
        }
        secret if secret.contains(char::is_whitespace) => {
            Err(format!("has more than a secret in its line; {of_agent}"))
        }
        secret if !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("has bytes that no token has: letters, digits and signs of ASCII".to_owned())
        }
        secret => Ok(secret.to_owned()),
    }
}

/// Keys and names of a volume's disks or steered VMs. VMs of one pattern are set together, by its name.
fn vms(volume: &parda_api::Volume) -> impl Iterator<Item = (&str, &str)> {
    let disks = volume.disks.iter().map(|disk| (disk.key.as_str(), disk.name.as_str()));
    let vms = volume.steer.iter().flat_map(|steer| &steer.vms).map(|vm| {
        let pattern = vm.name.split_once('/').map_or(vm.name.as_str(), |(pattern, _)| pattern);
        (vm.key.as_str(), pattern)
    });
    disks.chain(vms)
}

/// The first of the names that there are.
fn there_are<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const TOLD: usize = 20;
    let (told, more): (Vec<_>, Vec<_>) = names.enumerate().partition(|(at, _)| *at < TOLD);
    let told: Vec<_> = told.into_iter().map(|(_, name)| name).collect();
    let more = if more.is_empty() { "" } else { ", … (parda status)" };
    output::line(&format!("there are: {}{more}", told.join(", ")))
}

/// A part of a path, escaped.
pub(crate) fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
