//! The shared array, as a scenario describes it.

use parda_array::{
    ArrayParams, Bytes, Device, FaultError, LayoutParams, ParamError, Placement, Preset, RaidLevel,
    SLOWEST, UnknownPreset,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Table;

/// How the disks of VMs lie on the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Extents of all disks take turns, so the array treats them alike. The default.
    #[default]
    Interleaved,
    /// One disk after the other: some are nearer to the middle than others (PARDA §4).
    Contiguous,
}

/// The `[array]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySettings {
    /// The array that the rest is a change to, by the name of one of [`Preset::ALL`].
    pub preset: String,
    /// Parameters of [`parda_array::DriveParams`] or [`parda_array::FlashParams`] in place of the preset's.
    #[serde(default)]
    pub drive: Table,
    /// Parameters of [`parda_array::RaidParams`] in place of the preset's.
    #[serde(default)]
    pub raid: Table,
    /// Parameters of [`parda_array::ControllerParams`] in place of the preset's.
    #[serde(default)]
    pub controller: Table,
    /// How the disks of VMs lie on it.
    #[serde(default)]
    pub layout: Layout,
    /// Where the first one begins. 0 if not given.
    pub start: Option<Bytes>,
    /// Contiguous: unused space between two disks. None if not given.
    pub gap: Option<Bytes>,
    /// Interleaved: size of an extent. [`DEFAULT_EXTENT`] if not given.
    pub extent: Option<Bytes>,
}

/// The smallest extent that the array model takes: it mixes the disks best.
pub const DEFAULT_EXTENT: Bytes = Bytes::mib(1);

/// What can happen to an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayEvent {
    /// A drive fails, by its number from 0.
    FailDrive(u32),
    /// A new drive takes the place of the failed one of this number, and is rebuilt.
    RebuildDrive(u32),
    /// The write cache goes on or off.
    WriteCache(bool),
    /// The drives take so many times as long for everything as they were made to, in thousandths.
    Slow(Thousandths),
}

/// A number in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thousandths(pub u32);

impl Thousandths {
    /// The nearest to a number, if it is above zero and one of these.
    pub(crate) fn of(value: f64) -> Option<Thousandths> {
        let thousandths = (value * 1e3).round();
        (1.0..=1e9).contains(&thousandths).then_some(Thousandths(thousandths as u32))
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

/// Why something cannot happen to an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Impossible {
    /// The array itself would not take it.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// Another drive has failed.
    #[error("drive {missing} has failed, not drive {drive}")]
    OtherDrive { drive: u32, missing: u32 },
}

/// What of an array's drives is known before it runs: which has failed. Not when a rebuild ends:
/// that depends on the load.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    params: ArrayParams,
    missing: Option<u32>,
    rebuilding: bool,
}

impl Group {
    /// All drives are there.
    pub(crate) fn new(params: ArrayParams) -> Group {
        Group { params, missing: None, rebuilding: false }
    }

    /// Lets something happen.
    pub(crate) fn apply(&mut self, event: ArrayEvent) -> Result<(), Impossible> {
        let drives = self.params.raid.drives;
        match (event, self.missing) {
            (ArrayEvent::FailDrive(drive) | ArrayEvent::RebuildDrive(drive), _)
                if drive >= drives =>
            {
                return Err(FaultError::UnknownDrive { drive, drives }.into());
            }
            (ArrayEvent::FailDrive(drive), _) if self.params.raid.level == RaidLevel::Raid0 => {
                return Err(FaultError::NoRedundancy { drive }.into());
            }
            (ArrayEvent::FailDrive(drive), Some(missing)) if !self.rebuilding => {
                return Err(FaultError::AlreadyDegraded { drive, missing }.into());
            }
            (ArrayEvent::FailDrive(drive), _) => {
                (self.missing, self.rebuilding) = (Some(drive), false);
            }
            (ArrayEvent::RebuildDrive(_), None) => {
                return Err(FaultError::NothingToRebuild.into());
            }
            (ArrayEvent::RebuildDrive(drive), Some(missing)) if drive != missing => {
                return Err(Impossible::OtherDrive { drive, missing });
            }
            (ArrayEvent::RebuildDrive(drive), Some(_)) if self.rebuilding => {
                return Err(FaultError::AlreadyRebuilding { drive }.into());
            }
            (ArrayEvent::RebuildDrive(_), Some(_)) => self.rebuilding = true,
            (ArrayEvent::WriteCache(_), _) if self.params.controller.write_cache.is_none() => {
                return Err(FaultError::NoWriteCache.into());
            }
            (ArrayEvent::WriteCache(_), _) => {}
            (ArrayEvent::Slow(slow), _) if !(1.0 / SLOWEST..=SLOWEST).contains(&slow.value()) => {
                return Err(FaultError::Slow { per_mille: slow.0.into() }.into());
            }
            (ArrayEvent::Slow(_), _) => {}
        }
        Ok(())
    }
}

/// A fault in the `[array]` table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayFault {
    /// No such preset.
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    /// A key that this layout has no use for.
    #[error("means nothing with layout = \"{layout}\"")]
    Useless {
        /// The key.
        key: &'static str,
        /// The layout.
        layout: &'static str,
    },
    /// A parameter that there is not, or not with such a value.
    #[error("{message}")]
    Parameter {
        /// Its path in the `[array]` table.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// An impossible array.
    #[error(transparent)]
    Param(#[from] ParamError),
}

impl ArrayFault {
    /// The path of the key in the `[array]` table that is at fault.
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
    /// The array's parameters with these LUNs on it, in this order.
    ///
    /// # Errors
    /// There is no such preset, or no such array is possible.
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

/// `base` with some of its parameters replaced.
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
        // One after the other, so that the one at fault is known.
        let mut table = Table::try_from(&result)
            .map_err(|e| ArrayFault::Parameter { path: name.to_owned(), message: e.to_string() })?;
        table.insert(key.clone(), value.clone());
        result = table.try_into().map_err(|e| fault(key, e))?;
    }
    Ok(result)
}
