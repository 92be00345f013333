//! The target of a probe, found by its name.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use parda_exchange::region::{NbdConnection, RegionFault};
use parda_nbd::TransmissionFlags;
use parda_nbd::uri::{Uri, UriError};
use parda_workload::fio::UnsupportedByFio;

use crate::targets::about;
use crate::targets::fio::{Fio, FioError};
use crate::targets::guard::{self, EDGE, MARK, Refusal, Why, Writes};
use crate::targets::model::{Model, ModelError};
use parda_probe::{Kind, ProbeDocument, TargetInfo};
use parda_probe::{Plan, Wishes};
use parda_probe::{Probe, Watcher};

/// Time limit for the few requests that the probe itself sends to an NBD server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Smallest size of a created file, in bytes: loads leave out both of its ends.
const LEAST_CREATED: u64 = 16 << 20;

/// A target that was found, with its driver.
#[derive(Debug)]
pub struct Target {
    info: TargetInfo,
    drive: Drive,
    /// A device that is written to is claimed.
    _claimed: Option<File>,
}

#[derive(Debug)]
enum Drive {
    Model(Box<Model>),
    Fio(Fio),
}

/// Reason why a target cannot be probed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum TargetError {
    #[error("{name}: {error}")]
    Model { name: String, error: ModelError },
    #[error("{name}: {error}")]
    Uri { name: String, error: UriError },
    #[error("{name}: {error}")]
    Nbd { name: String, error: String },
    #[error("{name}: {error}{}", hint(.error))]
    Open { name: String, error: io::Error },
    #[error("{0}: is neither a file nor a block device")]
    Kind(String),
    #[error("{0}: is empty; make a file to probe with --create 1GiB, under a new name")]
    Empty(String),
    #[error(
        "{0}: has no data, only holes, and reads of holes never reach a disk; fill it first, or make a file to \
         probe with --create 1GiB, under a new name"
    )]
    Holes(String),
    #[error("{0}: --create makes a file; it has no meaning for a model, a URI or a device")]
    NoFile(String),
    #[error("{0}: --create needs 16 MiB at least, in whole MiB")]
    CreateSize(String),
    #[error("{name}: cannot make it: {error}")]
    Create { name: String, error: io::Error },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("cannot probe {name}: {error}")]
    Fio { name: String, error: FioError },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": try as root, or as who may read it",
        io::ErrorKind::NotFound => {
            "; a target is a file, a device, an NBD URI, or a model such as model:drive-7200"
        }
        _ => "",
    }
}

impl Target {
    /// Finds the target of a name. Nothing is written, except that `create` creates a file of this
    /// number of bytes, and that a target that passes the checks for `writes` gets the mark.
    ///
    /// # Errors
    /// No target has this name, it cannot be driven, or it may not be written to.
    pub fn open(name: &str, writes: &Writes, create: Option<u64>) -> Result<Target, TargetError> {
        let owned = || name.to_owned();
        if let Some(model) = name.strip_prefix("model:") {
            if create.is_some() {
                return Err(TargetError::NoFile(owned()));
            }
            let wrong = |error| TargetError::Model { name: owned(), error };
            let model: Model = model.parse().map_err(wrong)?;
            let info = model.info();
            return Ok(Target { info, drive: Drive::Model(Box::new(model)), _claimed: None });
        }
        if name.contains("://") {
            if create.is_some() {
                return Err(TargetError::NoFile(owned()));
            }
            return Target::nbd(name, writes);
        }
        if let Some(bytes) = create {
            if bytes < LEAST_CREATED || bytes % EDGE > 0 {
                return Err(TargetError::CreateSize(owned()));
            }
            let wrong = |error| TargetError::Create { name: owned(), error };
            guard::create(Path::new(name), bytes).map_err(wrong)?;
        }
        Target::path(name, writes)
    }

    fn path(name: &str, writes: &Writes) -> Result<Target, TargetError> {
        let path = Path::new(name);
        let wrong = |error| TargetError::Open { name: name.to_owned(), error };
        let found = fs::metadata(path).map_err(wrong)?;
        let kind = if found.is_file() {
            Kind::File
        } else if found.file_type().is_block_device() {
            Kind::Device
        } else {
            return Err(TargetError::Kind(name.to_owned()));
        };
        let file = File::open(path).map_err(wrong)?;
        let bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(wrong)?;
        if bytes == 0 {
            return Err(TargetError::Empty(name.to_owned()));
        }
        let about = match kind {
            Kind::File => about::file(path, &found),
            _ => about::device(found.rdev()),
        };
        let fio = Fio { nbd: false, name: name.to_owned(), offset: 0, bytes, writes: false };
        let refused = |why| Refusal { target: name.to_owned(), why };
        let claimed = match writes {
            Writes::No => None,
            _ => Some(may_overwrite(path, kind, bytes, writes).map_err(refused)?),
        };
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
        if kind == Kind::File && data == Err(rustix::io::Errno::NXIO) {
            return Err(TargetError::Holes(name.to_owned()));
        }
        Target::driven_by(fio, kind, about, claimed)
    }

    fn nbd(name: &str, writes: &Writes) -> Result<Target, TargetError> {
        let wrong = |error| TargetError::Uri { name: name.to_owned(), error };
        let uri: Uri = name.parse().map_err(wrong)?;
        let failed = |error: &dyn ToString| TargetError::Nbd {
            name: name.to_owned(),
            error: error.to_string(),
        };
        let mut connection = NbdConnection::open(&uri, PATIENCE).map_err(|e| failed(&e))?;
        let agreed = *connection.agreed();
        let fio =
            Fio { nbd: true, name: name.to_owned(), offset: 0, bytes: agreed.size, writes: false };
        if *writes != Writes::No {
            let refused = |why| Refusal { target: name.to_owned(), why };
            may_overwrite_export(&mut connection, name, writes).map_err(refused)?;
        }
        let mut target =
            Target::driven_by(fio, Kind::Nbd, vec![format!("NBD at {}", uri.address)], None)?;
        if let Drive::Fio(fio) = &mut target.drive {
            fio.allow(*writes != Writes::No);
        }
        Ok(target)
    }

    fn driven_by(
        mut fio: Fio,
        kind: Kind,
        about: Vec<String>,
        claimed: Option<File>,
    ) -> Result<Target, TargetError> {
        fio.check().map_err(|error| TargetError::Fio { name: fio.name.clone(), error })?;
        let info =
            TargetInfo { name: fio.name.clone(), kind, bytes: fio.bytes, writes: false, about };
        fio.allow(claimed.is_some());
        Ok(Target { info, drive: Drive::Fio(fio), _claimed: claimed })
    }

    /// Name, kind and size of the target.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Number of bytes that are driven.
    #[must_use]
    pub fn driven_bytes(&self) -> u64 {
        match &self.drive {
            Drive::Model(_) => self.info.bytes,
            Drive::Fio(fio) => fio.bytes,
        }
    }

    /// Whether it may be written to. A model always may, as it holds no data.
    #[must_use]
    pub fn may_be_written(&self) -> bool {
        match &self.drive {
            Drive::Model(_) => true,
            Drive::Fio(fio) => fio.writes,
        }
    }

    /// The loads of a probe as a job file of fio, one after another, each with the warm-up and the length that
    /// it had. For a model, the jobs drive a file called TARGET.
    ///
    /// # Errors
    /// The target's name cannot stand in a job file.
    pub fn job_file(&self, document: &ProbeDocument) -> Result<String, UnsupportedByFio> {
        let placeholder = || Fio {
            nbd: false,
            name: "TARGET".to_owned(),
            offset: 0,
            bytes: self.info.bytes,
            writes: false,
        };
        let fio = match &self.drive {
            Drive::Model(_) => placeholder(),
            Drive::Fio(fio) => fio.clone(),
        };
        let mut text = format!(
            "# The loads of a probe of {}. By `parda probe --fio`, for fio.\n",
            self.info.name
        );
        for (number, point) in document.points.iter().enumerate() {
            text += "\n";
            text += &fio.recorded(number, point)?.section()?;
        }
        Ok(text)
    }

    /// Runs a probe of the target, within a time in seconds if one is given.
    pub fn probe(
        &mut self,
        wishes: Wishes,
        time: Option<f64>,
        seed: u64,
        watcher: &mut dyn Watcher,
    ) -> ProbeDocument {
        let (target, plan) = (self.info.clone(), Plan::new(wishes, seed));
        let driver: &mut dyn parda_probe::Driver = match &mut self.drive {
            Drive::Model(model) => model.as_mut(),
            Drive::Fio(fio) => fio,
        };
        Probe { target, driver, plan, time, seed }.run(watcher)
    }
}

impl Fio {
    /// Whether writes are allowed. If so, loads leave out both ends.
    fn allow(&mut self, writes: bool) {
        if writes && !self.writes {
            self.offset = EDGE;
            self.bytes -= 2 * EDGE;
        }
        self.writes |= writes;
    }
}

/// Checks that a file or a device may be overwritten, claims it, and writes the mark.
fn may_overwrite(path: &Path, kind: Kind, bytes: u64, writes: &Writes) -> Result<File, Why> {
    let name = path.to_string_lossy();
    writes.named(&name, kind)?;
    let file = if kind == Kind::Device {
        guard::device_in_use(path)?;
        guard::claim(path)?
    } else {
        guard::file_in_use(path)?;
        File::options().read(true).write(true).open(path)?
    };
    guard::signatures(path)?;
    let unmarked = guard::unmarked(bytes, &mut |at, buffer| Ok(file.read_exact_at(buffer, at)?));
    match (kind, unmarked) {
        (Kind::File, Ok(true) | Err(Why::Data { .. } | Why::Small(_))) => Err(Why::NotOurs),
        (_, Err(why)) => Err(why),
        (_, Ok(false)) => Ok(file),
        (_, Ok(true)) => {
            guard::mark(&mut |block| Ok(file.write_all_at(block, 0)?))?;
            file.sync_all()?;
            Ok(file)
        }
    }
}

/// Checks that an NBD export may be overwritten, and writes the mark. Returns the bytes that may be written: all but
/// both ends.
///
/// # Errors
/// The export cannot be reached, or it may not be written to.
pub fn writable_export(name: &str, writes: &Writes) -> Result<Range<u64>, TargetError> {
    let uri: Uri =
        name.parse().map_err(|error| TargetError::Uri { name: name.to_owned(), error })?;
    let failed =
        |error: RegionFault| TargetError::Nbd { name: name.to_owned(), error: error.to_string() };
    let mut connection = NbdConnection::open(&uri, PATIENCE).map_err(failed)?;
    let refused = |why| Refusal { target: name.to_owned(), why };
    may_overwrite_export(&mut connection, name, writes).map_err(refused)?;
    Ok(EDGE..connection.agreed().size - EDGE)
}

/// Checks that an NBD export may be overwritten, over a connection of the probe's own, and writes the mark.
fn may_overwrite_export(
    connection: &mut NbdConnection,
    name: &str,
    writes: &Writes,
) -> Result<(), Why> {
    let agreed = *connection.agreed();
    if agreed.flags.contains(TransmissionFlags::READ_ONLY) {
        return Err(Why::ReadOnly);
    }
    // A sparse file with the export's size and ends, as `wipefs` reads files only.
    let copy = tempfile::NamedTempFile::new().map_err(|error| {
        let message = format!("no temporary file: {error}. TMPDIR names another place");
        io::Error::new(error.kind(), message)
    })?;
    copy.as_file().set_len(agreed.size)?;
    let nbd = |error: &dyn ToString| Why::Nbd(error.to_string());
    let mut ends = guard::unmarked(agreed.size, &mut |at, buffer| {
        connection.restart_clock(PATIENCE);
        let bytes = connection.read(at, buffer.len()).map_err(|e| nbd(&e))?;
        buffer.copy_from_slice(&bytes);
        Ok(copy.as_file().write_all_at(&bytes, at)?)
    });
    // The name of a known format says more than the offset of the first byte that is not zero.
    if let Err(Why::Data { .. }) = ends {
        ends = guard::signatures(copy.path()).and(ends);
    } else {
        guard::signatures(copy.path())?;
    }
    let unmarked = ends?;
    writes.named(name, Kind::Nbd)?;
    if unmarked {
        debug_assert!(MARK as u64 <= EDGE);
        connection.restart_clock(PATIENCE);
        guard::mark(&mut |block| connection.write(0, block).map_err(|e| nbd(&e)))?;
    }
    Ok(())
}
