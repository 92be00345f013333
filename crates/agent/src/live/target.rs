//! Names of the volumes and disks that settings belong to.

use std::fmt;

use parda_address::Address;
use parda_block::DiskConfig;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config;

/// Key of a setting, such as `shares`.
pub(crate) type Setting = String;

/// Name of a disk in its volume, with the listener where two disks have the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskName {
    pub(crate) name: String,
    pub(crate) listen: Option<String>,
}

/// The part of a volume that a setting belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) volume: String,
    pub(crate) of: Of,
}

/// A part of a volume that has settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// The law, with the settings of `[volume.control]`.
    Law,
    /// A disk, or a VM of a steered device.
    Vm(DiskName),
    /// A tenant, by its name.
    Tenant(String),
}

impl DiskName {
    /// The one disk, VM or tenant of a name.
    pub(crate) fn new(name: &str) -> DiskName {
        DiskName { name: name.to_owned(), listen: None }
    }

    /// Whether a table of the configuration file is this disk's.
    pub(super) fn is(&self, disk: &Table) -> bool {
        let listens = |listen: &str| {
            text(disk, "listen").and_then(|text| text.parse().ok())
                == listen.parse::<Address>().ok()
        };
        has_name(disk, &self.name) && self.listen.as_deref().is_none_or(listens)
    }

    /// This disk of a checked volume.
    pub(crate) fn find<'a>(&self, volume: &'a config::Volume) -> Option<&'a DiskConfig> {
        let listen = self.listen.as_deref().map(str::parse::<Address>);
        volume.disks().iter().find(|disk| {
            disk.name.to_string() == self.name
                && listen.as_ref().is_none_or(|listen| listen.as_ref() == Ok(&disk.listen))
        })
    }
}

impl Target {
    pub(crate) fn volume(name: &str) -> Target {
        Target { volume: name.to_owned(), of: Of::Law }
    }

    pub(crate) fn vm(volume: &str, name: DiskName) -> Target {
        Target { volume: volume.to_owned(), of: Of::Vm(name) }
    }

    pub(crate) fn tenant(volume: &str, name: &str) -> Target {
        Target { volume: volume.to_owned(), of: Of::Tenant(name.to_owned()) }
    }

    pub(crate) fn disk_name(&self) -> Option<&str> {
        match &self.of {
            Of::Vm(disk) => Some(disk.name.as_str()),
            Of::Law | Of::Tenant(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {}", self.volume)?;
        match &self.of {
            Of::Law => Ok(()),
            Of::Vm(disk) => write!(f, ", disk {}", disk.name),
            Of::Tenant(name) => write!(f, ", tenant {name}"),
        }
    }
}

/// Whether a table of the configuration file has this `name`.
pub(super) fn has_name(table: &Table, name: &str) -> bool {
    text(table, "name") == Some(name)
}

/// Text of a key of a table.
pub(super) fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Value::as_str)
}
