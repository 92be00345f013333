//! Arrays with names: those that the source documents measured.

use alloc::string::{String, ToString};
use alloc::vec;
use core::fmt;
use core::str::FromStr;

use crate::controller::{ControllerParams, PrefetchParams, WriteCacheParams};
use crate::drive::{DriveParams, Scheduling, SeekParams};
use crate::layout::{LayoutParams, Placement};
use crate::params::ArrayParams;
use crate::raid::{RaidLevel, RaidParams};
use crate::units::{Bytes, Nanos, Rate};

/// A measured array. All have the same kind of drive and controller, fitted once to all figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `drive-7200`: one 7,200 rpm drive without a controller in front of it, one LUN over all of
    /// it (Elling'12).
    Drive7200,
    /// `cx3-40-raid0`: EMC CLARiiON CX3-40, 10-disk RAID-0, one 124 GB LUN (SPEED'08 §4).
    Cx340Raid0,
    /// `cx3-40-raid0-vms`: the same with four 16 GB disks in order, each followed by its VM's 4 GB
    /// system disk (PARDA §4, figure 3).
    Cx340Raid0Vms,
    /// `cx3-40-raid5-vms`: the same array's 5-disk RAID-5 with seven 8 GB disks in order (SPEED'08
    /// §4.3, PARDA §5.2, figure 7).
    Cx340Raid5Vms,
}

/// A name that no preset bears.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no array is called `{0}`: there are drive-7200, cx3-40-raid0, cx3-40-raid0-vms and \
     cx3-40-raid5-vms"
)]
pub struct UnknownPreset(String);

/// Fitted to the figures of all sources at once; see docs/array-model.md.
const DRIVE: DriveParams = DriveParams {
    capacity: Bytes::gb(514),
    rpm: 7_200,
    outer_rate: Rate(81_200_000),
    inner_to_outer: 0.62,
    surfaces: 8,
    seek: SeekParams {
        base: Nanos::from_micros(861),
        root: Nanos::from_micros(10_750),
        linear: Nanos::from_micros(6_500),
    },
    command_overhead: Nanos::from_micros(203),
    write_settle: Nanos::from_micros(250),
    read_ahead: Bytes::mib(1),
    queue_depth: 10,
    scheduling: Scheduling::Sptf,
};

const CONTROLLER: ControllerParams = ControllerParams {
    io_cost: Nanos(35_600),
    link: Rate::mb_per_s(177),
    write_cache: Some(WriteCacheParams {
        capacity: Bytes(2_500_000_000),
        page: Bytes::kib(8),
        low_water: 0.6,
        high_water: 0.8,
        destage: 0.9,
        mirror: Nanos::from_micros(300),
    }),
    prefetch: Some(PrefetchParams { after: 8, segment: Bytes::kib(64), depth: Bytes::mib(2) }),
};

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 4] =
        [Preset::Drive7200, Preset::Cx340Raid0, Preset::Cx340Raid0Vms, Preset::Cx340Raid5Vms];

    /// The preset's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Drive7200 => "drive-7200",
            Preset::Cx340Raid0 => "cx3-40-raid0",
            Preset::Cx340Raid0Vms => "cx3-40-raid0-vms",
            Preset::Cx340Raid5Vms => "cx3-40-raid5-vms",
        }
    }

    /// Its parameters, to be used as they are or changed.
    #[must_use]
    pub fn params(self) -> ArrayParams {
        let (level, drives) = match self {
            Preset::Drive7200 => (RaidLevel::Raid0, 1),
            Preset::Cx340Raid0 | Preset::Cx340Raid0Vms => (RaidLevel::Raid0, 10),
            Preset::Cx340Raid5Vms => (RaidLevel::Raid5, 5),
        };
        let (gap, luns) = match self {
            // All whole gigabytes of the drive.
            Preset::Drive7200 => (Bytes(0), vec![Bytes::gib(478)]),
            Preset::Cx340Raid0 => (Bytes(0), vec![Bytes::gib(124)]),
            Preset::Cx340Raid0Vms => (Bytes::gib(4), vec![Bytes::gib(16); 4]),
            Preset::Cx340Raid5Vms => (Bytes(0), vec![Bytes::gib(8); 7]),
        };
        let controller = match self {
            // "6Gbps SAS or SATA": "around 750 MB/sec" (Elling'12).
            Preset::Drive7200 => ControllerParams {
                io_cost: Nanos(0),
                link: Rate::mb_per_s(750),
                write_cache: None,
                prefetch: None,
            },
            _ => CONTROLLER,
        };
        ArrayParams {
            drive: DRIVE,
            raid: RaidParams { level, drives, element: Bytes::kib(64), rebuild: Bytes::kib(512) },
            controller,
            layout: LayoutParams {
                start: Bytes(0),
                placement: Placement::Contiguous { gap },
                luns,
            },
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;
    fn from_str(name: &str) -> Result<Preset, UnknownPreset> {
        let known = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        known.ok_or_else(|| UnknownPreset(name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_possible_and_go_by_their_names() {
        for preset in Preset::ALL {
            assert_eq!(preset.params().validate(), Ok(()), "{preset}");
            assert_eq!(preset.name().parse(), Ok(preset));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_known_ones() {
        let error = "cx5".parse::<Preset>().unwrap_err().to_string();
        assert!(Preset::ALL.iter().all(|preset| error.contains(preset.name())), "{error}");
    }
}
