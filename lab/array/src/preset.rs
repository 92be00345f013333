//! Arrays with names: the arrays measured in the source documents, and other kinds.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::controller::{ControllerParams, PrefetchParams, WriteCacheParams};
use crate::drive::{DriveModel, DriveParams, FlashParams, Scheduling, SeekParams};
use crate::layout::{LayoutParams, Placement};
use crate::params::ArrayParams;
use crate::raid::{RaidLevel, RaidParams};
use crate::units::{Bytes, Nanos, Rate};

/// One entry for each preset: its documentation, variant, name and parameters. An entry suffices for
/// [`Preset::ALL`], the search by name, and the list in the error for an unknown name.
macro_rules! presets {
    ($($(#[$doc:meta])+ $preset:ident = $name:literal => $parts:expr;)+) => {
        /// A named array. The arrays of the papers share one kind of drive and controller, fitted once to all
        /// figures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Preset {
            $($(#[$doc])+ $preset,)+
        }

        impl Preset {
            /// Every preset, in the order of this file.
            pub const ALL: [Preset; [$($name),+].len()] = [$(Preset::$preset),+];

            /// Name of the preset in scenarios and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Preset::$preset => $name,)+
                }
            }

            /// Parameters of the preset, which the caller may change.
            #[must_use]
            pub fn params(self) -> ArrayParams {
                let parts: Parts = match self {
                    $(Preset::$preset => $parts,)+
                };
                parts.params()
            }
        }
    };
}

presets! {
    /// `drive-7200`: one 7,200 rpm drive without a controller in front of it (Elling'12). Its one LUN covers all
    /// whole gigabytes.
    Drive7200 = "drive-7200" => Parts {
        drive: DriveModel::Disk(DriveParams { write_cache: Bytes::mib(16), ..DRIVE }),
        raid: (RaidLevel::Raid0, 1),
        controller: direct(750),
        gap: Bytes(0),
        luns: vec![Bytes::gib(478)],
    };
    /// `drive-15k`: one 15,000 rpm drive with one LUN, without a controller in front of it.
    Drive15k = "drive-15k" => Parts {
        drive: DriveModel::Disk(DRIVE_15K),
        raid: (RaidLevel::Raid0, 1),
        controller: direct(400),
        gap: Bytes(0),
        luns: vec![Bytes::gib(419)],
    };
    /// `cx3-40-raid0`: EMC CLARiiON CX3-40, 10-disk RAID-0, one 124 GB LUN (SPEED'08 §4).
    Cx340Raid0 = "cx3-40-raid0" => Parts {
        drive: DriveModel::Disk(DRIVE),
        raid: (RaidLevel::Raid0, 10),
        controller: CONTROLLER,
        gap: Bytes(0),
        luns: vec![Bytes::gib(124)],
    };
    /// `cx3-40-raid0-vms`: the same array with four 16 GB disks in order (PARDA §4, figure 3). Each is followed by
    /// its VM's 4 GB system disk.
    Cx340Raid0Vms = "cx3-40-raid0-vms" => Parts {
        drive: DriveModel::Disk(DRIVE),
        raid: (RaidLevel::Raid0, 10),
        controller: CONTROLLER,
        gap: Bytes::gib(4),
        luns: vec![Bytes::gib(16); 4],
    };
    /// `cx3-40-raid5-vms`: the same array's 5-disk RAID-5 with seven 8 GB disks in order. There is one every 20 GB
    /// of a 400 GB volume (SPEED'08 §4.3, PARDA §5.2, figure 7).
    Cx340Raid5Vms = "cx3-40-raid5-vms" => Parts {
        drive: DriveModel::Disk(DRIVE),
        raid: (RaidLevel::Raid5, 5),
        controller: CONTROLLER,
        gap: Bytes::gib(12),
        luns: vec![Bytes::gib(8); 7],
    };
    /// `flash-sata`: RAID-5 of eight SATA flash drives, four LUNs. The front end does 200,000 IO/s over two 8 Gb
    /// links, as arrays of that time did.
    FlashSata = "flash-sata" => Parts {
        drive: DriveModel::Flash(SATA),
        raid: (RaidLevel::Raid5, 8),
        controller: ControllerParams { io_cost: Nanos(5_000), ..direct(1_600) },
        gap: Bytes(0),
        luns: vec![Bytes::gib(256); 4],
    };
    /// `flash-nvme`: RAID-10 of eight NVMe flash drives, four LUNs; a front end of a million IO/s and a 100 Gb
    /// link.
    FlashNvme = "flash-nvme" => Parts {
        drive: DriveModel::Flash(NVME),
        raid: (RaidLevel::Raid10, 8),
        controller: ControllerParams { io_cost: Nanos(1_000), ..direct(12_500) },
        gap: Bytes(0),
        luns: vec![Bytes::gib(256); 4],
    };
}

/// Parameters in which presets differ.
struct Parts {
    drive: DriveModel,
    /// Level, and number of drives.
    raid: (RaidLevel, u32),
    controller: ControllerParams,
    /// Space between two LUNs.
    gap: Bytes,
    luns: Vec<Bytes>,
}

impl Parts {
    fn params(self) -> ArrayParams {
        let Parts { drive, raid: (level, drives), controller, gap, luns } = self;
        let placement = Placement::Contiguous { gap };
        ArrayParams {
            drive,
            raid: RaidParams { level, drives, element: Bytes::kib(64), rebuild: Bytes::kib(512) },
            controller,
            layout: LayoutParams { start: Bytes(0), placement, luns },
        }
    }
}

/// Error for an unknown preset name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no array is called `{}`: there are {}", .0, known())]
pub struct UnknownPreset(String);

/// Names of all presets: `a, b and c`.
fn known() -> String {
    let names = Preset::ALL.map(Preset::name);
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
    format!("{} and {last}", others.join(", "))
}

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
    write_cache: Bytes(0),
    queue_depth: 10,
    scheduling: Scheduling::Sptf,
    ageing: 0.0,
};

/// Hitachi Ultrastar 15K450, 450 GB: 3.3 ms mean seek and 0.5 ms more before a write (OEM specification, table 7).
/// The curve has that mean over random pairs and twice that over the full stroke.
const DRIVE_15K: DriveParams = DriveParams {
    capacity: Bytes::gb(450),
    rpm: 15_000,
    outer_rate: Rate::mb_per_s(164),
    inner_to_outer: 0.65,
    surfaces: 8,
    seek: SeekParams {
        base: Nanos::from_micros(200),
        root: Nanos::from_micros(5_000),
        linear: Nanos::from_micros(1_300),
    },
    command_overhead: Nanos::from_micros(100),
    write_settle: Nanos::from_micros(500),
    read_ahead: Bytes::mib(1),
    write_cache: Bytes(0),
    queue_depth: 16,
    scheduling: Scheduling::Sptf,
    ageing: 0.0,
};

/// Intel SSD DC S3500, M.2 (product specification). 4 KB random reads 67,000 IOPS, writes 14,500; sequential writes
/// 320 MB/s. Typical latency 50 and 65 us; 99.9 % of writes within 5 ms.
const SATA: FlashParams = FlashParams {
    capacity: Bytes::gb(340),
    units: 16,
    page: Bytes::kib(4),
    command_time: Nanos(14_900),
    command_overhead: Nanos(50_000),
    read: Nanos(60_000),
    program: Nanos(205_000),
    collect_after: 5,
    collect: Nanos(4_500_000),
    write_buffer: Bytes::mib(16),
    queue_depth: 32,
};

/// Intel SSD DC P3700, 800 GB. 4 KB random reads 450,000 IOPS, one at a time in 78 us, 16 in 94 us (Tom's Hardware
/// 2014, AnandTech 2017). Writes 90,000 IOPS, sequentially 1.9 GB/s (product specification).
const NVME: FlashParams = FlashParams {
    capacity: Bytes::gb(800),
    units: 36,
    page: Bytes::kib(4),
    command_time: Nanos(2_200),
    command_overhead: Nanos(16_000),
    read: Nanos(60_000),
    program: Nanos(77_000),
    collect_after: 8,
    collect: Nanos(2_580_000),
    write_buffer: Bytes::mib(32),
    queue_depth: 128,
};

const CONTROLLER: ControllerParams = ControllerParams {
    io_cost: Nanos(35_600),
    link: Rate::mb_per_s(177),
    write_cache: Some(WriteCacheParams {
        capacity: Bytes(2_500_000_000),
        page: Bytes::kib(8),
        low_water: 0.6,
        high_water: 0.8,
        destage: 0.7,
        mirror: Nanos::from_micros(300),
    }),
    read_cache: None,
    prefetch: Some(PrefetchParams { after: 9, segment: Bytes::kib(64), depth: Bytes::mib(2) }),
};

/// A controller that is a link of `mb_per_s` MB/s and nothing else.
const fn direct(mb_per_s: u64) -> ControllerParams {
    ControllerParams {
        io_cost: Nanos(0),
        link: Rate::mb_per_s(mb_per_s),
        write_cache: None,
        read_cache: None,
        prefetch: None,
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
    fn the_page_of_the_model_has_every_preset() {
        let page = include_str!("../../../docs/array-model.md");
        for preset in Preset::ALL {
            let luns = preset.params().layout.luns;
            let row = format!("| `{preset}` | {} of {} GiB |", luns.len(), luns[0].0 >> 30);
            assert!(page.contains(&row), "docs/array-model.md: {row}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_known_ones() {
        let error = "cx5".parse::<Preset>().unwrap_err().to_string();
        assert!(Preset::ALL.iter().all(|preset| error.contains(preset.name())), "{error}");
    }
}
