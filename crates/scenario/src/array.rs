//! The shared array of a scenario.

use parda_array::{
    ArrayParams, Bytes, Device, FaultError, LayoutParams, ParamError, Placement, Preset, RaidLevel,
    SLOWEST, UnknownPreset,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayEvent {
    /// The drive of this number, counted from 0, fails.
    FailDrive(u32),
    /// A new drive replaces the failed drive of this number and is rebuilt.
    RebuildDrive(u32),
    /// The write cache is enabled or disabled.
    WriteCache(bool),
    /// All drives become slower by this factor, relative to the preset.
    Slow(Thousandths),
}

/// A positive number, stored in thousandths so that it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thousandths(pub u32);

impl Thousandths {
    /// The nearest multiple of a thousandth. `None` if it is not positive or does not fit.
    pub(crate) fn of(value: f64) -> Option<Thousandths> {
        let thousandths = (value * 1e3).round();
        (1.0..=1e9).contains(&thousandths).then_some(Thousandths(thousandths as u32))
    }

    /// The number as a float: 1.5 for 1500 thousandths.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1e3
    }
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
        let drives = self.params.raid.drives;
        match (event, self.missing) {
            (ArrayEvent::FailDrive(drive) | ArrayEvent::RebuildDrive(drive), _)
                if drive >= drives =>
            {
                return Err(FaultError::UnknownDrive { drive, drives }.to_string());
            }
            (ArrayEvent::FailDrive(drive), _) if self.params.raid.level == RaidLevel::Raid0 => {
                return Err(FaultError::NoRedundancy { drive }.to_string());
            }
            (ArrayEvent::FailDrive(drive), Some(missing)) if !self.rebuilding => {
                return Err(FaultError::AlreadyDegraded { drive, missing }.to_string());
            }
            (ArrayEvent::FailDrive(drive), _) => {
                (self.missing, self.rebuilding) = (Some(drive), false);
            }
            (ArrayEvent::RebuildDrive(_), None) => {
                return Err(FaultError::NothingToRebuild.to_string());
            }
            (ArrayEvent::RebuildDrive(drive), Some(missing)) if drive != missing => {
                return Err(format!("drive {missing} has failed, not drive {drive}"));
            }
            (ArrayEvent::RebuildDrive(drive), Some(_)) if self.rebuilding => {
                return Err(FaultError::AlreadyRebuilding { drive }.to_string());
            }
            (ArrayEvent::RebuildDrive(_), Some(_)) => self.rebuilding = true,
            (ArrayEvent::WriteCache(_), _) if self.params.controller.write_cache.is_none() => {
                return Err(FaultError::NoWriteCache.to_string());
            }
            (ArrayEvent::WriteCache(_), _) => {}
            (ArrayEvent::Slow(slow), _) if !(1.0 / SLOWEST..=SLOWEST).contains(&slow.value()) => {
                return Err(FaultError::Slow { per_mille: slow.0.into() }.to_string());
            }
            (ArrayEvent::Slow(_), _) => {}
        }
        Ok(())
    }
}

/// An invalid key in the `[array]` table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayFault {
    /// The preset is unknown.
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    /// A key has no effect with this layout.
    #[error("means nothing with layout = \"{layout}\"")]
    Useless {
        /// The key, such as `gap`.
        key: &'static str,
        /// The layout, as the scenario writes it.
        layout: &'static str,
    },
    /// A parameter is unknown, or its value is out of range.
    #[error("{message}")]
    Parameter {
        /// Path of the parameter in the `[array]` table.
        path: String,
        /// The fault, as the array model reports it.
        message: String,
    },
    /// No array with these parameters is possible.
    #[error(transparent)]
    Param(#[from] ParamError),
}

impl ArrayFault {
    /// Path of the invalid key in the `[array]` table.
    pub(crate) fn path(&self) -> &str {
        match self {
            ArrayFault::Preset(_) => "preset",
            ArrayFault::Useless { key, .. } => key,
            ArrayFault::Parameter { path, .. } => path,
            ArrayFault::Param(error) => match error.name {
                "layout.start" => "start",
                "layout.placement.contiguous.gap" => "gap",
                "layout.placement.interleaved.extent" => "extent",
                "layout.luns" => "",
                name => name,
            },
        }
    }
}

impl ArraySettings {
    /// Parameters of the array with these LUNs, in this order.
    ///
    /// # Errors
    /// The preset is unknown, or no such array is possible.
    pub fn params(&self, luns: Vec<Bytes>) -> Result<ArrayParams, ArrayFault> {
        let base = self.preset.parse::<Preset>()?.params();
        let useless = |key, value: Option<Bytes>, layout| match value {
            Some(_) => Err(ArrayFault::Useless { key, layout }),
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
                Device::Disk(disk) => Device::Disk(changed(disk, "drive", &self.drive)?),
                Device::Flash(flash) => Device::Flash(changed(flash, "drive", &self.drive)?),
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
    let fault = |key: &str, error: toml::de::Error| ArrayFault::Parameter {
        path: format!("{name}.{key}"),
        message: error.message().trim().to_owned(),
    };
    let mut result = base;
    for (key, value) in changes {
        // Parameters are replaced one after the other, to learn which one is invalid.
        let mut table = Table::try_from(&result)
            .map_err(|e| ArrayFault::Parameter { path: name.to_owned(), message: e.to_string() })?;
        table.insert(key.clone(), value.clone());
        result = table.try_into().map_err(|e| fault(key, e))?;
    }
    Ok(result)
}
