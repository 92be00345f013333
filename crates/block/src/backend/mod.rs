//! Where the data is: a file, a block device, memory, or another NBD server.

pub(crate) mod claims;
mod config;
pub(crate) mod connect;
pub(crate) mod disk_file;
mod failure;
pub(crate) mod file;
mod loops;
pub(crate) mod map;
pub(crate) mod medium;
pub(crate) mod memory;
mod opening;
mod request;
pub(crate) mod sizing;
pub(crate) mod upstream;

pub use self::config::{BackendConfig, Direct, Lock, NbdOptions, Region};
pub use self::file::format::Image;
pub use self::medium::{Stretch, Stretches};
pub use self::opening::OpenError;

pub(crate) use self::failure::Failure;
pub(crate) use self::opening::check_region;
pub(crate) use self::request::{Body, ReplyHandle, Request, Rest, Work, io_of};

/// Backend of one disk, open.
pub(crate) enum Backend {
    File(file::File),
    Memory(memory::Memory),
    Nbd(Box<upstream::Upstream>),
}

impl Backend {
    /// Whether it reports data that could not be written back to one sync only, whichever looks
    /// first: the page cache does. Around it, each request hears of its own data.
    pub(crate) fn reports_once(&self) -> bool {
        matches!(self, Self::File(file) if file.is_cached())
    }
}
