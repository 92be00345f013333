//! Live changes of settings: checked and taken over as a reload is, and read back from the running volume.

use std::collections::BTreeSet;

use parda_api::{Changed, ChangedSetting, Keep, SettingsChange};
use parda_awake::Instant;
use parda_config::{DISK_SETTINGS, NAMES_FILES, TenantSettings, likely};
use parda_exchange::Liveness;
use parda_http::{ApiRefusal, Caller, ChangeTarget, Changes, Of};
use serde_json::Value;

use super::Api;
use super::audit::Change;
use super::values::{Settings, of, of_disk, of_keys};
use super::wait::{PATIENCE, wait};
use crate::config::misplaced::is_of_law_or_disk;
use crate::config::{Config, Steer, Volume, Work};
use crate::history::disk_keys;
use crate::live::{self, DiskName, Layers, Target};
use crate::status::{Detail, DiskState, VolumeStatus};

impl Changes for Api {
    fn set(
        &self,
        place: &ChangeTarget,
        change: &SettingsChange,
        who: &Caller,
    ) -> Result<Changed, ApiRefusal> {
        let SettingsChange { keep, settings } = change;
        if settings.is_empty() {
            return Err(ApiRefusal::Invalid("no setting is named".to_owned()));
        }
        let values = settings.iter().map(|(key, value)| Ok((key, scalar(key, value)?)));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<_> = settings.keys().map(String::as_str).collect();
        self.change(place, &keys, who, |layers, target| {
            let keep = kept_where(layers, *keep)?;
            for (key, value) in &values {
                layers.temporary.clear(target, key);
                layers.layer(keep).set(target, key, value.clone());
            }
            Ok(())
        })
    }

    fn reset(
        &self,
        place: &ChangeTarget,
        setting: Option<&str>,
        who: &Caller,
    ) -> Result<Changed, ApiRefusal> {
        let target = self.target(place)?;
        let layers = self.live.layers();
        let kept = layers.kept.keys(&target).into_iter();
        let mut keys: BTreeSet<_> = kept.chain(layers.temporary.keys(&target)).collect();
        if let Some(setting) = setting {
            keys.retain(|key| key == setting);
            if keys.is_empty() {
                return Err(ApiRefusal::NotFound(format!("{setting}: was not changed live")));
            }
        }
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        self.change(place, &keys, who, |layers, target| {
            for key in &keys {
                layers.kept.clear(target, key);
                layers.temporary.clear(target, key);
            }
            Ok(())
        })
    }
}

impl Api {
    fn change(
        &self,
        place: &ChangeTarget,
        keys: &[&str],
        who: &Caller,
        edit: impl Fn(&mut Layers, &Target) -> Result<(), ApiRefusal>,
    ) -> Result<Changed, ApiRefusal> {
        let _turn = self.live.turn();
        let target = self.target(place)?;
        if let Some(message) = keys.iter().find_map(|key| fixed(place, key)) {
            return Err(ApiRefusal::Invalid(message));
        }
        let was = self.values(&target, keys);
        let (layers, config) = self.make(|layers| edit(layers, &target))?;
        let wanted = config.volume(&target.volume);
        let wanted = wanted.map_or_else(Vec::new, |it| in_configuration(it, &target, keys));
        let look = || self.values(&target, keys);
        let is = wait(Instant::now() + PATIENCE, look, |is| {
            is.iter().zip(&wanted).all(|(is, wanted)| alike(is, wanted))
        });
        let origins = self.live.origins();
        let settings = keys.iter().enumerate().map(|(at, key)| ChangedSetting {
            setting: (*key).to_owned(),
            before: was[at].clone(),
            in_force: is[at].clone(),
            configured: serde_json::to_value(layers.configured(&target, key)).unwrap_or_default(),
            from: origins.from(&target, key),
            took_effect: alike(&is[at], &wanted[at]),
        });
        let (disk, tenant) = place.of.names();
        let (disk, tenant) = (disk.map(str::to_owned), tenant.map(str::to_owned));
        let settings = settings.collect();
        let all_shares = (disk.is_some() && keys.contains(&SHARES))
            .then(|| self.volume(&place.volume).map(|volume| all_shares(&volume)))
            .transpose()?;
        let volume = place.volume.clone();
        let changed = Changed { volume, disk, tenant, settings, all_shares };
        for setting in &changed.settings {
            self.audit.say(Change { place: place.clone(), setting: setting.clone() }, who);
        }
        Ok(changed)
    }

    /// Edits the layers, and takes over the resulting configuration, if it is valid. The caller has the turn.
    pub(super) fn make(
        &self,
        edit: impl Fn(&mut Layers) -> Result<(), ApiRefusal>,
    ) -> Result<(Layers, Config), ApiRefusal> {
        let mut layers = self.live.layers();
        edit(&mut layers)?;
        // Changes that are left out stay so, and do not keep other settings from being changed.
        let mut in_force = self.live.in_force().layers;
        edit(&mut in_force)?;
        let config =
            in_force.merged().map_err(|error| ApiRefusal::Invalid(error.without_place()))?;
        self.put(layers.clone(), in_force, config.clone())?;
        Ok((layers, config))
    }

    /// Writes these layers to the state file, and takes over their configuration.
    pub(super) fn put(
        &self,
        layers: Layers,
        in_force: Layers,
        config: Config,
    ) -> Result<(), ApiRefusal> {
        if layers.kept != self.live.layers().kept {
            layers.write().map_err(ApiRefusal::Failed)?;
        }
        self.live.take(layers, in_force);
        if self.agent.take_over(config) {
            Ok(())
        } else {
            Err(ApiRefusal::Failed("the agent is ending".to_owned()))
        }
    }

    /// The part of a volume that a path names.
    pub(super) fn target(&self, place: &ChangeTarget) -> Result<Target, ApiRefusal> {
        let volume = self.volume(&place.volume)?;
        let key = match &place.of {
            Of::Law => return Ok(Target::volume(&place.volume)),
            Of::Tenant(name) if volume.tenants.iter().any(|tenant| tenant.name == *name) => {
                return Ok(Target::tenant(&place.volume, name));
            }
            Of::Tenant(name) => {
                let message = format!("tenant {name:?}: volume {:?} has none", place.volume);
                return Err(ApiRefusal::NotFound(message));
            }
            Of::Disk(key) => key,
        };
        if let Some(Work::Steer(steer)) = self.views.config(&place.volume).map(|it| it.work.clone())
        {
            return steered(&place.volume, &steer, key);
        }
        let keys = disk_keys(&volume.disks);
        let Some(at) = keys.iter().position(|other| other == key) else {
            let twins: Vec<_> = keys.iter().filter(|k| k.starts_with(&format!("{key}@"))).collect();
            return Err(if twins.is_empty() {
                let message = format!("disk {key:?}: volume {:?} has none", place.volume);
                ApiRefusal::NotFound(message)
            } else {
                ApiRefusal::Conflict(format!("disk {key:?}: there are several: {twins:?}"))
            });
        };
        let disk = &volume.disks[at];
        let listen = (disk.name != *key).then(|| disk.listen.clone());
        let name = DiskName { name: disk.name.clone(), listen };
        Ok(Target::vm(&place.volume, name))
    }

    pub(super) fn volume(&self, name: &str) -> Result<VolumeStatus, ApiRefusal> {
        let volumes = self.views.status(Detail::Counters).volumes;
        let found = volumes.into_iter().find(|volume| volume.name == name);
        found.ok_or_else(|| {
            ApiRefusal::NotFound(format!("volume {name:?}: there is no such volume"))
        })
    }

    /// Values in force, read from the running volume.
    fn values(&self, target: &Target, keys: &[&str]) -> Vec<Value> {
        let Some(config) = self.views.config(&target.volume) else {
            return of_keys(keys, &Settings::new());
        };
        let (live::Of::Vm(name), Work::Serve(_)) = (&target.of, &config.work) else {
            // The volume has taken these over with its configuration.
            return in_configuration(&config, target, keys);
        };
        let disks = self.volume(&target.volume).map(|volume| volume.disks).unwrap_or_default();
        // A disk that is not served takes its settings when it opens.
        let disk = disks.iter().find(|disk| {
            let is_there = name.listen.as_ref().is_none_or(|listen| *listen == disk.listen);
            disk.name == name.name && is_there && disk.state == DiskState::Serving
        });
        of_keys(keys, &disk.map(|disk| of_disk(&disk.settings, disk.drain)).unwrap_or_default())
    }
}

/// Key of a disk's or VM's shares.
const SHARES: &str = "shares";

/// Shares of all disks and VMs of a volume, on this host and on those that are heard.
fn all_shares(volume: &VolumeStatus) -> u64 {
    let disks = volume.disks.iter().map(|disk| disk.shares);
    let vms = volume.steer.iter().flat_map(|steer| &steer.vms).map(|vm| vm.shares);
    let peers = volume.exchange.iter().flat_map(|exchange| &exchange.peers);
    let heard = peers.filter(|peer| peer.liveness == Liveness::Live && !peer.ignored);
    disks.chain(vms).chain(heard.map(|peer| peer.shares)).map(u64::from).sum()
}

/// Values of a checked volume, in the form of [`Api::values`].
fn in_configuration(volume: &Volume, target: &Target, keys: &[&str]) -> Vec<Value> {
    let set = match (&target.of, &volume.work) {
        (live::Of::Law, _) => Some(of(&volume.control)),
        (live::Of::Vm(vm), Work::Steer(steer)) => steer.vm(&vm.name).map(|vm| of(&vm.settings)),
        // Its VMs have rules, not tables of their own.
        (live::Of::Vm(_), Work::Qemu(_)) => None,
        (live::Of::Vm(disk), Work::Serve(_)) => {
            disk.find(volume).map(|disk| of_disk(&disk.settings, disk.drain))
        }
        (live::Of::Tenant(name), _) => {
            volume.tenants.iter().find(|tenant| *tenant.name == **name).map(of)
        }
    };
    of_keys(keys, &set.unwrap_or_default())
}

/// Reason why a setting cannot be changed live.
fn fixed(place: &ChangeTarget, key: &str) -> Option<String> {
    let (keys, of, when): (Vec<&str>, _, _) = match &place.of {
        Of::Law => return fixed_of_law(key),
        Of::Disk(_) => {
            let keys = DISK_SETTINGS.iter().map(|setting| setting.key).collect();
            (keys, "disk or VM", "while the disk is served")
        }
        Of::Tenant(_) => (TenantSettings::keys().collect(), "tenant", "of a tenant"),
    };
    if keys.contains(&key) {
        return None;
    }
    let can = and(&keys);
    Some(match is_of_law_or_disk(key) {
        [true, _] => format!(
            "{key}: is a setting of the volume, and not of a {of}: leave the name of the {of} out"
        ),
        [_, true] => {
            format!("{key}: cannot be changed {when}, as {can} can: change the configuration")
        }
        _ => match likely(key, keys.iter().copied()) {
            Some(likely) => format!("{key}: did you mean `{likely}`? Of a {of} can be set: {can}"),
            None => format!("{key}: is no setting. Of a {of} can be set: {can}"),
        },
    })
}

/// Reason why a setting does not belong to a volume's law.
fn fixed_of_law(key: &str) -> Option<String> {
    let [of_law, of_disk] = is_of_law_or_disk(key);
    (of_disk && !of_law).then(|| {
        format!(
            "{key}: is a setting of a disk or VM, and not of the volume: name the one that is meant"
        )
    })
}

/// A VM of a steered device. VMs of one pattern have their settings together.
fn steered(volume: &str, steer: &Steer, key: &str) -> Result<Target, ApiRefusal> {
    match steer.vm(key) {
        Some(vm) if vm.name == key => Ok(Target::vm(volume, DiskName::new(key))),
        Some(vm) => Err(ApiRefusal::Conflict(format!(
            "VM {key:?}: is one of those of [[volume.steer.vm]] {:?}, which have their settings together: name that",
            vm.name
        ))),
        None => Err(ApiRefusal::NotFound(format!("VM {key:?}: volume {volume:?} has none"))),
    }
}

/// The last two of a list joined by "and", the others by commas.
fn and(list: &[&str]) -> String {
    match list {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => list.concat(),
    }
}

/// Lifetime of a change: as the request demands, else over restarts if there is a state file.
pub(super) fn kept_where(layers: &Layers, keep: Option<Keep>) -> Result<Keep, ApiRefusal> {
    match (keep, &layers.state) {
        (Some(Keep::State), None) => {
            let message = "keep = \"state\": the configuration names no state file: set state = \
                           \"/var/lib/parda/state.toml\", or keep it until_restart";
            Err(ApiRefusal::Conflict(message.to_owned()))
        }
        (Some(keep), _) => Ok(keep),
        (None, Some(_)) => Ok(Keep::State),
        (None, None) => Ok(Keep::UntilRestart),
    }
}

/// Whether two values mean the same: 2 and 2.0 do.
fn alike(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

/// A value of a request as TOML. A table that may name a file is refused.
fn scalar(key: &str, value: &Value) -> Result<toml::Value, ApiRefusal> {
    let is_setting = match value {
        Value::Object(_) => key != NAMES_FILES,
        Value::Null | Value::Array(_) => false,
        Value::String(_) | Value::Bool(_) | Value::Number(_) => true,
    };
    let value = is_setting.then(|| toml::Value::try_from(value).ok()).flatten();
    value.ok_or_else(|| {
        ApiRefusal::Invalid(format!(
            "{key}: must be a text, a number, true or false, or a table of these ({NAMES_FILES}: as a table only in parda.toml, as it may name \
             a file); DELETE gives back the configuration's"
        ))
    })
}
