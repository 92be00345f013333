//! A layer of settings over a configuration file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use parda_config::{DISK_SETTINGS, DiskSetting, TenantSettings};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::target::{DiskName, Of, Setting, Target, has_name, text};

/// A layer: settings and disks that were changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(crate) struct Overlay {
    settings: BTreeMap<Target, Table>,
    /// Removals and additions of disks, each with its volume, in the order in which they apply.
    shapes: Vec<(String, Shape)>,
}

/// A layer as its file has it, in the shape of the configuration.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volume: Vec<Volume>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
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
#[derive(Clone, Serialize, Deserialize)]
struct Named {
    #[serde(flatten)]
    name: DiskName,
    #[serde(flatten)]
    settings: Table,
}

impl From<Written> for Overlay {
    fn from(written: Written) -> Overlay {
        let mut overlay = Overlay::default();
        for Volume { name: of, control, remove, add, disk, tenant } in written.volume {
            let shapes = remove.into_iter().map(Shape::Remove);
            let shapes = shapes.chain(add.into_iter().map(Shape::Add));
            overlay.shapes.extend(shapes.map(|shape| (of.clone(), shape)));
            let law = std::iter::once((Target::volume(&of), control));
            let disks = disk.into_iter().map(|it| (Target::vm(&of, it.name), it.settings));
            let tenants =
                tenant.into_iter().map(|it| (Target::tenant(&of, &it.name.name), it.settings));
            let all = law.chain(disks).chain(tenants);
            overlay.settings.extend(all.filter(|(_, settings)| !settings.is_empty()));
        }
        overlay
    }
}

impl From<Overlay> for Written {
    fn from(overlay: Overlay) -> Written {
        let mut volumes: BTreeMap<String, Volume> = BTreeMap::new();
        for (Target { volume, of }, settings) in overlay.settings {
            let volume = volumes.entry(volume).or_default();
            match of {
                Of::Law => volume.control = settings,
                Of::Vm(name) => volume.disk.push(Named { name, settings }),
                Of::Tenant(name) => {
                    let name = DiskName { name, listen: None };
                    volume.tenant.push(Named { name, settings });
                }
            }
        }
        for (volume, shape) in overlay.shapes {
            let volume = volumes.entry(volume).or_default();
            match shape {
                Shape::Remove(disk) => volume.remove.push(disk),
                Shape::Add(disk) => volume.add.push(disk),
            }
        }
        let named = volumes.into_iter().map(|(name, volume)| Volume { name, ..volume });
        Written { volume: named.collect() }
    }
}

impl Overlay {
    /// Adds the settings that a policy gives to a volume of a file, and to its VMs.
    pub(super) fn add_policy(&mut self, policy: &parda_policy::Volume, file: &Table) {
        let volume = volumes(file).find(|volume| has_name(volume, &policy.name));
        let Some(volume) = volume else { return };
        let control = Target::volume(&policy.name);
        for (key, value) in &policy.control {
            self.set(&control, key, value.clone());
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
                    self.set(&target, &key, value);
                }
            }
        }
        for tenant in &policy.tenant {
            let target = Target::tenant(&policy.name, &tenant.name);
            for (key, value) in &tenant.settings {
                self.set(&target, key, value.clone());
            }
        }
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
        self.settings.is_empty() && self.shapes.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn get(&self, target: &Target, setting: &str) -> Option<&Value> {
        self.settings.get(target)?.get(setting)
    }

    /// Keys of all settings of a target.
    pub(crate) fn keys(&self, target: &Target) -> Vec<Setting> {
        self.settings.get(target).into_iter().flat_map(Table::keys).cloned().collect()
    }

    pub(crate) fn set(&mut self, target: &Target, setting: &str, value: Value) {
        self.settings.entry(target.clone()).or_default().insert(setting.to_owned(), value);
    }

    /// Takes a setting out.
    pub(crate) fn clear(&mut self, target: &Target, setting: &str) {
        self.settings.get_mut(target).map(|settings| settings.remove(setting));
        self.settings.retain(|_, settings| !settings.is_empty());
    }

    /// Serves a disk no more, whether this layer or one below has it.
    pub(crate) fn remove(&mut self, volume: &str, disk: DiskName) {
        self.forget(volume, &disk);
        self.take(volume, Shape::Remove(disk));
    }

    /// Takes out a disk's settings, and its addition or removal. True if this layer had added or removed it.
    pub(crate) fn forget(&mut self, volume: &str, disk: &DiskName) -> bool {
        let before = self.shapes.len();
        self.shapes.retain(|(of, shape)| !(of == volume && shape.is_of(disk)));
        self.settings.remove(&Target::vm(volume, disk.clone()));
        self.shapes.len() < before
    }

    /// Whether this layer has added or removed a disk.
    pub(crate) fn shapes_disk(&self, volume: &str, disk: &DiskName) -> bool {
        self.shapes.iter().any(|(of, shape)| of == volume && shape.is_of(disk))
    }

    /// Whether this layer has removed a disk.
    pub(crate) fn removes(&self, volume: &str, disk: &DiskName) -> bool {
        let removed = Shape::Remove(disk.clone());
        self.shapes.iter().any(|(of, shape)| of == volume && *shape == removed)
    }

    /// All removals and additions of disks, each with its volume, in the order in which they apply.
    pub(crate) fn shapes(&self) -> &[(String, Shape)] {
        &self.shapes
    }

    /// Adds or removes a disk.
    pub(crate) fn take(&mut self, volume: &str, shape: Shape) {
        self.shapes.push((volume.to_owned(), shape));
    }

    /// All settings that were changed, each with its target.
    pub(crate) fn all(&self) -> Vec<(Target, Setting, Value)> {
        let each = self.settings.iter().flat_map(|(target, table)| {
            table.iter().map(|(key, value)| (target.clone(), key.clone(), value.clone()))
        });
        each.collect()
    }

    /// Adds its disks to those of a file, and takes those out that it removes.
    pub(crate) fn shape(&self, file: &mut Table) {
        for (volume, shape) in &self.shapes {
            let Some(disks) = disks_of(file, volume) else { continue };
            match shape {
                Shape::Remove(disk) => {
                    disks.retain(|other| !other.as_table().is_some_and(|table| disk.is(table)));
                }
                Shape::Add(disk) => disks.push(Value::Table(disk.clone())),
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
}

impl Shape {
    /// Whether it adds or removes this disk.
    fn is_of(&self, disk: &DiskName) -> bool {
        match self {
            Shape::Remove(other) => other == disk,
            Shape::Add(table) => disk.is(table),
        }
    }

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
pub(super) fn table_of<'a>(file: &'a mut Table, target: &Target) -> Option<&'a mut Table> {
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
