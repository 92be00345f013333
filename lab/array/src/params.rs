//! The array's parameters as a whole.

use crate::controller::ControllerParams;
use crate::drive::DriveModel;
use crate::error::ParamError;
use crate::layout::LayoutParams;
use crate::raid::RaidParams;

/// An array: equal drives in one RAID group behind one controller, with LUNs laid out on it.
///
/// As text, sizes, times and rates are a number with a unit (`"64KiB"`, `"35.6us"`, `"81.2MB/s"`).
/// Names are in snake case; all fields must be given, and unknown fields are refused.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayParams {
    /// Parameters of each drive.
    pub drive: DriveModel,
    /// RAID group of the drives.
    pub raid: RaidParams,
    /// Controller between the drives and the hosts.
    pub controller: ControllerParams,
    /// LUNs and their placement in the group's address space.
    pub layout: LayoutParams,
}

impl ArrayParams {
    /// Checks that the parameters describe a possible array.
    ///
    /// # Errors
    /// The first parameter that is not possible, by name and value.
    pub fn validate(&self) -> Result<(), ParamError> {
        self.drive.validate()?;
        self.raid.validate(self.drive.capacity())?;
        self.controller.validate(self.raid.element)?;
        self.layout.validate(self.raid.capacity(self.drive.capacity()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{PrefetchParams, ReadCacheParams, WriteCacheParams};
    use crate::drive::{DriveParams, FlashParams};
    use crate::layout::Placement;
    use crate::preset::Preset;
    use crate::raid::RaidLevel;
    use crate::units::{Bytes, Nanos, Rate};
    use alloc::string::ToString;
    use alloc::vec;

    fn disk(params: &mut ArrayParams) -> &mut DriveParams {
        params.drive.disk_mut().expect("the preset's drives are disks")
    }

    fn cache(params: &mut ArrayParams) -> &mut WriteCacheParams {
        params.controller.write_cache.as_mut().expect("the preset has one")
    }

    fn read_cache(params: &mut ArrayParams) -> &mut ReadCacheParams {
        let usual = ReadCacheParams { capacity: Bytes::mib(256), page: Bytes::kib(8) };
        params.controller.read_cache.get_or_insert(usual)
    }

    fn prefetch(params: &mut ArrayParams) -> &mut PrefetchParams {
        params.controller.prefetch.as_mut().expect("the preset has it")
    }

    #[test]
    fn impossible_flash_is_refused_by_name() {
        type Spoil = fn(&mut FlashParams);
        let cases: &[(&str, Spoil)] = &[
            ("drive.capacity", |f| f.capacity = Bytes(1)),
            ("drive.units", |f| f.units = 0),
            ("drive.page", |f| f.page = Bytes(100)),
            ("drive.command_time", |f| f.command_time = Nanos::from_millis(11_000)),
            ("drive.command_overhead", |f| f.command_overhead = Nanos::from_millis(11_000)),
            ("drive.read", |f| f.read = Nanos::from_millis(11_000)),
            ("drive.program", |f| f.program = Nanos::from_millis(11_000)),
            ("drive.collect_after", |f| f.collect_after = 0),
            ("drive.collect", |f| f.collect = Nanos::from_millis(11_000)),
            ("drive.write_buffer", |f| f.write_buffer = Bytes(0)),
            ("drive.queue_depth", |f| f.queue_depth = 0),
        ];
        for (name, spoil) in cases {
            let mut params = Preset::FlashSata.params();
            let DriveModel::Flash(flash) = &mut params.drive else { panic!("the preset is flash") };
            spoil(flash);
            assert_eq!(params.validate().map_err(|error| error.name), Err(*name));
        }
    }

    #[test]
    fn every_impossible_parameter_is_refused_by_name_and_value() {
        type Spoil = fn(&mut ArrayParams);
        let cases: &[(&str, &str, Spoil)] = &[
            ("drive.capacity", "0B", |p| disk(p).capacity = Bytes(0)),
            ("drive.capacity", "100KB", |p| disk(p).capacity = Bytes(100_000)),
            ("drive.capacity", "2000TB", |p| disk(p).capacity = Bytes::gb(2_000_000)),
            ("drive.rpm", "0", |p| disk(p).rpm = 0),
            ("drive.rpm", "1000001", |p| disk(p).rpm = 1_000_001),
            ("drive.outer_rate", "0B/s", |p| disk(p).outer_rate = Rate(0)),
            ("drive.outer_rate", "1KB/s", |p| disk(p).outer_rate = Rate(1_000)),
            ("drive.inner_to_outer", "0", |p| disk(p).inner_to_outer = 0.0),
            ("drive.inner_to_outer", "1.5", |p| disk(p).inner_to_outer = 1.5),
            ("drive.inner_to_outer", "NaN", |p| disk(p).inner_to_outer = f64::NAN),
            ("drive.surfaces", "0", |p| disk(p).surfaces = 0),
            ("drive.seek.base", "11s", |p| disk(p).seek.base = Nanos::from_millis(11_000)),
            ("drive.seek.root", "11s", |p| disk(p).seek.root = Nanos::from_millis(11_000)),
            ("drive.seek.linear", "11s", |p| disk(p).seek.linear = Nanos::from_millis(11_000)),
            ("drive.command_overhead", "11s", |p| {
                disk(p).command_overhead = Nanos::from_millis(11_000);
            }),
            ("drive.write_settle", "11s", |p| disk(p).write_settle = Nanos::from_millis(11_000)),
            ("drive.read_ahead", "2GB", |p| disk(p).read_ahead = Bytes::gb(2)),
            ("drive.queue_depth", "0", |p| disk(p).queue_depth = 0),
            ("drive.queue_depth", "257", |p| disk(p).queue_depth = 257),
            ("drive.write_cache", "2GB", |p| disk(p).write_cache = Bytes::gb(2)),
            ("raid.drives", "0", |p| p.raid.drives = 0),
            ("raid.drives", "1025", |p| p.raid.drives = 1_025),
            ("raid.drives", "2", |p| {
                p.raid.level = RaidLevel::Raid5;
                p.raid.drives = 2;
            }),
            ("raid.drives", "5", |p| {
                p.raid.level = RaidLevel::Raid10;
                p.raid.drives = 5;
            }),
            ("raid.element", "0B", |p| p.raid.element = Bytes(0)),
            ("raid.element", "1KB", |p| p.raid.element = Bytes(1_000)),
            ("raid.element", "1TiB", |p| p.raid.element = Bytes(1 << 40)),
            ("raid.rebuild", "0B", |p| p.raid.rebuild = Bytes(0)),
            ("raid.rebuild", "96KiB", |p| p.raid.rebuild = Bytes::kib(96)),
            ("controller.io_cost", "11s", |p| {
                p.controller.io_cost = Nanos::from_millis(11_000);
            }),
            ("controller.link", "0B/s", |p| p.controller.link = Rate(0)),
            ("controller.write_cache.page", "1KB", |p| cache(p).page = Bytes(1_000)),
            ("controller.write_cache.page", "128KiB", |p| cache(p).page = Bytes::kib(128)),
            ("controller.write_cache.capacity", "1KiB", |p| cache(p).capacity = Bytes::kib(1)),
            ("controller.write_cache.capacity", "1TiB", |p| cache(p).capacity = Bytes(1 << 40)),
            ("controller.write_cache.high_water", "1.1", |p| cache(p).high_water = 1.1),
            ("controller.write_cache.low_water", "0.9", |p| cache(p).low_water = 0.9),
            ("controller.write_cache.destage", "0", |p| cache(p).destage = 0.0),
            ("controller.write_cache.mirror", "11s", |p| {
                cache(p).mirror = Nanos::from_millis(11_000);
            }),
            ("controller.read_cache.page", "1KB", |p| read_cache(p).page = Bytes(1_000)),
            ("controller.read_cache.capacity", "56KiB", |p| {
                read_cache(p).capacity = Bytes::kib(56);
            }),
            ("controller.prefetch.after", "0", |p| prefetch(p).after = 0),
            ("controller.prefetch.segment", "1KiB", |p| prefetch(p).segment = Bytes::kib(1)),
            ("controller.prefetch.depth", "4KiB", |p| prefetch(p).depth = Bytes::kib(4)),
            ("layout.luns", "[]", |p| p.layout.luns = vec![]),
            ("layout.luns", "0B", |p| p.layout.luns.push(Bytes(0))),
            ("layout.luns", "6TB", |p| p.layout.luns = vec![Bytes::gb(6_000)]),
            ("layout.luns", "6000000000000B in all", |p| {
                p.layout.luns = vec![Bytes::gb(3_000); 2];
            }),
            ("layout.start", "6TB", |p| p.layout.start = Bytes::gb(6_000)),
            ("layout.placement.contiguous.gap", "6TB", |p| {
                p.layout.placement = Placement::Contiguous { gap: Bytes::gb(6_000) };
                p.layout.luns = vec![Bytes::gb(1); 2];
            }),
            ("layout.placement.interleaved.extent", "64KiB", |p| {
                p.layout.placement = Placement::Interleaved { extent: Bytes::kib(64) };
            }),
            ("layout.placement.interleaved.extent", "1MiB", |p| {
                p.raid.drives = 1_000;
                p.layout.luns = vec![Bytes::gb(100_000)];
                p.layout.placement = Placement::Interleaved { extent: Bytes::mib(1) };
            }),
        ];
        for (name, value, spoil) in cases {
            let mut params = Preset::Cx340Raid0.params();
            spoil(&mut params);
            let error = params.validate().expect_err(name);
            assert_eq!((error.name, error.value.as_str()), (*name, *value));
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(value), "{text}");
            assert_eq!(crate::Array::new(params).err(), Some(error));
        }
    }

    #[test]
    fn parameters_are_text_and_back() {
        for preset in Preset::ALL {
            let params = preset.params();
            let text = serde_json::to_string(&params).unwrap();
            assert_eq!(serde_json::from_str::<ArrayParams>(&text).unwrap(), params, "{text}");
            let more = text.replacen('{', "{\"cache\":1,", 1);
            assert!(serde_json::from_str::<ArrayParams>(&more).is_err());
        }
    }
}
