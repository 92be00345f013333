//! The shared array of a scenario.

use std::fmt::Display;

use parda_array::{
    ArrayParams, Bytes, DriveModel, FaultError, LayoutParams, ParamError, Placement, Preset,
    UnknownPreset, may_be_slow,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Table;

/// Placement of the VMs' disks on the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Extents of all disks alternate, so that the array treats all disks alike. The default.
    #[default]
    Interleaved,
    /// One disk after the other, so that some are nearer to the middle than others (PARDA §4).
    Contiguous,
}

/// The `[array]` table of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySettings {
    /// Name of the preset that the other keys change: one of [`Preset::ALL`].
    pub preset: String,
    /// Parameters of [`parda_array::DriveParams`] or [`parda_array::FlashParams`] that replace the
    /// preset's.
    #[serde(default)]
    pub drive: Table,
    /// Parameters of [`parda_array::RaidParams`] that replace the preset's.
    #[serde(default)]
    pub raid: Table,
    /// Parameters of [`parda_array::ControllerParams`] that replace the preset's.
    #[serde(default)]
    pub controller: Table,
    /// Placement of the VMs' disks.
    #[serde(default)]
    pub layout: Layout,
    /// Offset of the first disk. 0 if absent.
    pub start: Option<Bytes>,
    /// Unused space between two disks, with [`Layout::Contiguous`]. None if absent.
    pub gap: Option<Bytes>,
    /// Size of an extent, with [`Layout::Interleaved`]. [`DEFAULT_EXTENT`] if absent.
    pub extent: Option<Bytes>,
}

/// Default size of an extent: the smallest that the array model accepts, which mixes the disks
/// best.
pub const DEFAULT_EXTENT: Bytes = Bytes::mib(1);

/// A fault or change of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrayEvent {
    /// The drive of this number, counted from 0, fails.
    FailDrive(u32),
    /// A new drive replaces the failed drive of this number and is rebuilt.
    RebuildDrive(u32),
    /// The write cache is enabled or disabled.
    WriteCache(bool),
    /// All drives become slower by this factor, relative to the preset.
    Slow(f64),
}

/// State of an array's drives that is known before a run: which drive has failed. The end of a
/// rebuild depends on the load, and is not known.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    params: ArrayParams,
    missing: Option<u32>,
    rebuilding: bool,
}

impl Group {
    /// A group without failed drives.
    pub(crate) fn new(params: ArrayParams) -> Group {
        Group { params, missing: None, rebuilding: false }
    }

    /// Applies an event.
    ///
    /// # Errors
    /// The event is impossible in this state; the state is unchanged.
    pub(crate) fn apply(&mut self, event: ArrayEvent) -> Result<(), String> {
        let said = |error: FaultError| error.to_string();
        match event {
            ArrayEvent::FailDrive(drive) => {
                // A rebuild may have ended.
                let missing = self.missing.filter(|_| !self.rebuilding);
                self.params.may_fail(drive, missing).map_err(said)?;
                (self.missing, self.rebuilding) = (Some(drive), false);
            }
            ArrayEvent::RebuildDrive(drive) => match self.missing {
                None => return Err(said(FaultError::NothingToRebuild)),
                Some(missing) if drive != missing => {
                    return Err(format!("drive {missing} has failed, not drive {drive}"));
                }
                Some(_) if self.rebuilding => {
                    return Err(said(FaultError::AlreadyRebuilding { drive }));
                }
                Some(_) => self.rebuilding = true,
            },
            ArrayEvent::WriteCache(_) if self.params.controller.write_cache.is_none() => {
                return Err(said(FaultError::NoWriteCache));
            }
            ArrayEvent::WriteCache(_) => {}
            ArrayEvent::Slow(slow) => may_be_slow(slow).map_err(said)?,
        }
        Ok(())
    }
}

/// An invalid key in the `[array]` table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArrayFault {
    /// Path of the key in the table; empty for the table.
    pub(crate) path: String,
    message: String,
}

impl ArrayFault {
    fn new(path: impl Into<String>, message: impl Display) -> ArrayFault {
        ArrayFault { path: path.into(), message: message.to_string() }
    }
}

/// No array with these parameters is possible.
impl From<ParamError> for ArrayFault {
    fn from(error: ParamError) -> ArrayFault {
        let path = match error.name {
            "layout.start" => "start",
            "layout.placement.contiguous.gap" => "gap",
            "layout.placement.interleaved.extent" => "extent",
            "layout.luns" => "",
            name => name,
        };
        ArrayFault::new(path, error)
    }
}

impl ArraySettings {
    /// Parameters of the array with these LUNs, in this order.
    ///
    /// # Errors
    /// The preset is unknown, or no such array is possible.
    pub fn params(&self, luns: Vec<Bytes>) -> Result<ArrayParams, ArrayFault> {
        let preset: Preset =
            self.preset.parse().map_err(|e: UnknownPreset| ArrayFault::new("preset", e))?;
        let base = preset.params();
        let useless = |key: &str, value: Option<Bytes>, layout: &str| match value {
            Some(_) => {
                Err(ArrayFault::new(key, format!("means nothing with layout = \"{layout}\"")))
            }
            None => Ok(()),
        };
        let placement = match self.layout {
            Layout::Interleaved => {
                useless("gap", self.gap, "interleaved")?;
                Placement::Interleaved { extent: self.extent.unwrap_or(DEFAULT_EXTENT) }
            }
            Layout::Contiguous => {
                useless("extent", self.extent, "contiguous")?;
                Placement::Contiguous { gap: self.gap.unwrap_or_default() }
            }
        };
        let params = ArrayParams {
            drive: match base.drive {
                DriveModel::Disk(disk) => DriveModel::Disk(changed(disk, "drive", &self.drive)?),
                DriveModel::Flash(flash) => {
                    DriveModel::Flash(changed(flash, "drive", &self.drive)?)
                }
            },
            raid: changed(base.raid, "raid", &self.raid)?,
            controller: changed(base.controller, "controller", &self.controller)?,
            layout: LayoutParams { start: self.start.unwrap_or_default(), placement, luns },
        };
        params.validate()?;
        Ok(params)
    }
}

/// `base` with the parameters of a table in place of its own.
fn changed<T: Serialize + DeserializeOwned>(
    base: T,
    name: &str,
    changes: &Table,
) -> Result<T, ArrayFault> {
    let mut result = base;
    for (key, value) in changes {
        // Parameters are replaced one after the other, to learn which one is invalid.
        let mut table = Table::try_from(&result).map_err(|e| ArrayFault::new(name, e))?;
        match (table.get_mut(key), value) {
            // The write cache: keys that are not given are the preset's.
            (Some(toml::Value::Table(own)), toml::Value::Table(changes)) => {
                own.extend(changes.clone());
            }
            _ => drop(table.insert(key.clone(), value.clone())),
        }
        result = table.try_into().map_err(|e: toml::de::Error| {
            ArrayFault::new(format!("{name}.{key}"), e.message().trim())
        })?;
    }
    Ok(result)
}
