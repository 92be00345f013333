//! `parda drain`: disks that take no new connections.

use std::time::{Duration, Instant};

use clap::Args;
use parda_api::{Changed, Disk, State, ValueFrom};
use parda_terminal::{Failure, output, quantity};
use serde_json::json;

use crate::agent::api::{Agent, segment};

/// Time between two looks whether clients are still connected.
const LOOK: Duration = Duration::from_millis(250);

/// Time after which the status of the agent has a change.
const SHOWN: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda drain --wait 60s                  all disks of the only volume; ends when no client is connected
  parda drain vm1                         one disk
  parda drain --undo                      new connections are taken again

Existing connections go on until their clients close them: move the VMs away, or shut them down. The part of the array
that they no longer use goes to the others. Steered devices cannot be drained: VMs open them without parda.")]
pub(crate) struct Drain {
    /// Name of the disk. None: all disks of the volume
    #[arg(value_name = "VM")]
    disk: Option<String>,
    /// Name of the volume, if there are several
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Take new connections again
    #[arg(long, conflicts_with_all = ["wait", "temporary"])]
    undo: bool,
    /// Wait until no client is connected, and fail after this time
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    wait: Option<Duration>,
    /// Drain until the agent ends: do not keep it in the state file
    #[arg(long)]
    temporary: bool,
    /// Write the disks and their clients as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Drain {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let volume = self.agent.volume_of(self.volume.as_deref(), self.disk.as_deref(), None)?;
        self.change(&volume)?;
        let began = Instant::now();
        let until = self.wait.map(|wait| began + wait);
        let disks = loop {
            let disks = self.disks(&volume)?;
            let clients: u64 = disks.iter().map(|disk| disk.clients).sum();
            let before = disks.iter().any(|disk| disk.drain == self.undo);
            match until {
                _ if before && began.elapsed() < SHOWN => std::thread::sleep(LOOK),
                Some(until) if clients > 0 && Instant::now() < until => std::thread::sleep(LOOK),
                Some(_) if clients > 0 => {
                    let wait = humantime::format_duration(self.wait.unwrap_or_default());
                    return Err(Failure::new(format!(
                        "clients after {wait}: {}",
                        output::line(&connected(&disks))
                    )));
                }
                _ => break disks,
            }
        };
        let object =
            |disk: &Disk| json!({ "disk": disk.key, "drain": disk.drain, "clients": disk.clients });
        let line = |disk: &Disk| {
            let line = format!("volume {volume}, disk {}: {}", disk.key, told(disk));
            output::line(&line) + "\n"
        };
        let objects: Vec<_> = disks.iter().map(object).collect();
        output::tell_as(self.json, &objects, |_| disks.iter().map(line).collect())
    }

    fn change(&self, volume: &str) -> Result<(), Failure> {
        let mut body = json!({ "drain": !self.undo });
        if self.temporary {
            body["keep"] = "until_restart".into();
        }
        let path = format!("volumes/{}", segment(volume));
        let Some(disk) = &self.disk else {
            let asked = self.agent.ask("POST", &format!("{path}/drain"), Some(&body));
            return asked.map(|_: serde_json::Value| ());
        };
        let path = format!("{path}/disks/{}", segment(disk));
        match self.undo {
            true => self.undo(volume, &path),
            false => self.agent.ask("PATCH", &path, Some(&body)).map(|_: Changed| ()),
        }
    }

    /// Returns a disk to the configuration's setting. If that is to drain, the disk is set to accept
    /// connections.
    fn undo(&self, volume: &str, path: &str) -> Result<(), Failure> {
        let live = |disk: &Disk| {
            let from = disk.settings_from.get("drain");
            matches!(from, Some(ValueFrom::Live | ValueFrom::State))
        };
        // The agent says it if there is no such disk.
        if self.disks(volume)?.iter().all(live) {
            let reset = format!("{path}/overrides/drain");
            self.agent.ask("DELETE", &reset, None).map(|_: Changed| ())?;
        }
        if self.disks(volume)?.iter().any(|disk| disk.drain) {
            let body = json!({ "drain": false });
            self.agent.ask("PATCH", path, Some(&body)).map(|_: Changed| ())?;
        }
        Ok(())
    }

    /// The disks that are meant.
    fn disks(&self, volume: &str) -> Result<Vec<Disk>, Failure> {
        let state: State = self.agent.get("state")?;
        let volumes = state.volumes.into_iter().filter(|other| other.name == volume);
        let meant = |disk: &Disk| self.disk.as_ref().is_none_or(|name| disk.key == *name);
        Ok(volumes.flat_map(|volume| volume.disks).filter(meant).collect())
    }
}

/// Disks that have clients, and how many.
fn connected(disks: &[Disk]) -> String {
    let each = disks.iter().filter(|disk| disk.clients > 0);
    each.map(|disk| format!("{} has {}", disk.key, disk.clients)).collect::<Vec<_>>().join(", ")
}

fn told(disk: &Disk) -> String {
    let clients = output::count(disk.clients, "client");
    match (disk.drain, disk.clients) {
        (false, _) => format!("takes connections, {clients}"),
        (true, 0) => "drained: nobody is connected".to_owned(),
        (true, _) => format!("takes no new connections, {clients}"),
    }
}
