//! Disks that are added, removed and drained while the agent runs. These are changes of a layer, checked with the configuration and taken
//! over as after a reload.

use std::path::Path;

use parda_api::{DiskDone, Drain, Drained, DrainedDisk, Keep, NewDisk, ValueFrom};
use parda_awake::Instant;
use parda_block::DiskConfig;
use parda_config::DRAIN;
use parda_http::{ApiRefusal, Caller, ChangeTarget, Disks, Of};

use super::Api;
use super::change::kept_where;
use super::wait::{PATIENCE, wait};
use crate::config::{Config, Volume, apart};
use crate::history::disk_keys;
use crate::live::{self, DiskName, Layers, Shape, Target};
use crate::status::{DiskState, DiskStatus};

impl Disks for Api {
    /// If the disk cannot be opened, nothing changes.
    fn add_disk(&self, volume: &str, new: &NewDisk, who: &Caller) -> Result<DiskDone, ApiRefusal> {
        self.volume(volume)?;
        let table = toml::Table::try_from(&new.disk);
        let table = table
            .map_err(|error| ApiRefusal::Invalid(format!("the disk cannot be read: {error}")))?;
        let name = name(&table)?;
        let again = table.keys().all(|key| matches!(key.as_str(), "name" | "listen"));
        let edit = |layers: &mut Layers| {
            let keep = kept_where(layers, new.keep)?;
            if !again {
                layers.layer(keep).take(volume, Shape::Add(table.clone()));
                // Settings that the state file keeps of an earlier disk with the name would override the values of this one.
                let target = Target::vm(volume, DiskName::new(&name.name));
                let kept = layers.kept.keys(&target).into_iter();
                for (key, value) in kept.filter_map(|key| table.get_key_value(&key)) {
                    layers.layer(keep).set(&target, key, value.clone());
                }
                return Ok(());
            }
            // The removal of the upper layer is the one in force.
            if layers.temporary.restore(volume, &name) {
                return Ok(());
            }
            let message = match (layers.kept.restore(volume, &name), new.keep) {
                (true, Some(Keep::UntilRestart)) => {
                    "keep = \"until_restart\" (--temporary): the state file keeps the disk's removal, and what takes that back lasts: leave it out"
                }
                (true, _) => return Ok(()),
                (false, _) => "path: is missing, and no disk of this name was removed",
            };
            Err(ApiRefusal::Invalid(message.to_owned()))
        };
        // A look at the disk's data may wait for its file system, so it precedes this change's turn.
        let mut trial = self.live.in_force().layers;
        edit(&mut trial)?;
        let trial = trial.merged().map_err(|error| ApiRefusal::Invalid(error.without_place()))?;
        let disk = find(&trial, volume, &name).map_err(|none| match again {
            true => none,
            false => ApiRefusal::Conflict(format!(
                "disk {0}: the one of this name is removed until the agent ends, and this one would be too: add it until_restart \
                 (--temporary), or first take the removal back: parda disk add {0}",
                name.name
            )),
        })?;
        let others = trial.volume(volume).map_or(&[][..], Volume::disks).iter();
        let there = others.filter(|other| other.listen == disk.listen).count();
        if !again && there == 1 && disk.listen.path().is_some_and(Path::is_relative) {
            let message = format!(
                "listen = {}: would be in the directory of the agent: name it by an absolute path",
                disk.listen
            );
            return Err(ApiRefusal::Invalid(message));
        }
        if let Some(Err(fault)) = trial.volume(volume).map(|volume| apart::look_into(volume, &disk))
        {
            return Err(ApiRefusal::Invalid(format!("path = {}: {fault}", disk.backend.place())));
        }
        let _turn = self.live.turn();
        let before = (self.live.layers(), self.live.in_force().layers);
        let (layers, _) = self.make(edit)?;
        let until = Instant::now() + PATIENCE;
        let state = self.until(volume, &disk, |found| {
            found.is_some_and(|disk| disk.state == DiskState::Serving || disk.fault.is_some())
        });
        let served = state.as_ref().filter(|disk| disk.state == DiskState::Serving);
        let why = match served.filter(|disk| disk.fault.is_none()) {
            Some(_) => self.listens(volume, &disk, until).err(),
            None => Some(state.as_ref().and_then(|disk| disk.fault.clone()).unwrap_or_else(late)),
        };
        if let Some(why) = why {
            let (layers, in_force) = before;
            let config =
                in_force.merged().map_err(|error| ApiRefusal::Failed(error.without_place()))?;
            self.put(layers, in_force, config)?;
            let message = format!("disk {}: cannot be served, and is not added: {why}", disk.name);
            return Err(ApiRefusal::Conflict(message));
        }
        let done = done(volume, &name, state, &layers);
        audit(&done, who, &format!("the disk is served: {}", disk.backend.place()));
        Ok(done)
    }

    /// The disk's connections close when their requests are answered.
    fn remove_disk(
        &self,
        place: &ChangeTarget,
        keep: Option<Keep>,
        who: &Caller,
    ) -> Result<DiskDone, ApiRefusal> {
        let _turn = self.live.turn();
        let Target { volume, of: live::Of::Vm(name) } = self.target(place)? else {
            return Err(ApiRefusal::Invalid("disk: is missing".to_owned()));
        };
        let before = self.live.in_force().layers.merged();
        let before = before.map_err(|error| ApiRefusal::Failed(error.without_place()))?;
        let disk = find(&before, &volume, &name)?;
        let (layers, _) = self.make(|layers| {
            // A disk that lasts until the agent ends precedes a kept one, whose removal no request asked for.
            let own = layers.disk_from(&volume, &name) == ValueFrom::Live;
            let keep = kept_where(layers, keep.or(own.then_some(Keep::UntilRestart)))?;
            let below = layers.has_below(keep, &volume, &name);
            layers.temporary.forget(&volume, &name, below);
            layers.layer(keep).forget(&volume, &name, below);
            if below {
                layers.layer(keep).take(&volume, Shape::Remove(name.clone()));
            }
            Ok(())
        })?;
        let state = self.until(&volume, &disk, |found| found.is_none());
        let done = done(&volume, &name, state, &layers);
        audit(&done, who, "the disk is served no more");
        Ok(done)
    }

    fn drain(&self, volume: &str, drain: &Drain, who: &Caller) -> Result<Drained, ApiRefusal> {
        let _turn = self.live.turn();
        let disks = self.volume(volume)?.disks;
        if disks.is_empty() {
            let message = format!("volume {volume:?}: has no disks to drain");
            return Err(ApiRefusal::Invalid(message));
        }
        let targets = disk_keys(&disks)
            .into_iter()
            .map(|key| self.target(&ChangeTarget { volume: volume.to_owned(), of: Of::Disk(key) }));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let (_, config) = self.make(|layers| {
            let keep = kept_where(layers, drain.keep)?;
            for target in &targets {
                layers.temporary.clear(target, DRAIN);
                if drain.drain {
                    layers.layer(keep).set(target, DRAIN, true.into());
                } else {
                    layers.kept.clear(target, DRAIN);
                    if layers.drains(target) {
                        layers.layer(keep).set(target, DRAIN, false.into());
                    }
                }
            }
            Ok(())
        })?;
        let wanted = config.volume(volume).map_or(&[][..], |volume| volume.disks());
        let look = || self.volume(volume).map(|volume| volume.disks);
        let drained = |disks: &[DiskStatus], disk: &DiskConfig| {
            disks.iter().any(|found| is(found, disk) && found.drain == disk.drain)
        };
        let disks = wait(Instant::now() + PATIENCE, look, |disks| {
            let Ok(disks) = disks else { return true };
            wanted.iter().all(|disk| drained(disks, disk))
        })?;
        let what = if drain.drain { "takes no new connections" } else { "is drained no more" };
        tracing::info!(
            volume,
            by = who.name,
            at = who.at,
            event = "live_change",
            "the volume {what}"
        );
        let each = disk_keys(&disks).into_iter().zip(disks);
        let each = each.map(|(key, disk)| DrainedDisk {
            disk: key,
            drain: disk.drain,
            clients: disk.clients,
        });
        Ok(Drained { volume: volume.to_owned(), disks: each.collect() })
    }
}

impl Api {
    /// Waits until clients can connect to a disk's address, which another volume or program may be about to give up.
    fn listens(&self, volume: &str, disk: &DiskConfig, until: Instant) -> Result<(), String> {
        let address = disk.listen.to_string();
        let look = || {
            let listeners = self.volume(volume).map(|volume| volume.listeners).unwrap_or_default();
            let found = listeners.into_iter().filter(|found| found.address == address);
            found.reduce(|one, other| if one.is_bound { one } else { other })
        };
        let found = wait(until, look, |found| found.as_ref().is_some_and(|found| found.is_bound));
        match found {
            Some(listener) if listener.is_bound => Ok(()),
            found => Err(found.and_then(|listener| listener.fault).unwrap_or_else(|| {
                let seconds = PATIENCE.as_secs();
                format!("nobody can connect at {address} after {seconds} s")
            })),
        }
    }

    /// State of a disk once it is the wanted one, or after [`PATIENCE`]. `None` if there is no such disk.
    fn until(
        &self,
        volume: &str,
        disk: &DiskConfig,
        wanted: impl Fn(Option<&DiskStatus>) -> bool,
    ) -> Option<DiskStatus> {
        let look = || {
            let disks = self.volume(volume).map(|volume| volume.disks).unwrap_or_default();
            disks.into_iter().find(|found| is(found, disk))
        };
        wait(Instant::now() + PATIENCE, look, |found| wanted(found.as_ref()))
    }
}

fn late() -> String {
    let seconds = PATIENCE.as_secs();
    format!("it is not open after {seconds} s: another program may have locked it")
}

/// Whether a disk of the status is one of the configuration.
fn is(found: &DiskStatus, disk: &DiskConfig) -> bool {
    found.name == disk.name.to_string() && found.listen == disk.listen.to_string()
}

/// A disk of a checked configuration.
fn find(config: &Config, volume: &str, name: &DiskName) -> Result<DiskConfig, ApiRefusal> {
    config.volume(volume).and_then(|volume| name.find(volume)).cloned().ok_or_else(|| {
        ApiRefusal::NotFound(format!("disk {:?}: volume {volume:?} has none", name.name))
    })
}

/// Name of a new disk. With its listener, as others may have the name.
fn name(table: &toml::Table) -> Result<DiskName, ApiRefusal> {
    let text = |key: &str| table.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let name = text("name").ok_or_else(|| ApiRefusal::Invalid("name: is missing".to_owned()))?;
    Ok(DiskName { name, listen: text("listen") })
}

fn done(volume: &str, disk: &DiskName, state: Option<DiskStatus>, layers: &Layers) -> DiskDone {
    DiskDone {
        volume: volume.to_owned(),
        disk: disk.name.clone(),
        state: state.map(|disk| disk.state.to_string()),
        from: layers.disk_from(volume, disk),
    }
}

/// Logs a change of disks with its author, which is an event too.
fn audit(done: &DiskDone, who: &Caller, what: &str) {
    let DiskDone { volume, disk, .. } = done;
    tracing::info!(volume, disk, by = who.name, at = who.at, event = "live_change", "{what}");
}
