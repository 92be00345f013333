#![no_std]
#![forbid(unsafe_code)]
//! Model of a disk array: results and times of its IOs.
//!
//! The crate reads no clock, does no IO, starts no thread and draws no random number. Every call
//! receives the time. The same model therefore runs in the simulator's virtual time and, as the
//! emulated array, in real time; equal calls give equal results.
//!
//! Path of an IO through the array, with the module of each station:
//!
//! | station | module | what it costs |
//! | --- | --- | --- |
//! | front end | [`controller`] | a fixed time, one IO after another |
//! | link | [`controller`] | length over the link's rate: writes on their way in, reads out |
//! | read cache | [`controller`] | nothing, for what was prefetched, or read or written not long ago |
//! | write cache | [`controller`] | the mirror's delay; the wait for room when it is full |
//! | placement | [`layout`] | nothing: where the LUN lies on the RAID group |
//! | RAID group | [`raid`] | nothing: which drives do what, in which order |
//! | drive | [`drive`] | FIFO, bounded queue; seek, rotation, transfer; or flash units |
//!
//! ```
//! use parda_array::{Array, ArrayIo, Bytes, IoTag, IoKind, LunId, Nanos, Preset};
//!
//! let mut array = Array::new(Preset::Drive7200.params())?;
//! let io = ArrayIo {
//!     lun: LunId(0),
//!     kind: IoKind::Read,
//!     offset: Bytes::gb(300),
//!     len: Bytes::kib(4),
//! };
//! array.submit(Nanos::ZERO, IoTag(1), io)?;
//! while let Some(at) = array.next_event() {
//!     array.advance(at);
//!     while let Some((done, id)) = array.pop_completion() {
//!         assert_eq!(id, IoTag(1));
//!         assert!(done > Nanos::from_millis(5));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

extern crate alloc;

mod array;
pub mod controller;
pub mod drive;
mod error;
mod io;
pub mod layout;
mod params;
pub mod preset;
pub mod raid;
mod text;
mod units;

pub use array::{Array, FaultError, may_be_slow};
pub use controller::{ControllerParams, PrefetchParams, ReadCacheParams, WriteCacheParams};
pub use drive::{DriveModel, DriveParams, FlashParams, Scheduling, SeekParams};
pub use error::ParamError;
pub use io::{ArrayIo, IoKind, SubmitError};
pub use layout::{LayoutParams, Placement};
pub use params::ArrayParams;
pub use preset::{Preset, UnknownPreset};
pub use raid::{RaidLevel, RaidParams};
pub use text::UnitError;
pub use units::{Bytes, IoTag, LunId, Nanos, Rate};
