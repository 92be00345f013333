//! A layer of settings over a configuration file.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use parda_config::{DISK_SETTINGS, DiskSetting, TenantSettings};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::target::{DiskName, Of, Setting, Target, has_name, text};

/// A layer: settings and disks that were changed, in the shape of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overlay {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volume: Vec<Volume>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Volume {
    name: String,
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    control: Table,
    /// Disks of the layers below that are not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remove: Vec<DiskName>,
    /// Disks that are served besides those of the layers below, with the keys of `[[volume.disk]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    add: Vec<Table>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    disk: Vec<Named>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tenant: Vec<Named>,
}

/// A change of a layer to the disks that a volume serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A disk of the layers below is not served.
    Remove(DiskName),
    /// A disk is served besides those of the layers below.
    Add(Table),
}

/// Settings of a disk or of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Named {
    name: String,
    /// Address of the disk's listener, if two disks of the volume have the name.
    listen: Option<String>,
    #[serde(flatten)]
    settings: Table,
}

impl Named {
    fn is(&self, disk: &DiskName) -> bool {
        self.name == disk.name && self.listen == disk.listen
    }
}

impl Volume {
    /// The list that has the settings of a part of the volume, and the part's name there. The law has a table of its own.
    fn list(&mut self, of: &Of) -> Option<(&mut Vec<Named>, DiskName)> {
        match of {
            Of::Law => None,
            Of::Vm(disk) => Some((&mut self.disk, disk.clone())),
            Of::Tenant(name) => {
                Some((&mut self.tenant, DiskName { name: name.clone(), listen: None }))
            }
        }
    }
}

impl Overlay {
    /// Settings that a policy gives to a volume of a file, and to its VMs.
    pub(crate) fn of_policy(policy: &parda_policy::Volume, file: &Table) -> Overlay {
        let mut overlay = Overlay::default();
        let Some(volume) = volumes(file).find(|volume| has_name(volume, &policy.name)) else {
            return overlay;
        };
        let control = Target::volume(&policy.name);
        for (key, value) in &policy.control {
            overlay.set(&control, key, value.clone());
        }
        for (target, _) in vms(volume) {
            let name = target.disk_name().unwrap_or_default();
            for (key, value) in policy.settings_of(name) {
                let steered = DiskSetting::find(&key).is_some_and(|setting| setting.steered);
                let takes = match steered_by(volume) {
                    None => true,
                    Some("qemu") => key == "shares" || key == "tenant",
                    Some(_) => steered,
                };
                if takes {
                    overlay.set(&target, &key, value);
                }
            }
        }
        for tenant in &policy.tenant {
            let target = Target::tenant(&policy.name, &tenant.name);
            for (key, value) in &tenant.settings {
                overlay.set(&target, key, value.clone());
            }
        }
        overlay
    }

    /// Adds the tenants of a policy that a file does not have.
    pub(super) fn add_tenants(policy: &parda_policy::Volume, file: &mut Table) {
        let volume = volume_of(file, &policy.name);
        let Some(volume) = volume.filter(|_| !policy.tenant.is_empty()) else { return };
        let list = volume.entry("tenant").or_insert_with(|| Value::Array(Vec::new()));
        let Some(list) = list.as_array_mut() else { return };
        for name in policy.tenant.iter().map(|tenant| &tenant.name) {
            let mut known = list.iter().filter_map(Value::as_table);
            if !known.any(|known| has_name(known, name)) {
                let name = ("name".to_owned(), name.clone().into());
                list.push(Value::Table(Table::from_iter([name])));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.volume.is_empty()
    }

    fn settings(&self, target: &Target) -> Option<&Table> {
        let volume = self.volume.iter().find(|volume| volume.name == target.volume)?;
        let named = match &target.of {
            Of::Law => return Some(&volume.control),
            Of::Vm(disk) => volume.disk.iter().find(|other| other.is(disk))?,
            Of::Tenant(name) => volume.tenant.iter().find(|other| other.name == *name)?,
        };
        Some(&named.settings)
    }

    #[cfg(test)]
    pub(crate) fn get(&self, target: &Target, setting: &str) -> Option<&Value> {
        self.settings(target)?.get(setting)
    }

    /// Keys of all settings of a target.
    pub(crate) fn keys(&self, target: &Target) -> Vec<Setting> {
        self.settings(target).map(|table| table.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, target: &Target, setting: &str, value: Value) {
        let volume = self.volume(&target.volume);
        let Some((list, named)) = volume.list(&target.of) else {
            volume.control.insert(setting.to_owned(), value);
            return;
        };
        let at = list.iter().position(|other| other.is(&named));
        let at = at.unwrap_or_else(|| {
            let DiskName { name, listen } = named;
            list.push(Named { name, listen, settings: Table::new() });
            list.len() - 1
        });
        list[at].settings.insert(setting.to_owned(), value);
    }

    /// Takes a setting out.
    pub(crate) fn clear(&mut self, target: &Target, setting: &str) {
        for volume in self.volume.iter_mut().filter(|volume| volume.name == target.volume) {
            let Some((list, named)) = volume.list(&target.of) else {
                drop(volume.control.remove(setting));
                continue;
            };
            for other in list.iter_mut().filter(|other| other.is(&named)) {
                other.settings.remove(setting);
            }
            list.retain(|other| !other.settings.is_empty());
        }
        self.tidy();
    }

    /// Serves a disk besides those of the layers below.
    pub(crate) fn add(&mut self, volume: &str, disk: Table) {
        self.volume(volume).add.push(disk);
    }

    /// Serves a disk no more, whether this layer or one below has it.
    pub(crate) fn remove(&mut self, volume: &str, disk: DiskName) {
        self.forget(volume, &disk);
        self.volume(volume).remove.push(disk);
    }

    /// Takes out a disk's settings, and its addition or removal. True if this layer had added or removed it.
    pub(crate) fn forget(&mut self, volume: &str, disk: &DiskName) -> bool {
        let Some(volume) = self.volume.iter_mut().find(|other| other.name == volume) else {
            return false;
        };
        let before = volume.add.len() + volume.remove.len();
        volume.add.retain(|other| !disk.is(other));
        volume.remove.retain(|other| other != disk);
        volume.disk.retain(|other| !other.is(disk));
        let after = volume.add.len() + volume.remove.len();
        self.tidy();
        after < before
    }

    /// Whether this layer has added a disk.
    pub(crate) fn adds(&self, volume: &str, disk: &DiskName) -> bool {
        let volume = self.volume.iter().find(|other| other.name == volume);
        volume.is_some_and(|volume| volume.add.iter().any(|other| disk.is(other)))
    }

    /// Whether this layer has removed a disk.
    pub(crate) fn removes(&self, volume: &str, disk: &DiskName) -> bool {
        let volume = self.volume.iter().find(|other| other.name == volume);
        volume.is_some_and(|volume| volume.remove.contains(disk))
    }

    /// All removals and additions of disks, each with its volume, in the order in which they apply.
    pub(crate) fn shapes(&self) -> Vec<(String, Shape)> {
        let of = |volume: &Volume| {
            let removed = volume.remove.iter().cloned().map(Shape::Remove);
            let added = volume.add.iter().cloned().map(Shape::Add);
            let name = volume.name.clone();
            removed.chain(added).map(move |shape| (name.clone(), shape)).collect::<Vec<_>>()
        };
        self.volume.iter().flat_map(of).collect()
    }

    /// Takes over an addition or removal of another layer.
    pub(crate) fn take(&mut self, volume: &str, shape: Shape) {
        let volume = self.volume(volume);
        match shape {
            Shape::Remove(disk) => volume.remove.push(disk),
            Shape::Add(disk) => volume.add.push(disk),
        }
    }

    /// All settings that were changed, each with its target.
    pub(crate) fn all(&self) -> Vec<(Target, Setting, Value)> {
        let mut all = Vec::new();
        for volume in &self.volume {
            let mut add = |target: Target, table: &Table| {
                all.extend(table.iter().map(|(k, v)| (target.clone(), k.clone(), v.clone())));
            };
            let of = &volume.name;
            add(Target::volume(of), &volume.control);
            for Named { name, listen, settings } in &volume.disk {
                let name = DiskName { name: name.clone(), listen: listen.clone() };
                add(Target::vm(of, name), settings);
            }
            for Named { name, settings, .. } in &volume.tenant {
                add(Target::tenant(of, name), settings);
            }
        }
        all
    }

    /// Adds its disks to those of a file, and takes those out that it removes.
    pub(crate) fn shape(&self, file: &mut Table) {
        for (volume, shape) in self.shapes() {
            let Some(disks) = disks_of(file, &volume) else { continue };
            match shape {
                Shape::Remove(disk) => {
                    disks.retain(|other| !other.as_table().is_some_and(|table| disk.is(table)));
                }
                Shape::Add(disk) => disks.push(Value::Table(disk)),
            }
        }
    }

    /// Writes its settings over those of a file. Settings of volumes and disks that the file does not have are skipped.
    pub(crate) fn apply(&self, file: &mut Table) {
        for (target, setting, value) in self.all() {
            if let Some(table) = table_of(file, &target) {
                table.insert(setting, value);
            }
        }
    }

    fn volume(&mut self, name: &str) -> &mut Volume {
        let at = self.volume.iter().position(|volume| volume.name == name);
        let at = at.unwrap_or_else(|| {
            self.volume.push(Volume { name: name.to_owned(), ..Volume::default() });
            self.volume.len() - 1
        });
        &mut self.volume[at]
    }

    /// Takes out volumes without any change.
    fn tidy(&mut self) {
        self.volume.retain(|volume| {
            let Volume { name: _, control, remove, add, disk, tenant } = volume;
            let named = disk.is_empty() && tenant.is_empty();
            !(control.is_empty() && remove.is_empty() && add.is_empty() && named)
        });
    }
}

impl Shape {
    /// Name of the disk.
    pub(crate) fn disk(&self) -> &str {
        match self {
            Shape::Remove(disk) => &disk.name,
            Shape::Add(disk) => text(disk, "name").unwrap_or_default(),
        }
    }

    /// The disk, in its volume.
    pub(crate) fn target(&self, volume: &str) -> Target {
        Target::vm(volume, DiskName { name: self.disk().to_owned(), listen: None })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Remove(_) => "the disk's removal",
            Shape::Add(_) => "the disk",
        })
    }
}

/// Disks of a volume of a file. A steered volume has none, and the check of the configuration says so.
fn disks_of<'a>(file: &'a mut Table, volume: &str) -> Option<&'a mut Vec<Value>> {
    let disks = volume_of(file, volume)?.entry("disk");
    disks.or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

fn volume_of<'a>(file: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    let volumes = file.get_mut("volume")?.as_array_mut()?.iter_mut();
    volumes.filter_map(Value::as_table_mut).find(|table| has_name(table, name))
}

/// Whether a file has a disk.
pub(super) fn has(file: &mut Table, volume: &str, disk: &DiskName) -> bool {
    table_of(file, &Target::vm(volume, disk.clone())).is_some()
}

/// Addresses at which the disks of a file listen.
pub(super) fn listeners_of_disks(file: &Table) -> BTreeSet<String> {
    let disks = volumes(file).filter_map(|volume| volume.get("disk").and_then(Value::as_array));
    let listen = |disk: &Value| disk.get("listen").and_then(Value::as_str).map(str::to_owned);
    disks.flatten().filter_map(listen).collect()
}

/// Whether a file has a volume that waits for its disks: `disk = []`.
pub(super) fn waits_for_disks(file: &Table) -> bool {
    let mut disks = volumes(file).filter_map(|volume| volume.get("disk").and_then(Value::as_array));
    disks.any(Vec::is_empty)
}

/// Takes those `[[listener]]` tables out of a file that no disk uses now, and that disks used before: each must be used by a disk. `before`:
/// addresses of those; `None` for all addresses.
pub(super) fn drop_unused_listeners(file: &mut Table, before: Option<&BTreeSet<String>>) {
    let now = listeners_of_disks(file);
    let Some(listeners) = file.get_mut("listener").and_then(Value::as_array_mut) else { return };
    listeners.retain(|listener| {
        let address = listener.get("address").and_then(Value::as_str).unwrap_or_default();
        now.contains(address) || before.is_some_and(|before| !before.contains(address))
    });
}

/// Value of a setting in a file, if the file has it.
pub(crate) fn written(file: &Table, target: &Target, setting: &str) -> Option<Value> {
    table_of(&mut file.clone(), target)?.get(setting).cloned()
}

/// The volumes of a file.
fn volumes(file: &Table) -> impl Iterator<Item = &Table> {
    let volumes = file.get("volume").and_then(Value::as_array);
    volumes.into_iter().flatten().filter_map(Value::as_table)
}

/// Table of a volume that is not served, which has its VMs.
fn steered_by(volume: &Table) -> Option<&'static str> {
    ["steer", "qemu"].into_iter().find(|key| volume.contains_key(*key))
}

/// The VMs of a volume: its disks, the VMs of its device, or the rules for its QEMUs. A disk's listener names it where two have its name.
fn vms(volume: &Table) -> Vec<(Target, &Table)> {
    let list = match steered_by(volume) {
        Some(key) => volume[key].get("vm"),
        None => volume.get("disk"),
    };
    let tables: Vec<_> =
        list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect();
    let of = text(volume, "name").unwrap_or_default();
    let mut named: HashMap<&str, usize> = HashMap::new();
    for name in tables.iter().filter_map(|table| text(table, "name")) {
        *named.entry(name).or_default() += 1;
    }
    let each = tables.iter().filter_map(|table| {
        let name = text(table, "name")?;
        let listen = text(table, "listen").filter(|_| named[name] > 1).map(str::to_owned);
        let disk = DiskName { name: name.to_owned(), listen };
        Some((Target::vm(of, disk), *table))
    });
    each.collect()
}

/// All settings of a file that a layer may have, each with its target.
pub(crate) fn all_written(file: &Table) -> Vec<(Target, Setting, Value)> {
    let mut all = Vec::new();
    for volume in volumes(file) {
        let target = Target::volume(text(volume, "name").unwrap_or_default());
        let control = volume.get("control").and_then(Value::as_table).into_iter().flatten();
        all.extend(control.map(|(key, value)| (target.clone(), key.clone(), value.clone())));
        let mut add = |target: Target, table: &Table, keys: &[&str]| {
            let set = keys.iter().filter_map(|key| Some((*key, table.get(*key)?)));
            all.extend(set.map(|(key, value)| (target.clone(), key.to_owned(), value.clone())));
        };
        let keys: Vec<&str> = DISK_SETTINGS.iter().map(|setting| setting.key).collect();
        vms(volume).into_iter().for_each(|(target, table)| add(target, table, &keys));
        let tenants = volume.get("tenant").and_then(Value::as_array).into_iter().flatten();
        for table in tenants.filter_map(Value::as_table) {
            let name = text(table, "name").unwrap_or_default();
            add(Target::tenant(&target.volume, name), table, &TenantSettings::KEYS);
        }
    }
    all
}

/// The table of a file with the settings of a target. A missing `[volume.control]` is added.
fn table_of<'a>(file: &'a mut Table, target: &Target) -> Option<&'a mut Table> {
    let volume = volume_of(file, &target.volume)?;
    let list = match &target.of {
        Of::Law => {
            let control = volume.entry("control").or_insert_with(|| Value::Table(Table::new()));
            return control.as_table_mut();
        }
        Of::Vm(_) => match steered_by(volume) {
            Some(key) => volume.get_mut(key)?.get_mut("vm")?,
            None => volume.get_mut("disk")?,
        },
        Of::Tenant(_) => volume.get_mut("tenant")?,
    };
    let mut tables = list.as_array_mut()?.iter_mut().filter_map(Value::as_table_mut);
    tables.find(|table| match &target.of {
        Of::Law => false,
        Of::Vm(disk) => disk.is(table),
        Of::Tenant(name) => has_name(table, name),
    })
}
