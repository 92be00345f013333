//! A disk whose backend is open, on its way to the thread of its volume.

use std::sync::Arc;

use parda_address::Address;
use parda_control::Bytes;
use parda_disk::Geometry;

use crate::backend::claims::{Claim, Claims};
use crate::backend::disk_file::DiskFile;
use crate::backend::sizing::Sizing;
use crate::backend::{
    BackendConfig, DiskRegion, OpenError, Stretch, check_guests, check_region, connect, file,
    memory,
};
use crate::config::{DiskConfig, SpawnError};
use crate::descriptors::{OF_CONNECTION, OF_FILE, Room};

/// A backend that is open, on its way to the volume's thread.
pub(crate) enum Opened {
    File(file::File),
    Memory(memory::Memory),
    Remote(Box<connect::Opened>),
}

/// A disk whose backend is open, to be given to a volume.
pub struct OpenDisk {
    pub(crate) config: DiskConfig,
    pub(crate) opened: Opened,
    pub(crate) geometry: Geometry,
    /// Where holes can be looked for; nowhere behind an NBD server, which is asked instead.
    pub(crate) place: Option<DiskFile>,
    pub(crate) sizing: Sizing,
    /// Claim on the file, device or export that holds the data, if others could open it as well.
    pub(crate) claim: Option<Arc<Claim>>,
    pub(crate) room: Room,
}

impl Opened {
    /// Alignment with which data moves straight between the backend and a guest's memory.
    pub(crate) fn direct(&self) -> Option<u32> {
        match self {
            Self::File(file) => Some(file.align),
            Self::Memory(_) | Self::Remote(_) => None,
        }
    }

    /// Whether its IOs go through the page cache.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, Self::File(file) if file.is_cached())
    }
}

impl OpenDisk {
    /// The same disk with settings that may have changed while it was opened ([`DiskConfig::stays_open_for`]).
    #[must_use]
    pub fn with(self, config: DiskConfig) -> OpenDisk {
        OpenDisk { config, ..self }
    }

    /// Opens a disk's backend. May block for as long as that does.
    ///
    /// # Errors
    /// It cannot be opened, or the region is not within it.
    pub fn open(config: DiskConfig) -> Result<OpenDisk, SpawnError> {
        OpenDisk::open_watched(config, 0, &|| ())
    }

    /// As [`OpenDisk::open`], for the agent of a host. By the host's number the agent knows what one before it has left under way on a
    /// shared disk. `answered` is called as often as the file system has answered, also while such IO is waited for: who hears nothing
    /// for long knows that it hangs.
    ///
    /// # Errors
    /// It cannot be opened, or the region is not within it.
    pub fn open_watched(
        config: DiskConfig,
        host: u64,
        answered: &dyn Fn(),
    ) -> Result<OpenDisk, SpawnError> {
        let fail =
            |source: OpenError| SpawnError::Backend { disk: config.name.to_string(), source };
        let no_room = || fail(OpenError::Descriptors);
        let own = match &config.backend {
            // Devices are told when they are open.
            BackendConfig::File { .. } | BackendConfig::Memory { .. } => OF_FILE,
            BackendConfig::Nbd { uri, options } => {
                OF_CONNECTION[usize::from(uri.tls.is_some())] * options.connections as u64
            }
        };
        let listen: Vec<Address> = config.addresses().cloned().collect();
        let mut room = Room::take(own, &listen).ok_or_else(no_room)?;
        let (opened, whole, align, claim) = match &config.backend {
            BackendConfig::File { path, direct, lock, raw } => {
                let wanted = file::Wanted {
                    disk: config.name.as_str(),
                    path,
                    direct: *direct,
                    lock: *lock,
                    raw: *raw,
                    read_only: config.read_only,
                    region: config.region,
                    host,
                    answered,
                };
                let (file, geometry, claim) = file::open(&wanted).map_err(fail)?;
                let align = file.align;
                (Opened::File(file), geometry, align, Some(claim))
            }
            BackendConfig::Memory { size } => {
                let base = config.region.map_or(Bytes(0), |region| region.offset);
                let memory = memory::open(*size, base).map_err(fail)?;
                let geometry = memory.geometry();
                (Opened::Memory(memory), geometry, 1, None)
            }
            BackendConfig::Nbd { uri, options } => {
                let stretch = Stretch::of_export(uri, config.bytes());
                let mut claims = Claims::lock();
                let place = format!("{} at {}", uri.export, uri.address);
                claims.check(&stretch, config.read_only, place).map_err(fail)?;
                let disk = config.name.as_str();
                let claim = claims.add(disk, stretch, config.read_only);
                drop(claims);
                let opened = connect::open(uri, *options, config.read_only).map_err(fail)?;
                let geometry = opened.geometry;
                (Opened::Remote(Box::new(opened)), geometry, geometry.blocks.min(), Some(claim))
            }
        };
        let region =
            config.region.unwrap_or(DiskRegion { offset: Bytes(0), len: Bytes(whole.size) });
        check_region(&whole, align, region).map_err(fail)?;
        let read_only = config.read_only;
        let geometry = Geometry { size: region.len.0, read_only, ..whole };
        check_guests(&geometry, &listen).map_err(fail)?;
        let (base, min) = (region.offset.0, whole.blocks.min());
        let place = match (&opened, &config.backend) {
            (Opened::File(file), BackendConfig::File { path, .. }) => {
                Some(DiskFile::new(&file.fd, base, min).named(path))
            }
            (Opened::Memory(memory), _) => Some(DiskFile::new(memory.fd(), base, min)),
            _ => None,
        };
        if let (Opened::File(_), Some(claim)) = (&opened, &claim)
            && !room.has(claim.descriptors())
        {
            return Err(no_room());
        }
        let len = config.region.map(|region| region.len.0);
        // A rest that is smaller than a block of direct IO cannot be read.
        let sizing = Sizing::new(base, len, min.max(align), whole.size);
        Ok(OpenDisk { config, opened, geometry, place, sizing, claim, room })
    }
}
