//! Where each setting in force comes from.

use std::collections::BTreeMap;

use parda_api::ValueFrom;
use toml::{Table, Value};

use super::overlay::{Overlay, Shape, all_written};
use super::target::{Setting, Target};

/// Values and origins of all settings that the file or a layer sets. The others have their defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    settings: BTreeMap<Target, BTreeMap<Setting, (Value, ValueFrom)>>,
    /// Disks that were added to those of the file, by volume and name.
    added: BTreeMap<(String, String), ValueFrom>,
}

impl Origins {
    /// Settings of a file and of the layers over it, each of which overrides the ones before.
    pub(crate) fn of(file: &Table, layers: &[(&Overlay, ValueFrom)]) -> Origins {
        let mut origins = Origins::default();
        for (target, setting, value) in all_written(file) {
            origins.set(target, setting, value, ValueFrom::Configuration);
        }
        for (layer, from) in layers {
            for (target, setting, value) in layer.all() {
                origins.set(target, setting, value, *from);
            }
            for (volume, shape) in layer.shapes() {
                if let Shape::Add(_) = shape {
                    let disk = shape.disk().to_owned();
                    origins.added.insert((volume.clone(), disk), *from);
                }
            }
        }
        origins
    }

    fn set(&mut self, target: Target, setting: Setting, value: Value, from: ValueFrom) {
        self.settings.entry(target).or_default().insert(setting, (value, from));
    }

    /// Settings of a volume or a VM that are set, with values and origins.
    pub(crate) fn of_target(&self, target: &Target) -> &BTreeMap<Setting, (Value, ValueFrom)> {
        static NONE: BTreeMap<Setting, (Value, ValueFrom)> = BTreeMap::new();
        self.settings.get(target).unwrap_or(&NONE)
    }

    /// Origin of a disk: the layer that added it, or the configuration.
    pub(crate) fn of_disk(&self, volume: &str, disk: &str) -> ValueFrom {
        let added = self.added.get(&(volume.to_owned(), disk.to_owned()));
        added.copied().unwrap_or(ValueFrom::Configuration)
    }

    /// Origin of a setting in force.
    pub(crate) fn from(&self, target: &Target, setting: &str) -> ValueFrom {
        self.of_target(target).get(setting).map_or(ValueFrom::Default, |(_, from)| *from)
    }

    /// VMs of a volume that have settings, with their targets.
    pub(crate) fn vms<'a>(&'a self, volume: &'a str) -> impl Iterator<Item = &'a Target> {
        self.settings
            .keys()
            .filter(move |target| target.volume == volume && target.disk_name().is_some())
    }
}
