//! The data path: from clients of NBD and vhost-user to the array and back.
//!
//! A [`Volume`] is one thread with one io_uring. It drives sockets and files alike and calls the
//! law (`parda-control`) directly, so that an IO meets no lock and no other thread of ours, except for writes to
//! the page cache (`writer`), block status of files (`backend::map`) and connections with TLS (`tls`); the
//! kernel may give an operation to one of io_uring's own workers. The control plane talks to the volume
//! through a mailbox that wakes the ring up.
//!
//! ```text
//! clients ─ front end ─► host (fair queue, window) ─► backend: file · memory · NBD server
//!    ▲                                                   │        and, for an emulated array, its model
//!    └──────────────────────── replies ◄─────────────────┘
//! ```
//!
//! `unsafe` is found in `ring.rs`, `buffer.rs` and `backend/loops.rs` alone. Every operation owns what the kernel
//! touches until it is done, whatever becomes of the connection meanwhile.

mod backend;
mod batch;
mod buffer;
mod client;
mod config;
mod credit;
mod descriptors;
mod disk_id;
mod ended;
mod engine;
mod front;
mod listen;
mod losses;
mod mailbox;
mod open_disk;
mod peer;
mod reactor;
mod ring;
mod run_delay;
mod socket_file;
mod spin;
mod stats;
mod threads;
mod timed;
mod timers;
mod turns;
mod volume;
mod writer;

pub use backend::connect::{reach_server, try_server};
pub use backend::file::claim::LOCK_WAIT;
pub use backend::{
    BackendConfig, Direct, DiskRegion, Image, Lock, NbdOptions, OpenError, Stretch, Stretches,
};
pub use config::{DiskConfig, Limits, SpawnError, VolumeConfig};
pub use descriptors::{
    OF_CONNECTION, OF_DEVICE, OF_FILE, descriptor_limit, descriptors_for, error_help, file_help,
    raise_descriptor_limit,
};
pub use disk_id::DiskId;
pub use ended::{DrainedVolume, Ended};
pub use front::{AgentMemory, ListenerTls, TooLittleMemory};
pub use listen::{ListenError, ListenerConfig};
pub use open_disk::OpenDisk;
pub use socket_file::{SocketAccess, SocketFile};
pub use stats::{
    Count, Dropped, Latencies, Lateness, MemoryStats, SharedLatencies, Stats, VmStats,
};
pub use threads::threads_help;
pub use timed::{Timed, TimedId};
pub use volume::{AddListenerError, Handle, Stopped, Volume};
