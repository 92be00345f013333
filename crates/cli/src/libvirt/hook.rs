//! `parda libvirt hook`: serves a domain's disks from before its start until after its end. The same on each host that the domain moves to.
//!
//! libvirt waits for its hooks, so the hook never queries libvirt: the definition that it receives has all data. An error of `prepare`
//! keeps the guest from starting, and libvirt shows the message. An error of `release` is in libvirt's log.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use parda_address::Address;
use parda_api::{Disk as Served, DiskDone, State, ValueFrom};
use parda_terminal::Failure;
use serde_json::Value;

use super::domain::{Disk, Domain, Source};
use super::place::{same_file, same_server};
use super::qos::{NAMESPACE, Qos};
use super::xml;
use crate::agent::api::{Agent, segment};

/// Time for which a start waits for an agent that is restarting.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts.
const LOOK: Duration = Duration::from_millis(250);

/// State of a disk that is open to clients.
const SERVING: &str = "serving";

#[derive(Args)]
#[command(after_help = "\
As /etc/libvirt/hooks/qemu.d/parda, executable; then restart libvirtd or virtqemud:
  #!/bin/sh
  exec parda libvirt hook -- \"$@\"

prepare has the agent serve the NBD disks whose metadata has a path, if it does not yet, and keep them in its state file. release, after
the guest's end or on the host that it left, removes those again; disks of parda.toml stay. A guest whose disk cannot be served is not
started. Domains without metadata of parda are let alone.")]
pub(crate) struct Hook {
    /// Name of the domain
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// What happens to it: prepare and release change disks, all else nothing
    #[arg(value_name = "OPERATION")]
    operation: String,
    /// Other arguments of libvirt
    #[arg(value_name = "MORE")]
    _more: Vec<String>,
    #[command(flatten)]
    agent: Agent,
}

/// A disk that the agent is to serve.
struct Wanted<'a> {
    address: &'a Address,
    export: &'a str,
    path: &'a str,
    read_only: bool,
    qos: &'a Qos,
}

impl Hook {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let patience = match self.operation.as_str() {
            "prepare" => PATIENCE,
            "release" => Duration::ZERO,
            _ => return Ok(()),
        };
        let failed = |why: &str| Failure::new(format!("domain {}: {why}", self.domain));
        let unread = |why: String| failed(&format!("its definition cannot be read: {why}"));
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| unread(error.to_string()))?;
        let xml = parda_input::read_open(input.into(), xml::MOST);
        let xml = xml.map_err(|fault| unread(fault.to_string()))?;
        // No other guest depends on the agent.
        if !xml.contains(NAMESPACE) {
            return Ok(());
        }
        let domain = Domain::parse(&xml).map_err(|why| failed(&why))?;
        let ours: Vec<_> = domain.disks.iter().filter(|disk| is_of_agent(disk)).collect();
        if ours.is_empty() {
            return Ok(());
        }
        let state = self.state(patience).map_err(|failure| failed(&failure.message))?;
        for disk in ours {
            let done = match patience.is_zero() {
                false => self.prepare(disk, &state),
                true => self.release(disk, &state),
            };
            done.map_err(|why| failed(&format!("disk {}: {why}", disk.target)))?;
        }
        Ok(())
    }

    /// State of the agent, which may be about to start.
    fn state(&self, patience: Duration) -> Result<State, Failure> {
        let until = Instant::now() + patience;
        loop {
            match self.agent.get("state") {
                Err(failure) if failure.code == 1 && Instant::now() < until => {
                    std::thread::sleep(LOOK);
                }
                done => return done,
            }
        }
    }

    fn prepare(&self, disk: &Disk, state: &State) -> Result<(), String> {
        if let Source::Vhost(socket) = &disk.source {
            return serves_vhost(socket, state);
        }
        let Some(wanted) = Wanted::of(disk)? else { return Ok(()) };
        if let Some((volume, served)) = wanted.find(state)? {
            if !is_added(served) {
                return is_served(served);
            }
            if served.clients > 0 {
                let Wanted { export, .. } = wanted;
                return Err(format!(
                    "the agent serves {export} to a client already: is it another domain's?"
                ));
            }
            // A leftover of a host that crashed; its path or shares may differ.
            self.remove(volume, served)?;
        }
        let volume = match (&wanted.qos.volume, &state.volumes[..]) {
            (Some(volume), _) => volume,
            (None, [only]) => &only.name,
            (None, _) => {
                return Err("its metadata has no volume, and the agent has several: parda status names them".to_owned());
            }
        };
        let path = format!("volumes/{}/disks", segment(volume));
        let done = self.agent.ask::<DiskDone>("POST", &path, Some(&wanted.body()?));
        done.map(drop).map_err(|failure| failure.message)
    }

    fn release(&self, disk: &Disk, state: &State) -> Result<(), String> {
        let Some(wanted) = Wanted::of(disk)? else { return Ok(()) };
        match wanted.find(state)? {
            Some((volume, served)) if is_added(served) => self.remove(volume, served),
            _ => Ok(()),
        }
    }

    fn remove(&self, volume: &str, disk: &Served) -> Result<(), String> {
        let path = format!("volumes/{}/disks/{}", segment(volume), segment(&disk.key));
        let done = self.agent.ask::<DiskDone>("DELETE", &path, None);
        done.map(drop).map_err(|failure| failure.message)
    }
}

impl<'a> Wanted<'a> {
    /// Request of the metadata for an NBD disk. `None`: the hook does not serve the disk.
    fn of(disk: &'a Disk) -> Result<Option<Wanted<'a>>, String> {
        let Source::Nbd { address, export } = &disk.source else { return Ok(None) };
        let qos = disk.qos.as_ref().map_err(Clone::clone)?;
        let Some(path) = &qos.path else { return Ok(None) };
        Ok(Some(Wanted { address, export, path, read_only: disk.read_only, qos }))
    }

    /// The disk as the agent has it, with its volume.
    fn find<'s>(&self, state: &'s State) -> Result<Option<(&'s str, &'s Served)>, String> {
        for (volume, disk) in disks(state).filter(|(_, disk)| disk.name == self.export) {
            if let Ok(listen) = disk.listen.parse::<Address>()
                && same_server(&listen, self.address)?
            {
                return Ok(Some((volume, disk)));
            }
        }
        Ok(None)
    }

    /// The disk in the API's form. Like its guest, the disk outlives the agent.
    fn body(&self) -> Result<Value, String> {
        let mut table = self.qos.settings.clone();
        let texts = [
            ("name", self.export),
            ("path", self.path),
            ("listen", &self.address.to_string()),
            ("keep", "state"),
        ];
        table.extend(texts.map(|(key, text)| (key.to_owned(), text.into())));
        if self.read_only {
            table.insert("read_only".to_owned(), true.into());
        }
        serde_json::to_value(table).map_err(|error| error.to_string())
    }
}

/// Whether a disk is behind a socket of the agent, by the path that the metadata notes. Other servers have such sockets, too.
fn is_of_agent(disk: &Disk) -> bool {
    let noted = disk.qos.as_ref().map_or(true, |qos| qos.path.is_some());
    noted && matches!(disk.source, Source::Nbd { .. } | Source::Vhost(_))
}

fn disks(state: &State) -> impl Iterator<Item = (&str, &Served)> {
    let volumes = state.volumes.iter();
    volumes.flat_map(|volume| volume.disks.iter().map(move |disk| (&*volume.name, disk)))
}

/// Whether a disk was added while the agent ran, and is not the configuration's.
fn is_added(disk: &Served) -> bool {
    matches!(disk.from, ValueFrom::Live | ValueFrom::State)
}

/// Checks that clients find a disk.
fn is_served(disk: &Served) -> Result<(), String> {
    let Served { name, state, fault, drain, .. } = disk;
    match fault {
        Some(fault) => Err(format!("the agent cannot serve {name}: {fault}")),
        None if state != SERVING => {
            Err(format!("the agent does not serve {name} yet: it is {state}"))
        }
        None if *drain => Err(format!("{name} is drained: parda drain {name} --undo")),
        None => Ok(()),
    }
}

/// Checks that the agent has a disk at a socket: QEMU would wait for it without end.
fn serves_vhost(socket: &Path, state: &State) -> Result<(), String> {
    for (_, disk) in disks(state) {
        if let Ok(Address::Vhost(listen)) = disk.listen.parse::<Address>()
            && same_file(&listen, socket)?
        {
            return is_served(disk);
        }
    }
    let socket = socket.display();
    Err(format!(
        "the agent serves no disk at vhost-user:{socket}, and QEMU would wait for it: put it into parda.toml"
    ))
}
