//! `parda peers`.

use clap::Args;
use parda_api::State;

use crate::api::Agent;
use crate::output::{align, number, plain};
use crate::{Failure, output};

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
        if self.json {
            let mut hosts = Vec::new();
            for volume in &volumes {
                for host in &volume.hosts {
                    let mut one = serde_json::json!(host);
                    one["volume"] = volume.name.as_str().into();
                    hosts.push(one);
                }
            }
            return output::json("-".as_ref(), &hosts);
        }
        let headers = [
            "host",
            "volume",
            "state",
            "seen s ago",
            "shares",
            "window",
            "latency ms",
            "IO/s",
            "outstanding",
        ];
        let mut table = plain(headers);
        for volume in &volumes {
            for host in &volume.hosts {
                let name = output::line(&host.name);
                table.add_row([
                    if host.own { format!("{name} (this)") } else { name },
                    output::line(&volume.name),
                    host.liveness.to_string(),
                    format!("{:.1}", host.age_s),
                    host.shares.to_string(),
                    number(host.window, 2),
                    number(host.latency_ms, 2),
                    number(host.iops, 0),
                    format!("{:.1}", host.outstanding),
                ]);
            }
        }
        output::print(&align(table).to_string())
    }
}
