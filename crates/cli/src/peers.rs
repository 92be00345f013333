//! `parda peers`.

use clap::Args;
use parda_api::{Host, State};
use parda_terminal::output::{number, numbers};
use parda_terminal::{Failure, output};

use crate::agent::api::Agent;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda peers                   the hosts of all volumes, as this one hears them
  parda peers --json | jq '.[] | select(.liveness != \"live\").name'")]
pub(crate) struct Peers {
    /// Only this volume
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Write the hosts as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Peers {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let state: State = self.agent.get("state")?;
        let wanted = |name: &str| self.volume.as_ref().is_none_or(|volume| volume == name);
        let volumes: Vec<_> = state.volumes.iter().filter(|v| wanted(&v.name)).collect();
        if let (Some(volume), []) = (&self.volume, &volumes[..]) {
            return Err(Failure::usage(format!("volume {volume:?}: there is no such volume")));
        }
        let hosts: Vec<(&str, &Host)> = volumes
            .iter()
            .flat_map(|volume| volume.hosts.iter().map(|host| (volume.name.as_str(), host)))
            .collect();
        let objects = hosts.iter().map(|(volume, host)| {
            let mut object = serde_json::json!(host);
            object["volume"] = (*volume).into();
            object
        });
        output::tell_as(self.json, &objects.collect::<Vec<_>>(), |_| {
            let head = "host|volume|state|seen s ago|shares|window|latency ms|IO/s|outstanding";
            let rows = hosts.iter().map(|(volume, host)| {
                let name = output::line(&host.name);
                [
                    if host.own { format!("{name} (this)") } else { name },
                    output::line(volume),
                    match (&host.doubt, host.ignored) {
                        (_, true) => "ignored".to_owned(),
                        (Some(_), _) => format!("{}, not believed", host.liveness),
                        (None, _) => host.liveness.to_string(),
                    },
                    format!("{:.1}", host.age_s),
                    host.shares.to_string(),
                    number(host.window, 2),
                    number(host.latency_ms, 2),
                    number(host.iops, 0),
                    format!("{:.1}", host.outstanding),
                ]
            });
            let mut text = numbers(head, rows).to_string();
            for (volume, exchange) in
                volumes.iter().filter_map(|of| Some((&of.name, of.exchange.as_ref()?)))
            {
                let faults = exchange.fault.iter().chain(&exchange.silence);
                let faults = faults.map(|fault| ("FAULT", fault));
                for (what, said) in faults.chain(exchange.one_way.iter().map(|of| ("ONE WAY", of)))
                {
                    text += &format!("\n{what}: {}", output::line(&format!("{volume}: {said}")));
                }
            }
            text
        })
    }
}
