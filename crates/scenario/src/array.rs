//! The shared array, as a scenario describes it.

use parda_array::{
    ArrayParams, Bytes, ControllerParams, DriveParams, LayoutParams, ParamError, Placement, Preset,
    RaidParams, UnknownPreset,
};
use serde::Deserialize;

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
    /// In place of the preset's drives.
    pub drive: Option<DriveParams>,
    /// In place of the preset's RAID group.
    pub raid: Option<RaidParams>,
    /// In place of the preset's controller.
    pub controller: Option<ControllerParams>,
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
            drive: self.drive.clone().unwrap_or(base.drive),
            raid: self.raid.clone().unwrap_or(base.raid),
            controller: self.controller.clone().unwrap_or(base.controller),
            layout: LayoutParams { start: self.start.unwrap_or_default(), placement, luns },
        };
        params.validate()?;
        Ok(params)
    }
}
