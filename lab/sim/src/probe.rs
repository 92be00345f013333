//! The array model as the target of a probe, driven by a closed loop in virtual time.

use std::str::FromStr;

use parda_array::{
    Array, ArrayParams, IoKind, IoTag, LunId, Nanos, Preset, SubmitError, UnknownPreset,
};
use parda_control::Bytes;
use parda_probe::{
    Counter, Driven, LoadDriver, LoadSnapshot, Moment, ProbeLoad, Recording, Steadiness,
    TargetInfo, TargetKind, TimeAllowance, Watch,
};
use parda_probe_tools::{Target, TargetError, workload};

use crate::VmClient;

/// Length of the first slices. The length doubles whenever there are [`SLICES`] of them, as the right one depends on the drive
/// and the load.
const FIRST_SLICE: Nanos = Nanos::from_millis(10);
const SLICES: usize = 64;

/// Least number of IOs of a load, in all and for each outstanding one. Fewer give no tail and no comparable maximum, and slices
/// that are not several latencies long.
const LEAST_IOS: u64 = 100_000;
const LEAST_ROUNDS: u64 = 200;

/// Most IOs of a load. A load that is not known precisely enough by then never will be.
const MOST_IOS: u64 = 4_000_000;

/// Largest change of the caches' contents at which writes count as sustained. Measured over the last quarter of the time, as a
/// fraction of the bytes written.
const BALANCED: f64 = 0.02;

/// The target of a model's name, such as `drive-7200` or `flash-nvme/lun2`.
///
/// # Errors
/// No preset has this name, or it has no such LUN.
pub fn target(name: &str) -> Result<Target, TargetError> {
    let model: Model =
        name.parse().map_err(|error| TargetError::Unfit(format!("model:{name}: {error}")))?;
    Ok(Target::without_data(model.info(), Box::new(model)))
}

/// A preset of the array model, one of its LUNs.
#[derive(Clone, Debug)]
struct Model {
    preset: Preset,
    lun: u32,
    params: ArrayParams,
}

impl FromStr for Model {
    type Err = String;

    /// Parses a name such as `drive-7200` or `flash-nvme/lun2`. Without a LUN it is the first one. `hdd-7200` is an alias of
    /// `drive-7200`.
    fn from_str(name: &str) -> Result<Model, String> {
        let (preset, lun) = name.split_once('/').unwrap_or((name, "lun0"));
        let preset: Preset = if preset == "hdd-7200" { "drive-7200" } else { preset }
            .parse()
            .map_err(|error: UnknownPreset| error.to_string())?;
        let params = preset.params();
        let luns = params.layout.luns.len();
        let number = lun.strip_prefix("lun").and_then(|number| number.parse::<u32>().ok());
        match number.filter(|number| (*number as usize) < luns) {
            Some(lun) => Ok(Model { preset, lun, params }),
            None => Err(format!("{preset} has no `{lun}`: it has lun0 to lun{}", luns - 1)),
        }
    }
}

impl Model {
    /// Name, kind and size of the target.
    fn info(&self) -> TargetInfo {
        let ArrayParams { raid, controller, .. } = &self.params;
        let cache = |there: bool| if there { "with" } else { "without" };
        let luns = self.params.layout.luns.len();
        let lun = if luns > 1 { format!("/lun{}", self.lun) } else { String::new() };
        TargetInfo {
            name: format!("model:{}{lun}", self.preset),
            kind: TargetKind::Model,
            bytes: self.bytes().0,
            writes: false,
            about: vec![format!(
                "{} of {}, a controller {} write cache and {} prefetch, LUN {} of {luns}",
                format!("{:?}", raid.level).replace("Raid", "RAID-"),
                if raid.drives == 1 {
                    "one drive".to_owned()
                } else {
                    format!("{} drives", raid.drives)
                },
                cache(controller.write_cache.is_some()),
                cache(controller.prefetch.is_some()),
                self.lun,
            )],
        }
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.params.layout.luns[self.lun as usize].0)
    }

    fn client(&self, load: &ProbeLoad, seed: u64) -> VmClient {
        let random = fastrand::Rng::with_seed(seed);
        VmClient::new(&workload(load).into(), LunId(self.lun), self.bytes(), random)
    }
}

impl LoadDriver for Model {
    fn drive(
        &mut self,
        load: &ProbeLoad,
        seed: u64,
        allowance: &TimeAllowance,
        watch: Watch<'_>,
    ) -> Result<Driven, String> {
        let array = Array::new(self.params.clone()).map_err(|error| error.to_string())?;
        let mut run = Run {
            array,
            client: self.client(load, seed),
            slots: vec![(Nanos::ZERO, IoKind::Read); load.outstanding as usize],
            kinds: [Counter::new(), Counter::new()],
        };
        run.go(load, allowance, watch).map_err(|error| error.to_string())
    }
}

/// A load that is being run.
struct Run {
    array: Array,
    client: VmClient,
    /// Start and kind of each outstanding IO.
    slots: Vec<(Nanos, IoKind)>,
    /// Counters of reads and of writes.
    kinds: [Counter; 2],
}

impl Run {
    fn go(
        &mut self,
        load: &ProbeLoad,
        allowance: &TimeAllowance,
        watch: Watch<'_>,
    ) -> Result<Driven, SubmitError> {
        let mut recording = Recording::default();
        let (mut slice, mut edge) = (FIRST_SLICE, FIRST_SLICE);
        let mut balance = (load.mix.read_percent == 100).then_some(0.0);
        (0..self.slots.len()).try_for_each(|slot| self.submit(Nanos::ZERO, slot))?;
        loop {
            self.until(edge)?;
            recording.push(self.snapshot(edge));
            if recording.slices().len() >= SLICES {
                recording.halve();
                slice = slice + slice;
            }
            edge = edge + slice;
            if balance.is_none() {
                balance = balanced(&recording, load.mix.size);
            }
            let verdict = verdict(&recording, balance);
            let enough = enough(&recording, &verdict, load, allowance);
            let over = recording.ios() >= MOST_IOS || recording.seconds() >= allowance.most_s;
            if enough || over || watch(Moment { load_s: recording.seconds(), silent_s: 0.0 }) {
                return Ok(Driven { recording, verdict, silent_s: 0.0 });
            }
        }
    }

    /// Processes all events before `edge`.
    fn until(&mut self, edge: Nanos) -> Result<(), SubmitError> {
        while self.array.advance_to_completion(edge).is_some() {
            while let Some((at, IoTag(slot))) = self.array.pop_completion() {
                let (begun, kind) = self.slots[slot as usize];
                self.kinds[usize::from(kind == IoKind::Write)].record((at - begun).0);
                self.submit(at, slot as usize)?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, at: Nanos, slot: usize) -> Result<(), SubmitError> {
        let io = self.client.draw();
        self.slots[slot] = (at, io.kind);
        self.array.submit(at, IoTag(slot as u64), io)
    }

    fn snapshot(&self, at: Nanos) -> LoadSnapshot {
        let [reads, writes] = &self.kinds;
        LoadSnapshot {
            at_s: at.secs(),
            reads: reads.totals(),
            writes: writes.totals(),
            unwritten: self.array.unwritten().0,
        }
    }
}

/// Time in seconds from which on as much leaves the caches as comes in. `None` if they are not in balance now.
fn balanced(recording: &Recording, size: u64) -> Option<f64> {
    let snapshots = recording.snapshots();
    let now = snapshots.last().filter(|_| snapshots.len() > SLICES / 2)?;
    let then = snapshots.iter().find(|s| s.at_s >= 0.75 * now.at_s)?;
    let written = (now.writes.ios - then.writes.ios) * size;
    let change = now.unwritten.abs_diff(then.unwritten);
    (written > 0 && change as f64 <= BALANCED * written as f64).then_some(then.at_s)
}

/// Steadiness by the slices after the caches came into balance. Before that nothing is
/// steady.
fn verdict(recording: &Recording, balance: Option<f64>) -> Steadiness {
    let verdict = recording.steadiness(balance.unwrap_or(0.0));
    Steadiness { steady: verdict.steady && balance.is_some(), ..verdict }
}

fn enough(
    recording: &Recording,
    verdict: &Steadiness,
    load: &ProbeLoad,
    allowance: &TimeAllowance,
) -> bool {
    let Some(first) = recording.snapshots().get(verdict.warmup) else { return false };
    let ios = recording.ios() - first.reads.ios - first.writes.ios;
    let least = LEAST_IOS.max(LEAST_ROUNDS * u64::from(load.outstanding));
    verdict.steady && verdict.precision <= allowance.precision && ios >= least
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_probe::{LoadMix, Point, Purpose};

    const UNBOUNDED: TimeAllowance =
        TimeAllowance { least_s: 0.0, most_s: f64::INFINITY, precision: 0.01 };

    fn load(kib: u64, read_percent: u32, outstanding: u32) -> ProbeLoad {
        let mix = LoadMix { size: kib << 10, read_percent, random_percent: 100 };
        ProbeLoad { mix, outstanding }
    }

    fn driven(name: &str, load: ProbeLoad, allowance: &TimeAllowance, seed: u64) -> Point {
        let mut model: Model = name.parse().unwrap();
        let driven = model.drive(&load, seed, allowance, &mut |_| false).unwrap();
        driven.recording.point(load, Purpose::Depth, driven.verdict).unwrap()
    }

    #[test]
    fn presets_go_by_their_names_and_luns_by_their_numbers() {
        let name = |text: &str| text.parse::<Model>().map(|m| m.info().name);
        assert_eq!(name("drive-7200").unwrap(), "model:drive-7200");
        assert_eq!(name("hdd-7200").unwrap(), "model:drive-7200");
        assert_eq!(name("flash-nvme/lun3").unwrap(), "model:flash-nvme/lun3");
        let error = name("flash-nvme/lun4").unwrap_err();
        assert_eq!(error, "flash-nvme has no `lun4`: it has lun0 to lun3");
        assert!(name("hdd").unwrap_err().contains("drive-7200"));
        let info = "cx3-40-raid0".parse::<Model>().unwrap().info();
        assert_eq!(info.bytes, 124 << 30);
    }

    /// As `cargo run --example load` and the papers' figures have it: 137 IOPS with ten outstanding.
    #[test]
    fn a_drive_has_the_throughput_that_it_has_elsewhere() {
        let point = driven("drive-7200", load(4, 100, 10), &UNBOUNDED, 1);
        assert!(point.settled && (point.all.iops / 137.0 - 1.0).abs() < 0.03, "{point:?}");
        assert!(point.little_error.abs() < 0.01, "{}", point.little_error);
        assert!(point.all.ios >= LEAST_IOS && point.slices.len() >= 16);
        assert_eq!(point.reads, Some(point.all.clone()));
        assert_eq!(point.writes, None);
        let counted: u64 = point.all.histogram.iter().map(|bucket| bucket.ios).sum();
        assert_eq!(counted, point.all.ios);
        assert!(point.all.p50_ms < point.all.p90_ms && point.all.p99_9_ms <= point.all.max_ms);
    }

    #[test]
    fn the_same_seed_gives_the_same_point_and_another_one_that_agrees() {
        let of = |seed| driven("drive-15k", load(8, 100, 4), &UNBOUNDED, seed);
        let (point, other) = (of(1), of(2));
        assert_eq!(point, of(1));
        assert_ne!(point, other);
        assert!((point.all.mean_ms / other.all.mean_ms - 1.0).abs() < 0.03);
    }

    /// One outstanding write takes 0.43 ms while there is room, on a cache of 2.5 GB. Afterwards the drives' own speed sets the
    /// rate.
    #[test]
    fn writes_are_measured_when_as_much_leaves_the_cache_as_comes_in() {
        let writes = load(16, 0, 64);
        let point = driven("cx3-40-raid0", writes, &UNBOUNDED, 1);
        assert!(point.settled && point.warmup_s > 10.0, "{point:?}");
        // 1.5 GB lie below the low water mark.
        assert!(point.warmup_s * point.all.bytes_per_s > 0.5e9);
        let hasty = TimeAllowance { most_s: 5.0, ..UNBOUNDED };
        let early = driven("cx3-40-raid0", writes, &hasty, 1);
        assert!(!early.settled, "it has not had the time to fill the cache");
        assert!(early.all.iops > 2.0 * point.all.iops, "{} {}", early.all.iops, point.all.iops);
    }

    #[test]
    fn whoever_watches_can_stop_it() {
        let mut model: Model = "drive-7200".parse().unwrap();
        let mut told = 0;
        let load = load(4, 100, 1);
        let mut stop = |moment: Moment| {
            told += 1;
            moment.load_s > 3.0
        };
        let driven = model.drive(&load, 1, &UNBOUNDED, &mut stop).unwrap();
        assert!((3.0..4.0).contains(&driven.recording.seconds()) && told > 10);
        assert!(driven.recording.point(load, Purpose::Depth, driven.verdict).is_some());
    }
}
