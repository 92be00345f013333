//! The emulated array as a real NBD server. Data is in memory or in a sparse file; the array model
//! determines the timing.
//!
//! One volume serves all LUNs as exports. Their data lies one after the other in one store; their
//! placement on the drives is up to the array model.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parda_address::{Address, ExportName};
use parda_array::{Array, ArrayIo, ArrayParams, IoTag, LunId, Nanos};
use parda_block::{
    AgentMemory, BackendConfig, Direct, DiskConfig, DiskRegion, Handle, Limits, Lock, Timed,
    TimedId, Volume, VolumeConfig,
};
use parda_control::law::{LawConfig, Mode};
use parda_control::{Bytes, Config, Instant, IoKind, Period};
use parda_disk::Extent;
use parda_scenario::Scenario;
use parda_scenario::array::ArrayFault;
use parda_scenario::scenario::{EXCHANGE, EXCHANGE_HEADER, EXCHANGE_SIZE};

use crate::array_control::{self, RequestQueue};

/// Alignment of LUNs in the store, in bytes, so that any block size fits.
const ALIGN: u64 = 1 << 20;

/// Time for outstanding IOs when the array is stopped.
const DRAIN: Duration = Duration::from_secs(2);

/// Storage of the array's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayData {
    /// Memory; data is lost when the process ends.
    Memory,
    /// A sparse file, created if needed.
    File(PathBuf),
}

/// Description of an array to serve.
#[derive(Clone, Debug)]
pub struct ArrayOptions {
    /// Parameters of the array and its LUNs.
    pub params: ArrayParams,
    /// Names of the exports, in the order of the LUNs.
    pub exports: Vec<String>,
    /// Addresses to listen at.
    pub listen: Vec<Address>,
    /// Storage of the data.
    pub data: ArrayData,
    /// Path of the control socket, if there is one: see [`array_control`].
    pub control: Option<PathBuf>,
}

impl ArrayOptions {
    /// The array of a scenario: an export for each disk, named after its first VM, and [`EXCHANGE`].
    ///
    /// # Errors
    /// None for a parsed scenario, whose array was checked.
    pub fn of_scenario(
        scenario: &Scenario,
        listen: Vec<Address>,
        data: ArrayData,
    ) -> Result<ArrayOptions, ArrayFault> {
        let disks = (0..scenario.exchange_lun()).filter_map(|lun| scenario.disk_owner(lun));
        let exports = disks.map(|vm| vm.name.clone()).chain([EXCHANGE.to_owned()]).collect();
        let params = scenario.array_params()?;
        Ok(ArrayOptions { params, exports, listen, data, control: None })
    }

    /// A preset, changed or not. Its exports are `lun0`, `lun1` and so on. The last LUN is shortened by
    /// the room for one more, [`EXCHANGE`].
    #[must_use]
    pub fn of_preset(
        mut params: ArrayParams,
        listen: Vec<Address>,
        data: ArrayData,
    ) -> ArrayOptions {
        let luns = &mut params.layout.luns;
        let mut exports: Vec<String> = (0..luns.len()).map(|i| format!("lun{i}")).collect();
        let exchange = EXCHANGE_HEADER.0 + EXCHANGE_SIZE.0;
        if let Some(last) = luns.last_mut() {
            last.0 = last.0.saturating_sub(exchange);
        }
        luns.push(parda_array::Bytes(exchange));
        exports.push(EXCHANGE.to_owned());
        ArrayOptions { params, exports, listen, data, control: None }
    }
}

/// Reason why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// No array with these parameters, or with LUNs of these names, is possible.
    #[error("{0}")]
    Impossible(String),
    /// Its data, its control socket or its server failed.
    #[error("{0}")]
    Failed(String),
}

impl ArrayError {
    fn impossible(error: impl Display) -> ArrayError {
        ArrayError::Impossible(error.to_string())
    }

    fn stopped() -> ArrayError {
        ArrayError::Failed("the array's thread has ended".to_owned())
    }
}

/// Serves an array until `wait` returns. `wait` is called with the addresses of the array once
/// clients can connect.
///
/// # Errors
/// The array cannot be served, or its thread ends by itself.
pub fn run_array(options: ArrayOptions, wait: impl FnOnce(&Handle)) -> Result<(), ArrayError> {
    let (control, exports) = (options.control.clone(), options.exports.clone());
    let (sender, requests) = channel();
    let handle = Arc::new(serve(options, requests)?);
    let control = control.map(|path| {
        array_control::serve(&path, sender, Arc::downgrade(&handle), exports)
            .map_err(|e| ArrayError::Failed(format!("control socket {}: {e}", path.display())))
    });
    let control = control.transpose()?;
    wait(&handle);
    // The control socket holds the last other handle of the array.
    drop(control);
    let handle = Arc::into_inner(handle).ok_or_else(ArrayError::stopped)?;
    handle.shutdown(DRAIN).map(drop).map_err(|_| ArrayError::stopped())
}

fn serve(options: ArrayOptions, requests: RequestQueue) -> Result<Handle, ArrayError> {
    let ArrayOptions { params, exports, listen, data, .. } = options;
    let luns = regions(&params);
    let size = luns.last().map_or(0, |last| last.offset.0 + last.len.0);
    let backend = match data {
        ArrayData::Memory => BackendConfig::Memory { size: Bytes(size) },
        ArrayData::File(path) => {
            let file =
                std::fs::File::options().write(true).create(true).truncate(false).open(&path);
            file.and_then(|file| file.set_len(size)).map_err(|error| {
                let path = path.display();
                ArrayError::Failed(format!(
                    "cannot make {path}, a sparse file of {size} bytes: {error}"
                ))
            })?;
            // The array model alone determines the time of an IO.
            BackendConfig::File { path, direct: Direct::Off, lock: Lock::On, raw: true }
        }
    };
    let [first, also_at @ ..] = &listen[..] else {
        return Err(ArrayError::Failed("an array needs an address: add --listen".to_owned()));
    };
    let disks = exports.iter().zip(&luns).map(|(export, &region)| {
        let name = ExportName::new(export).map_err(ArrayError::impossible)?;
        Ok(DiskConfig {
            description: "a LUN of an emulated array".to_owned(),
            region: Some(region),
            also_at: also_at.to_vec(),
            ..DiskConfig::new(name, backend.clone(), first.clone())
        })
    });
    let disks = disks.collect::<Result<_, ArrayError>>()?;
    // An array has no window.
    let control =
        Config { law: LawConfig { mode: Mode::Off, ..LawConfig::default() }, ..Config::default() };
    let array = Array::new(params).map_err(ArrayError::impossible)?;
    let model = Model { array, luns, instant: VecDeque::new(), requests };
    let law = Period::new(control).map_err(ArrayError::impossible)?;
    Volume::spawn(VolumeConfig {
        name: "array".to_owned(),
        decision: law.decision().clone(),
        disks,
        listeners: Vec::new(),
        model: Some(Box::new(model)),
        limits: Limits::default(),
        memory: AgentMemory::default(),
    })
    .map_err(|error| ArrayError::Failed(error.to_string()))
}

/// Location of each LUN in the store.
fn regions(params: &ArrayParams) -> Vec<DiskRegion> {
    let mut next = 0;
    let luns = params.layout.luns.iter().map(|size| {
        let region = DiskRegion { offset: Bytes(next), len: Bytes(size.0) };
        next = (next + size.0).next_multiple_of(ALIGN);
        region
    });
    luns.collect()
}

/// The array model as a timing source of the data path.
#[derive(Debug)]
struct Model {
    array: Array,
    luns: Vec<DiskRegion>,
    /// Operations that take no time: flushes, as cached data counts as written.
    instant: VecDeque<TimedId>,
    /// Requests from the control socket.
    requests: RequestQueue,
}

impl Model {
    /// The location of an IO on its LUN; `None` for operations that take no time.
    fn locate(&self, kind: IoKind, extent: Extent) -> Option<ArrayIo> {
        let kind = match kind {
            IoKind::Read => parda_array::IoKind::Read,
            IoKind::Write => parda_array::IoKind::Write,
            IoKind::Discard => parda_array::IoKind::Trim,
            IoKind::Other => return None,
        };
        let lun = self.luns.partition_point(|lun| lun.offset.0 <= extent.offset).checked_sub(1)?;
        Some(ArrayIo {
            lun: LunId(u32::try_from(lun).ok()?),
            kind,
            offset: parda_array::Bytes(extent.offset - self.luns[lun].offset.0),
            len: parda_array::Bytes(extent.len),
        })
    }
}

impl Timed for Model {
    fn submit(&mut self, now: Instant, id: TimedId, kind: IoKind, extent: Extent) {
        let io = self.locate(kind, extent);
        let taken =
            io.is_some_and(|io| self.array.submit(Nanos(now.0), IoTag(id.0 as u64), io).is_ok());
        if !taken {
            self.instant.push_back(id);
        }
    }

    fn next(&self) -> Option<Instant> {
        if !self.instant.is_empty() {
            return Some(Instant(0));
        }
        self.array.next_event().map(|at| Instant(at.0))
    }

    fn pop(&mut self, now: Instant) -> Option<TimedId> {
        array_control::execute(&self.requests, now, &mut self.array);
        self.instant.pop_front().or_else(|| {
            self.array.advance(Nanos(now.0));
            self.array.pop_completion().map(|(_, IoTag(id))| TimedId(id as usize))
        })
    }
}

#[cfg(test)]
mod tests {
    use parda_array::Preset;

    use super::*;

    fn model() -> Model {
        let params = Preset::Cx340Raid5Vms.params();
        let options = ArrayOptions::of_preset(params, Vec::new(), ArrayData::Memory);
        let luns = regions(&options.params);
        let array = Array::new(options.params).unwrap();
        Model { array, luns, instant: VecDeque::new(), requests: channel().1 }
    }

    fn at(offset: u64) -> Extent {
        Extent { offset, len: 4096 }
    }

    #[test]
    fn exports_and_luns_pair_up_and_the_whole_is_possible() {
        for preset in Preset::ALL {
            let ArrayOptions { params, exports, .. } =
                ArrayOptions::of_preset(preset.params(), Vec::new(), ArrayData::Memory);
            assert_eq!(params.validate(), Ok(()), "{preset}");
            assert_eq!(exports.len(), params.layout.luns.len());
            assert_eq!(exports.last().map(String::as_str), Some(EXCHANGE));
        }
    }

    #[test]
    fn an_io_finds_its_lun() {
        let model = model();
        for (lun, region) in model.luns.iter().enumerate() {
            let last = region.len.0 - 4096;
            for within in [0, last] {
                let io = model.locate(IoKind::Read, at(region.offset.0 + within)).unwrap();
                assert_eq!((io.lun, io.offset.0), (LunId(lun as u32), within));
            }
        }
        let overlaps = model.luns.windows(2).any(|w| w[0].offset.0 + w[0].len.0 > w[1].offset.0);
        assert!(!overlaps && model.luns.iter().all(|lun| lun.offset.0.is_multiple_of(ALIGN)));
    }

    #[test]
    fn data_takes_the_arrays_time_and_the_rest_takes_none() {
        let mut model = model();
        model.submit(Instant(1000), TimedId(7), IoKind::Read, at(1 << 30));
        model.submit(Instant(1000), TimedId(8), IoKind::Other, Extent { offset: 0, len: 0 });
        assert!(model.next().is_some_and(|at| at <= Instant(1000)));
        assert_eq!(model.pop(Instant(1000)), Some(TimedId(8)));
        assert_eq!(model.pop(Instant(1000)), None);
        let (now, done) = loop {
            let now = model.next().unwrap();
            if let Some(id) = model.pop(now) {
                break (now, id);
            }
        };
        assert_eq!((done, model.next()), (TimedId(7), None));
        assert!((Instant(500_000)..Instant(40_000_000)).contains(&now), "{now:?}");
    }
}
