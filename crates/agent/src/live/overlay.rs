//! A layer of settings over a configuration file.

use parda_config::VM_SETTINGS;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Settings that were changed, in the shape of the configuration.
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    disk: Vec<Disk>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Disk {
    name: String,
    /// There if the volume has two disks of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    #[serde(flatten)]
    settings: Table,
}

/// The volume or disk that a setting belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) volume: String,
    /// Name of the disk, and its listener where two have the name.
    pub(crate) disk: Option<(String, Option<String>)>,
}

/// Key of a setting.
pub(crate) type Setting = String;

impl Target {
    pub(crate) fn volume(name: &str) -> Target {
        Target { volume: name.to_owned(), disk: None }
    }

    pub(crate) fn disk_name(&self) -> Option<&str> {
        self.disk.as_ref().map(|(name, _)| name.as_str())
    }
}

impl Disk {
    fn is(&self, (name, listen): &(String, Option<String>)) -> bool {
        self.name == *name && self.listen == *listen
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
                // The kernel's queue knows no other setting of a VM.
                if key == "shares" || !is_steered(volume) {
                    overlay.set(&target, &key, value);
                }
            }
        }
        overlay
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.volume.is_empty()
    }

    fn settings(&self, target: &Target) -> Option<&Table> {
        let volume = self.volume.iter().find(|volume| volume.name == target.volume)?;
        match &target.disk {
            None => Some(&volume.control),
            Some(disk) => Some(&volume.disk.iter().find(|other| other.is(disk))?.settings),
        }
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
        let at = self.volume.iter().position(|volume| volume.name == target.volume);
        let at = at.unwrap_or_else(|| {
            self.volume.push(Volume { name: target.volume.clone(), ..Volume::default() });
            self.volume.len() - 1
        });
        let volume = &mut self.volume[at];
        let Some(disk) = &target.disk else {
            volume.control.insert(setting.to_owned(), value);
            return;
        };
        let at = volume.disk.iter().position(|other| other.is(disk));
        let at = at.unwrap_or_else(|| {
            let (name, listen) = disk.clone();
            volume.disk.push(Disk { name, listen, settings: Table::new() });
            volume.disk.len() - 1
        });
        volume.disk[at].settings.insert(setting.to_owned(), value);
    }

    /// Takes a setting out.
    pub(crate) fn clear(&mut self, target: &Target, setting: &str) {
        for volume in self.volume.iter_mut().filter(|volume| volume.name == target.volume) {
            match &target.disk {
                None => drop(volume.control.remove(setting)),
                Some(disk) => {
                    for disk in volume.disk.iter_mut().filter(|other| other.is(disk)) {
                        disk.settings.remove(setting);
                    }
                    volume.disk.retain(|disk| !disk.settings.is_empty());
                }
            }
        }
        self.volume.retain(|volume| !volume.control.is_empty() || !volume.disk.is_empty());
    }

    /// All settings that were changed, each with its target.
    pub(crate) fn all(&self) -> Vec<(Target, Setting, Value)> {
        let mut all = Vec::new();
        for volume in &self.volume {
            let of = |disk: Option<&Disk>| Target {
                volume: volume.name.clone(),
                disk: disk.map(|disk| (disk.name.clone(), disk.listen.clone())),
            };
            let mut add = |target: Target, table: &Table| {
                all.extend(table.iter().map(|(k, v)| (target.clone(), k.clone(), v.clone())));
            };
            add(of(None), &volume.control);
            volume.disk.iter().for_each(|disk| add(of(Some(disk)), &disk.settings));
        }
        all
    }

    /// Writes its settings over those of a file. What the file does not have any more is left alone.
    pub(crate) fn apply(&self, file: &mut Table) {
        for (target, setting, value) in self.all() {
            if let Some(table) = table_of(file, &target) {
                table.insert(setting, value);
            }
        }
    }
}

/// A setting as a file has it.
pub(crate) fn written(file: &Table, target: &Target, setting: &str) -> Option<Value> {
    table_of(&mut file.clone(), target)?.get(setting).cloned()
}

/// The volumes of a file.
fn volumes(file: &Table) -> impl Iterator<Item = &Table> {
    let volumes = file.get("volume").and_then(Value::as_array);
    volumes.into_iter().flatten().filter_map(Value::as_table)
}

fn has_name(table: &Table, name: &str) -> bool {
    text(table, "name") == Some(name)
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Value::as_str)
}

fn is_steered(volume: &Table) -> bool {
    volume.contains_key("steer")
}

/// The VMs of a volume: its disks, or the VMs of its device. A disk's listener names it where two have its name.
fn vms(volume: &Table) -> Vec<(Target, &Table)> {
    let list = match volume.get("steer") {
        Some(steer) => steer.get("vm"),
        None => volume.get("disk"),
    };
    let tables: Vec<_> =
        list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect();
    let of = text(volume, "name").unwrap_or_default();
    let each = tables.iter().filter_map(|table| {
        let name = text(table, "name")?;
        let twins = tables.iter().filter(|other| has_name(other, name)).count();
        let listen = text(table, "listen").filter(|_| twins > 1).map(str::to_owned);
        Some((Target { volume: of.to_owned(), disk: Some((name.to_owned(), listen)) }, *table))
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
        for (target, table) in vms(volume) {
            let set = VM_SETTINGS.iter().filter_map(|key| Some((*key, table.get(*key)?)));
            all.extend(set.map(|(key, value)| (target.clone(), key.to_owned(), value.clone())));
        }
    }
    all
}

/// The table of a file that has the settings of a target.
fn table_of<'a>(file: &'a mut Table, target: &Target) -> Option<&'a mut Table> {
    let volumes = file.get_mut("volume")?.as_array_mut()?;
    let volume = volumes.iter_mut().filter_map(Value::as_table_mut);
    let volume = volume.into_iter().find(|table| has_name(table, &target.volume))?;
    let Some((name, listen)) = &target.disk else {
        let control = volume.entry("control").or_insert_with(|| Value::Table(Table::new()));
        return control.as_table_mut();
    };
    let here = |table: &Table| listen.is_none() || text(table, "listen") == listen.as_deref();
    let list = match is_steered(volume) {
        true => volume.get_mut("steer")?.get_mut("vm")?,
        false => volume.get_mut("disk")?,
    };
    let vms = list.as_array_mut()?.iter_mut().filter_map(Value::as_table_mut);
    vms.into_iter().find(|table| has_name(table, name) && here(table))
}
