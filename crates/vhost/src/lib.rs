//! vhost-user-blk, the side of the device. A hypervisor shares its guest's memory and queues over a unix socket, and the guest's requests
//! are taken from there.
//!
//! - [`control`] serves the socket: messages of the front end become [`control::Order`]s to whoever has the queues.
//! - [`Memory`] is the guest's memory, [`Vring`] a queue in it.
//! - [`blk`] has the device's configuration, and turns descriptor chains into operations on a disk.
//!
//! Nothing that a guest or a front end says is trusted. A violation of virtio's rules is a [`Broken`], and ends that guest's disk; an
//! operation that the disk cannot do is answered with an error.
//!
//! `unsafe` is found in `memory.rs`, `sigbus.rs` and where a status byte is written (`blk.rs`).

pub mod blk;
mod bounds;
mod broken;
pub mod control;
mod inflight;
mod memory;
mod sigbus;
mod vring;

pub use bounds::{MAX_QUEUE_SIZE, MAX_QUEUES, MAX_REGIONS};
pub use broken::Broken;
pub use memory::{Memory, MemoryRegion, Segments};
pub use vring::Vring;
