//! A layer of settings over a configuration file.

use std::collections::HashMap;
use std::fmt;

use parda_config::{DISK_SETTINGS, DRAIN, DiskSetting, Holder};
use parda_policy::Stored;
use parda_policy::changes::entry;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::target::{DiskName, Of, Setting, Target, has_name, text};

/// A layer: settings and disks that were changed, in the shape of the configuration, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overlay {
    /// Volumes of which something was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volume: Vec<Volume>,
}

/// Changes of a volume.
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

/// Settings of a disk or of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Named {
    #[serde(flatten)]
    name: DiskName,
    #[serde(flatten)]
    settings: Table,
}

/// A change of a layer to the disks that a volume serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A disk of the layers below is not served.
    Remove(DiskName),
    /// A disk is served besides those of the layers below.
    Add(Table),
}

impl Overlay {
    /// The settings of a file that a layer may have.
    pub(super) fn of_file(file: &Table) -> Overlay {
        let of = |table: &Table, has: fn(&DiskSetting) -> bool| -> Table {
            let keys = DISK_SETTINGS.iter().filter(|setting| has(setting)).map(|it| it.key);
            keys.filter_map(|key| Some((key.to_owned(), table.get(key)?.clone()))).collect()
        };
        let volume = tables(file, "volume").map(|volume| {
            let tenants = tables(volume, "tenant").map(|table| Named {
                name: DiskName::new(text(table, "name").unwrap_or_default()),
                settings: of(table, |setting| setting.also.contains(&Holder::Tenant)),
            });
            let disks = vms(volume).into_iter();
            let disks = disks.map(|(name, table)| Named { name, settings: of(table, |_| true) });
            Volume {
                name: text(volume, "name").unwrap_or_default().to_owned(),
                control: volume
                    .get("control")
                    .and_then(Value::as_table)
                    .cloned()
                    .unwrap_or_default(),
                disk: disks.collect(),
                tenant: tenants.collect(),
                ..Volume::default()
            }
        });
        Overlay { volume: volume.collect() }
    }

    /// The settings that policies give to the volumes of a file, and to their VMs.
    pub(super) fn of_policies(policies: &[Stored], file: &Table) -> Overlay {
        let volume = policies.iter().filter_map(|Stored { volume: policy, .. }| {
            let volume = tables(file, "volume").find(|volume| has_name(volume, &policy.name))?;
            let takes = |key: &str| {
                let setting = DiskSetting::find(key);
                setting.is_some_and(|setting| match steered_by(volume) {
                    None => true,
                    Some((_, holder)) => setting.also.contains(&holder),
                })
            };
            let disks = vms(volume).into_iter().map(|(name, _)| {
                let mut settings = policy.settings_of(&name.name);
                settings.retain(|key, _| takes(key));
                Named { name, settings }
            });
            let tenants = policy.tenant.iter().map(|tenant| Named {
                name: DiskName::new(&tenant.name),
                settings: tenant.settings.clone(),
            });
            Some(Volume {
                name: policy.name.clone(),
                control: policy.control.clone(),
                disk: disks.collect(),
                tenant: tenants.collect(),
                ..Volume::default()
            })
        });
        Overlay { volume: volume.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.volume.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn get(&self, target: &Target, setting: &str) -> Option<&Value> {
        self.tables().find(|(of, _)| of == target)?.1.get(setting)
    }

    /// Keys of all settings of a target.
    pub(crate) fn keys(&self, target: &Target) -> Vec<Setting> {
        let own = self.tables().filter(|(of, _)| of == target);
        own.flat_map(|(_, table)| table.keys()).cloned().collect()
    }

    pub(crate) fn set(&mut self, target: &Target, setting: &str, value: Value) {
        self.table(target).insert(setting.to_owned(), value);
    }

    /// Takes a setting out.
    pub(crate) fn clear(&mut self, target: &Target, setting: &str) {
        self.table(target).remove(setting);
        self.drop_empty();
    }

    /// Takes out a disk's addition or removal, and its settings. If layers `below` have the disk, its settings stay for its return. Its
    /// drain goes, as it was for the removal.
    pub(crate) fn forget(&mut self, volume: &str, disk: &DiskName, below: bool) {
        let of = self.volume_of(volume);
        let all = of.add.len();
        of.add.retain(|table| !disk.is(table));
        let stay = below && of.add.len() == all;
        for named in of.disk.iter_mut().filter(|named| named.name == *disk) {
            named.settings.retain(|key, _| stay && key != DRAIN);
        }
        self.restore(volume, disk);
    }

    /// Takes back the removal of a disk. True if this layer had removed it.
    pub(crate) fn restore(&mut self, volume: &str, disk: &DiskName) -> bool {
        let of = self.volume_of(volume);
        let had = of.remove.contains(disk);
        of.remove.retain(|other| other != disk);
        self.drop_empty();
        had
    }

    /// Whether this layer has added or removed a disk.
    pub(crate) fn shapes_disk(&self, volume: &str, disk: &DiskName) -> bool {
        let mut of = self.volume.iter().filter(|of| of.name == volume);
        of.any(|of| of.remove.contains(disk) || of.add.iter().any(|it| disk.is(it)))
    }

    /// All removals and additions of disks, each with its volume, in the order in which they apply.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&str, Shape)> {
        self.volume.iter().flat_map(|of| {
            let removed = of.remove.iter().cloned().map(Shape::Remove);
            let shapes = removed.chain(of.add.iter().cloned().map(Shape::Add));
            shapes.map(|shape| (of.name.as_str(), shape))
        })
    }

    /// Adds or removes a disk. A new disk does not inherit settings of an earlier disk with its name.
    pub(crate) fn take(&mut self, volume: &str, shape: Shape) {
        let of = self.volume_of(volume);
        match shape {
            Shape::Remove(disk) => of.remove.push(disk),
            Shape::Add(disk) => {
                of.disk.retain(|named| !named.name.is(&disk));
                of.add.push(disk);
            }
        }
    }

    /// The tables of settings that were changed, each with its target.
    pub(super) fn tables(&self) -> impl Iterator<Item = (Target, &Table)> {
        let all = self.volume.iter().flat_map(|of| {
            let law = std::iter::once((Target::volume(&of.name), &of.control));
            let disks = of.disk.iter();
            let disks = disks.map(|it| (Target::vm(&of.name, it.name.clone()), &it.settings));
            let tenants = of.tenant.iter();
            let tenants = tenants.map(|it| (Target::tenant(&of.name, &it.name.name), &it.settings));
            law.chain(disks).chain(tenants)
        });
        all.filter(|(_, table)| !table.is_empty())
    }

    /// All settings that were changed, each with its target.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Target, &Setting, &Value)> {
        self.tables().flat_map(|(target, table)| {
            table.iter().map(move |(key, value)| (target.clone(), key, value))
        })
    }

    /// The table of a target's settings, which is added if it is not there.
    fn table(&mut self, target: &Target) -> &mut Table {
        let of = self.volume_of(&target.volume);
        let (list, name) = match &target.of {
            Of::Law => return &mut of.control,
            Of::Vm(name) => (&mut of.disk, name.clone()),
            Of::Tenant(name) => (&mut of.tenant, DiskName::new(name)),
        };
        let new = || Named { name: name.clone(), settings: Table::new() };
        &mut entry(list, |named| named.name == name, new).settings
    }

    fn volume_of(&mut self, name: &str) -> &mut Volume {
        let new = || Volume { name: name.to_owned(), ..Volume::default() };
        entry(&mut self.volume, |volume| volume.name == name, new)
    }

    fn drop_empty(&mut self) {
        for of in &mut self.volume {
            of.disk.retain(|named| !named.settings.is_empty());
            of.tenant.retain(|named| !named.settings.is_empty());
        }
        let is_empty = |of: &Volume| *of == Volume { name: of.name.clone(), ..Volume::default() };
        self.volume.retain(|of| !is_empty(of));
    }

    /// Adds its disks to those of a file, and takes those out that it removes.
    pub(crate) fn shape(&self, file: &mut Table) {
        for (volume, shape) in self.shapes() {
            // A steered volume has no disks; the check of the configuration reports it.
            let Some(disks) = volume_in(file, volume).and_then(|of| list(of, "disk")) else {
                continue;
            };
            match shape {
                Shape::Remove(disk) => {
                    disks.retain(|other| !other.as_table().is_some_and(|table| disk.is(table)));
                }
                Shape::Add(disk) => disks.push(Value::Table(disk)),
            }
        }
    }

    /// Adds those of its tenants that a file does not have.
    pub(super) fn add_tenants(&self, file: &mut Table) {
        for of in self.volume.iter().filter(|of| !of.tenant.is_empty()) {
            let Some(tenants) = volume_in(file, &of.name).and_then(|of| list(of, "tenant")) else {
                continue;
            };
            for Named { name, .. } in &of.tenant {
                if !tenants.iter().filter_map(Value::as_table).any(|known| name.is(known)) {
                    let name = ("name".to_owned(), name.name.clone().into());
                    tenants.push(Value::Table(Table::from_iter([name])));
                }
            }
        }
    }

    /// Writes its settings over those of a file, and takes out those that are [`NONE`]. Settings of volumes and disks that the file does not
    /// have are skipped.
    pub(crate) fn apply(&self, file: &mut Table) {
        for (target, settings) in self.tables() {
            let Some(table) = table_of(file, &target) else { continue };
            for (key, value) in settings {
                if takes_out(&target, key, value) {
                    table.remove(key);
                } else {
                    table.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

impl Shape {
    /// The disk, in its volume.
    pub(crate) fn target(&self, volume: &str) -> Target {
        let disk = match self {
            Shape::Remove(disk) => &disk.name,
            Shape::Add(disk) => text(disk, "name").unwrap_or_default(),
        };
        Target::vm(volume, DiskName::new(disk))
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

/// The list of tables at a key, which is added if it is not there.
fn list<'a>(table: &'a mut Table, key: &str) -> Option<&'a mut Vec<Value>> {
    table.entry(key).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

fn volume_in<'a>(file: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    let volumes = file.get_mut("volume")?.as_array_mut()?.iter_mut();
    volumes.filter_map(Value::as_table_mut).find(|table| has_name(table, name))
}

/// The value that takes a setting out, whatever the layers below have. A tenant may be called so.
const NONE: &str = "none";

fn takes_out(target: &Target, setting: &str, value: &Value) -> bool {
    let of_law = matches!(target.of, Of::Law);
    let is_optional = DiskSetting::find(setting).is_some_and(|it| it.is_optional);
    !of_law && is_optional && setting != "tenant" && value.as_str() == Some(NONE)
}

/// Value of a setting in a file, if the file has it.
pub(crate) fn written(file: &Table, target: &Target, setting: &str) -> Option<Value> {
    table_of(&mut file.clone(), target)?.get(setting).cloned()
}

/// The tables of a list.
fn tables<'a>(of: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> + use<'a> {
    of.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table)
}

/// Table of a volume that is not served, which has its VMs.
fn steered_by(volume: &Table) -> Option<(&'static str, Holder)> {
    let kinds = [("steer", Holder::Steered), ("qemu", Holder::Throttled)];
    kinds.into_iter().find(|(key, _)| volume.contains_key(*key))
}

/// The VMs of a volume: its disks, the VMs of its device, or the rules for its QEMUs. A disk's listener names it where two have its name.
fn vms(volume: &Table) -> Vec<(DiskName, &Table)> {
    let all: Vec<_> = match steered_by(volume).map(|(key, _)| &volume[key]) {
        Some(outside) => outside.as_table().into_iter().flat_map(|it| tables(it, "vm")).collect(),
        None => tables(volume, "disk").collect(),
    };
    let mut named: HashMap<&str, usize> = HashMap::new();
    for name in all.iter().filter_map(|table| text(table, "name")) {
        *named.entry(name).or_default() += 1;
    }
    let each = all.iter().filter_map(|table| {
        let name = text(table, "name")?;
        let listen = text(table, "listen").filter(|_| named[name] > 1).map(str::to_owned);
        Some((DiskName { name: name.to_owned(), listen }, *table))
    });
    each.collect()
}

/// The table of a file with the settings of a target. A missing `[volume.control]` is added.
pub(super) fn table_of<'a>(file: &'a mut Table, target: &Target) -> Option<&'a mut Table> {
    let volume = volume_in(file, &target.volume)?;
    let (list, name) = match &target.of {
        Of::Law => {
            let control = volume.entry("control").or_insert_with(|| Value::Table(Table::new()));
            return control.as_table_mut();
        }
        Of::Vm(disk) => match steered_by(volume) {
            Some((key, _)) => (volume.get_mut(key)?.get_mut("vm")?, disk.clone()),
            None => (volume.get_mut("disk")?, disk.clone()),
        },
        Of::Tenant(name) => (volume.get_mut("tenant")?, DiskName::new(name)),
    };
    let mut tables = list.as_array_mut()?.iter_mut().filter_map(Value::as_table_mut);
    tables.find(|table| name.is(table))
}
