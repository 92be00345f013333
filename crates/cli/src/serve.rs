//! `parda serve` and `parda check`.

use std::path::PathBuf;

use clap::Args;
use parda_agent::ServeError;
use parda_agent::config::{Config, DiskConfig, Steer, Vms, Work};
use parda_agent::descriptors::Descriptors;
use parda_agent::events::Recorder;
use parda_config::Document;
use parda_terminal::{Failure, output};

use crate::input::{is_no_scenario, is_there};
use crate::service;

#[derive(Args)]
#[command(after_help = "\
Signals:
  SIGHUP            read the configuration again. Shares, bursts, [volume.control], listeners and
                    the exchange change, and every connection stays. Disks and volumes that are
                    new are opened, those that are gone are closed; a disk with other data is
                    opened anew, which closes its own connections. host and limits need a restart.
                    The log names each change. A file with an error changes nothing
  SIGTERM, SIGINT   stop accepting, answer all requests in flight, say goodbye to the other hosts

Example:
  parda serve -c /etc/parda.toml")]
pub(crate) struct Serve {
    /// The agent's configuration file
    #[arg(short, long, value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    config: PathBuf,
}

impl Serve {
    pub(crate) fn run(&self, events: Recorder) -> Result<(), Failure> {
        parda_terminal::log::log_panics();
        is_there(&self.config)?;
        let file = Document::read(&self.config)?;
        is_no_scenario(&file)?;
        parda_agent::serve(&self.config, file, events).map_err(|error| match error {
            ServeError::Configuration(error) => Failure::from(error),
            error => Failure::new(error.to_string()),
        })
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda check
  parda check parda.toml
  parda check parda.toml && systemctl reload parda

Root checks /etc/parda.toml with the rights of the user as whom parda.service runs.")]
pub(crate) struct Check {
    /// The agent's configuration file
    #[arg(value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    config: PathBuf,
}

impl Check {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        is_there(&self.config)?;
        service::with_its_rights(&self.config)?;
        let file = Document::read(&self.config)?;
        is_no_scenario(&file)?;
        let config = Config::look_into(&file)?;
        let devices = parda_agent::devices::examine(&file, &config)?;
        let mut text = String::new();
        if let Some(policy) = &config.policy {
            let period = humantime::format_duration(policy.period);
            text += &format!("\n  policy from {}, looked for each {period}", policy.etcd);
        }
        for volume in &config.volumes {
            let exchange = match &volume.exchange {
                Some(exchange) => format!("exchange {exchange}"),
                None => "no exchange: this volume is shared with no other host".to_owned(),
            };
            text += &match &volume.work {
                Work::Serve(disks) => served(&volume.name, disks, &exchange),
                Work::Steer(steer) => steered(&volume.name, steer, &exchange),
                Work::Qemu(qemu) => {
                    let (name, sockets) = (&volume.name, qemu.sockets.display());
                    let name = output::line(name);
                    format!(
                        "\n  volume {name}: throttles QEMUs at {sockets}, shares of {}, {exchange}",
                        qemu.vms
                    )
                }
            };
        }
        let descriptors = Descriptors::of(&config);
        text += &format!(
            "\n  descriptors: {} for {} with one client each",
            descriptors.needed,
            output::count(descriptors.disks as u64, "disk"),
        );
        let mut notes = config.warnings();
        notes.extend(descriptors.fault());
        let warnings = notes.len();
        notes.extend(config.missing());
        notes.extend(devices);
        // Not an error: disks are served without it, and an agent that is restarted must start.
        notes.extend(config.volumes.iter().filter_map(parda_agent::exchange::examine));
        notes.extend(parda_agent::nbd_servers::examine(&config));
        notes.extend(parda_agent::reachable::examine(&config));
        let verdict = match notes.len() - warnings {
            0 => "good".to_owned(),
            faults => {
                format!("valid, with {} of the host to mend", output::count(faults as u64, "fault"))
            }
        };
        notes.extend(parda_agent::live::examine(file)?);
        text = format!("{}: {verdict}. Host {}{text}", self.config.display(), config.host);
        text.extend(notes.iter().map(|note| format!("\n  note: {}", output::line(note))));
        output::print(&text)
    }
}

fn served(volume: &str, disks: &[DiskConfig], exchange: &str) -> String {
    let shares: u64 = disks.iter().map(|d| u64::from(d.settings.shares().0)).sum();
    let mut text = format!(
        "\n  volume {}: {} with {} in all, {exchange}",
        output::line(volume),
        output::count(disks.len() as u64, "disk"),
        output::count(shares, "share")
    );
    for disk in disks {
        let line = format!("    {} = {} at {}", disk.name, disk.backend.place(), disk.listen);
        text += &format!("\n{}", output::line(&line));
    }
    text
}

fn steered(volume: &str, steer: &Steer, exchange: &str) -> String {
    let (volume, device) = (output::line(volume), steer.device.display());
    match &steer.vms {
        Vms::Host(shares) => format!(
            "\n  volume {volume}: steers {device}, the host is one VM with {}, {exchange}",
            output::count(shares.0.into(), "share")
        ),
        Vms::Groups(vms) => {
            let mut text = format!("\n  volume {volume}: steers {device}, {exchange}");
            for vm in vms {
                let shares = output::count(vm.settings.shares().0.into(), "share");
                let line =
                    format!("    {} = cgroup {} with {shares}", vm.name, vm.pattern.as_str());
                text += &format!("\n{}", output::line(&line));
            }
            text
        }
    }
}
