//! `parda libvirt`: the disks of libvirt's domains, and which of them the agent serves.

mod change;
mod domain;
mod edit;
mod hook;
mod place;
mod qos;
mod virsh;
mod xml;

use clap::{Args, Subcommand};
use parda_address::Address;
use parda_config::wrong_shares;
use parda_terminal::output::{line, plain};
use parda_terminal::{Failure, output};
use serde_json::json;

use change::{Attach, Detach};
use domain::{Disk, Domain, Source};
use hook::Hook;
use place::below;
use virsh::Virsh;

#[derive(Subcommand)]
pub(crate) enum Libvirt {
    /// List the disks of domains, and whether they can be served
    List(List),
    /// Write [[volume.disk]] tables for the disks of domains
    Toml(Toml),
    /// Have domains reach their disks by the agent, over NBD
    Attach(Attach),
    /// Have domains open their disks by themselves again
    Detach(Detach),
    /// Serve the disks of a domain while it runs: what libvirt's hook calls
    Hook(Hook),
}

/// Domains of a libvirt.
#[derive(Args)]
struct Which {
    /// Names of domains. None: all
    #[arg(value_name = "DOMAIN")]
    domains: Vec<String>,
    /// libvirt's connection URI
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    connect: String,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    which: Which,
    /// Write the disks as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda libvirt toml --below /mnt/array-a --listen unix:/run/parda/array-a.sock >> /etc/parda.toml
  parda libvirt toml --below /mnt/array-a --listen vhost-user:/run/parda >> /etc/parda.toml     /run/parda/vm1-vda.vhost …
  parda check /etc/parda.toml

The tables belong below the [[volume]] that they are for, at the end of the file or before the next [[volume]].
A disk's <iotune> is its limit: QEMU holds the guest to it as well, until it is taken out of the definition. Its <blkiotune><weight>,
from 100 to 1000, is twice as many shares. Elements that are not taken over are named in comments.
Metadata counts over these, for a domain or for a disk of it:
  virsh metadata vm1 --config --uri urn:parda:libvirt --key parda --set \
    '<domain tenant=\"gold\"><disk target=\"vda\" shares=\"2000\" reservation=\"400\" latency_target=\"10ms\"/></domain>'")]
pub(crate) struct Toml {
    #[command(flatten)]
    which: Which,
    /// Only disks below this directory, such as the volume's mount point; links and .. are followed
    #[arg(long, value_name = "DIR")]
    below: Option<std::path::PathBuf>,
    /// Address at which the agent shall serve them. vhost-user:DIR gives each disk a socket in this directory
    #[arg(long, value_name = "ADDRESS")]
    listen: Address,
    /// Shares of disks that have neither a weight nor shares in their metadata
    #[arg(long, value_name = "SHARES", default_value = "1000")]
    shares: u32,
}

impl Libvirt {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Libvirt::List(list) => list.run(),
            Libvirt::Toml(toml) => toml.run(),
            Libvirt::Attach(attach) => attach.run(),
            Libvirt::Detach(detach) => detach.run(),
            Libvirt::Hook(hook) => hook.run(),
        }
    }
}

impl Which {
    fn virsh(&self) -> Virsh<'_> {
        Virsh { uri: &self.connect }
    }

    fn all(&self) -> Result<Vec<Domain>, Failure> {
        let virsh = self.virsh();
        let listed = virsh.domains()?;
        if self.domains.is_empty() {
            return virsh.read_all(&listed);
        }
        self.domains.iter().map(|name| Ok(virsh.named(name, &listed)?.0)).collect()
    }
}

impl List {
    fn run(&self) -> Result<(), Failure> {
        let domains = self.which.all()?;
        let disks = domains.iter().flat_map(|of| of.disks.iter().map(move |disk| (of, disk)));
        let rows: Vec<_> = disks
            .map(|(domain, Disk { target, source, refused, .. })| {
                let (kind, place) = words(source);
                (&domain.name, target, kind, place, refused)
            })
            .collect();
        let object = |(domain, disk, kind, place, refused): &_| json!({ "domain": domain, "disk": disk, "type": kind, "place": place, "refused": refused });
        output::tell_as(self.json, &rows.iter().map(object).collect::<Vec<_>>(), |_| {
            let rows = rows.iter().map(|(domain, disk, kind, place, refused)| {
                let why = refused.as_deref().unwrap_or_default();
                [domain.as_str(), disk, kind, place, why].map(line)
            });
            plain("domain|disk|type|place|", rows).to_string()
        })
    }
}

fn words(source: &Source) -> (&str, String) {
    match source {
        Source::Path { path, block: true } => ("block", path.display().to_string()),
        Source::Path { path, block: false } => ("file", path.display().to_string()),
        Source::Nbd { address, export } => ("nbd", format!("{export} at {address}")),
        Source::Vhost(socket) => ("vhost-user", socket.display().to_string()),
        Source::Other(kind) => (kind, String::new()),
    }
}

impl Toml {
    fn run(&self) -> Result<(), Failure> {
        if let Some(wrong) = wrong_shares(self.shares) {
            return Err(Failure::usage(format!("--shares {}: {wrong}", self.shares)));
        }
        let domains = self.which.all()?;
        let mut text = String::new();
        for (domain, disk) in domains.iter().flat_map(|of| of.disks.iter().map(move |d| (of, d))) {
            text += &self.table(domain, disk).unwrap_or_default();
        }
        if text.is_empty() {
            return Err(Failure::new("no domain has such a disk: parda libvirt list shows all"));
        }
        output::print(&text)
    }

    /// Table of a disk, or a comment with the reason for its absence.
    fn table(&self, domain: &Domain, disk: &Disk) -> Option<String> {
        let Source::Path { path, .. } = &disk.source else { return None };
        if self.below.as_ref().is_some_and(|directory| !below(path, directory)) {
            return None;
        }
        let head = line(&format!("domain {}, {}", domain.name, disk.target));
        let qos = match (&disk.refused, &disk.qos) {
            (None, Ok(qos)) => qos,
            (Some(why), _) | (None, Err(why)) => {
                let path = line(&path.display().to_string());
                return Some(format!("# {head} {path} is not served: {}\n\n", line(why)));
            }
        };
        let name = format!("{}-{}", domain.name, disk.target);
        let (listen, listener) = match &self.listen {
            Address::Vhost(directory) => {
                let listen = Address::Vhost(directory.join(format!("{name}.vhost")));
                // The agent would refuse the whole file.
                if let Err(why) = listen.to_string().parse::<Address>() {
                    let listen = line(&listen.to_string());
                    return Some(format!("# {head} is not served: {listen} {why}\n\n"));
                }
                (listen.clone(), Some(listen))
            }
            listen => (listen.clone(), None),
        };
        let mut table = toml::Table::new();
        table.insert("name".to_owned(), name.into());
        table.insert("path".to_owned(), path.to_str()?.into());
        table.insert("listen".to_owned(), listen.to_string().into());
        table.insert("shares".to_owned(), i64::from(self.shares).into());
        if disk.read_only {
            table.insert("read_only".to_owned(), true.into());
        }
        table.extend(qos.settings.clone());
        // A value is an inline table.
        let limit = table.remove("limit").map(|limit| format!("limit = {limit}\n"));
        let limit = limit.unwrap_or_default();
        let ignored = qos.ignored.iter().map(|what| format!("# not taken over: {}\n", line(what)));
        let ignored: String = ignored.collect();
        // QEMU's user has to reach the socket.
        let listener = listener.map(|address| {
            let address = toml::Value::from(address.to_string());
            format!("[[listener]]\naddress = {address}\ngroup = \"kvm\"\nmode = \"0660\"\n")
        });
        let listener = listener.unwrap_or_default();
        Some(format!("# {head}\n{ignored}[[volume.disk]]\n{table}{limit}{listener}\n"))
    }
}
