//! Origin of each setting in force.

use std::collections::BTreeMap;

use parda_api::ValueFrom;
use toml::Value;

use super::overlay::{Overlay, Shape};
use super::target::{DiskName, Setting, Target};

/// Values and origins of all settings that the file or a layer sets. The others have their defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    settings: BTreeMap<Target, BTreeMap<Setting, (Value, ValueFrom)>>,
    /// Disks that were added to those of the file, each in its volume.
    added: BTreeMap<Target, ValueFrom>,
}

impl Origins {
    /// Settings of layers, each of which overrides the ones before.
    pub(super) fn of(layers: &[(&Overlay, ValueFrom)]) -> Origins {
        let mut origins = Origins::default();
        for (layer, from) in layers {
            for (target, table) in layer.tables() {
                let set = table.iter().map(|(key, value)| (key.clone(), (value.clone(), *from)));
                origins.settings.entry(target).or_default().extend(set);
            }
            let added = layer.shapes().filter(|(_, shape)| matches!(shape, Shape::Add(_)));
            origins.added.extend(added.map(|(volume, shape)| (shape.target(volume), *from)));
        }
        origins
    }

    /// Settings of a volume or a VM that are set, with values and origins.
    pub(crate) fn of_target(&self, target: &Target) -> &BTreeMap<Setting, (Value, ValueFrom)> {
        static NONE: BTreeMap<Setting, (Value, ValueFrom)> = BTreeMap::new();
        self.settings.get(target).unwrap_or(&NONE)
    }

    /// Origin of a disk: the layer that added it, or the configuration.
    pub(crate) fn of_disk(&self, volume: &str, disk: &str) -> ValueFrom {
        let added = self.added.get(&Target::vm(volume, DiskName::new(disk)));
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
