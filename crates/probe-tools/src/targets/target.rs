//! The target of a probe, found by its name.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use parda_address::Uri;
use parda_exchange::region::NbdConnection;
use parda_nbd::TransmissionFlags;
use parda_probe::{
    LoadDriver, Probe, ProbeDocument, ProbePlan, TargetInfo, TargetKind, Watcher, Wishes,
};

use super::about;
use super::fio::Fio;
use super::guard::{self, EDGE, Why, Writes};

/// Time limit for the few requests that the probe itself sends to an NBD server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Smallest size of a created file, in bytes: loads leave out both of its ends.
const LEAST_CREATED: u64 = 16 << 20;

/// A target that was found, with its driver.
#[derive(Debug)]
pub struct Target {
    info: TargetInfo,
    driver: Box<dyn LoadDriver>,
    /// Number of bytes that are driven.
    driven_bytes: u64,
    may_be_written: bool,
    /// A device that is written to is claimed.
    _claimed: Option<File>,
}

/// Reason why a target cannot be probed, with its name.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The target is not of a kind that can be probed, or must not be written to.
    #[error("{0}")]
    Unfit(String),
    /// The target is possible, but something failed: its server, fio, or making it.
    #[error("{0}")]
    Failed(String),
}

fn unfit(name: &str, error: impl Display) -> TargetError {
    TargetError::Unfit(format!("{name}: {error}"))
}

fn failed(name: &str, error: impl Display) -> TargetError {
    TargetError::Failed(format!("{name}: {error}"))
}

fn refused(name: &str, why: &Why) -> TargetError {
    TargetError::Unfit(format!("{name} will not be written to: {why}"))
}

/// An error of opening a target, with a hint.
fn unopened(name: &str, error: &io::Error) -> TargetError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => ": try as root, or as who may read it",
        io::ErrorKind::NotFound => {
            "; a target is a file, a device or an NBD URI; parda-lab probe takes models as well"
        }
        _ => "",
    };
    unfit(name, format!("{error}{hint}"))
}

impl Target {
    /// Finds the target of a name. Nothing is written, with two exceptions. `create` creates a file of this number
    /// of bytes. A target that passes the checks for `writes` gets the mark.
    ///
    /// # Errors
    /// No target has this name, it cannot be driven, or it may not be written to.
    pub fn open(name: &str, writes: &Writes, create: Option<u64>) -> Result<Target, TargetError> {
        let model = name.strip_prefix("model:");
        if create.is_some() && (model.is_some() || name.contains("://")) {
            let why = "--create makes a file; it has no meaning for a model, a URI or a device";
            return Err(unfit(name, why));
        }
        if model.is_some() {
            let why = format!("is the array model, which is measured by parda-lab probe {name}");
            return Err(unfit(name, why));
        }
        if name.contains("://") {
            return Target::nbd(name, writes);
        }
        if let Some(bytes) = create {
            if bytes < LEAST_CREATED || bytes % EDGE > 0 {
                return Err(unfit(name, "--create needs 16 MiB at least, in whole MiB"));
            }
            guard::create(Path::new(name), bytes)
                .map_err(|error| failed(name, format!("cannot make it: {error}")))?;
        }
        Target::path(name, writes)
    }

    /// A target that holds no data, by its own driver: it may be written to.
    #[must_use]
    pub fn without_data(info: TargetInfo, driver: Box<dyn LoadDriver>) -> Target {
        let driven_bytes = info.bytes;
        Target { info, driver, driven_bytes, may_be_written: true, _claimed: None }
    }

    fn path(name: &str, writes: &Writes) -> Result<Target, TargetError> {
        let path = Path::new(name);
        let wrong = |error| unopened(name, &error);
        let found = fs::metadata(path).map_err(wrong)?;
        let (kind, about) = if found.is_file() {
            (TargetKind::File, about::file(path, &found))
        } else if found.file_type().is_block_device() {
            (TargetKind::Device, about::device(found.rdev()))
        } else {
            return Err(unfit(name, "is neither a file nor a block device"));
        };
        let file = File::open(path).map_err(wrong)?;
        let bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(wrong)?;
        if bytes == 0 {
            let why = "is empty; make a file to probe with --create 1GiB, under a new name";
            return Err(unfit(name, why));
        }
        let claimed = match writes {
            Writes::No => None,
            _ => {
                let claimed = may_overwrite(path, kind, bytes, writes);
                Some(claimed.map_err(|why| refused(name, &why))?)
            }
        };
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
        if kind == TargetKind::File && data == Err(rustix::io::Errno::NXIO) {
            let why = "has no data, only holes, and reads of holes never reach a disk; fill it first, or make a file to \
                       probe with --create 1GiB, under a new name";
            return Err(unfit(name, why));
        }
        let info = TargetInfo { name: name.to_owned(), kind, bytes, writes: false, about };
        Target::by_fio(info, claimed.is_some(), claimed)
    }

    fn nbd(name: &str, writes: &Writes) -> Result<Target, TargetError> {
        let (uri, mut connection) = connect(name)?;
        let writes = if *writes == Writes::No {
            false
        } else {
            may_overwrite_export(&mut connection, name, writes)
                .map_err(|why| refused(name, &why))?;
            true
        };
        let (bytes, about) = (connection.agreed().size, vec![format!("NBD at {}", uri.address)]);
        let info = TargetInfo {
            name: name.to_owned(),
            kind: TargetKind::Nbd,
            bytes,
            writes: false,
            about,
        };
        Target::by_fio(info, writes, None)
    }

    fn by_fio(
        info: TargetInfo,
        writes: bool,
        claimed: Option<File>,
    ) -> Result<Target, TargetError> {
        // Loads that write leave out both ends.
        let edge = if writes { EDGE } else { 0 };
        let (nbd, driven_bytes) = (info.kind == TargetKind::Nbd, info.bytes - 2 * edge);
        let name = info.name.clone();
        let fio = Fio { nbd, name, offset: edge, bytes: driven_bytes, writes };
        fio.check()
            .map_err(|error| TargetError::Failed(format!("cannot probe {}: {error}", info.name)))?;
        let (driver, may_be_written) = (Box::new(fio), writes);
        Ok(Target { info, driver, driven_bytes, may_be_written, _claimed: claimed })
    }

    /// Name, kind and size of the target.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Number of bytes that are driven.
    #[must_use]
    pub fn driven_bytes(&self) -> u64 {
        self.driven_bytes
    }

    /// Whether it may be written to. A model always may, as it holds no data.
    #[must_use]
    pub fn may_be_written(&self) -> bool {
        self.may_be_written
    }

    /// Runs a probe of the target, within a time in seconds if one is given.
    pub fn probe(
        &mut self,
        wishes: Wishes,
        time: Option<f64>,
        seed: u64,
        watcher: &mut dyn Watcher,
    ) -> ProbeDocument {
        let (target, plan) = (self.info.clone(), ProbePlan::new(wishes, seed));
        Probe { target, driver: &mut *self.driver, plan, time, seed }.run(watcher)
    }
}

/// Checks that a file or a device may be overwritten, claims it, and writes the mark.
fn may_overwrite(path: &Path, kind: TargetKind, bytes: u64, writes: &Writes) -> Result<File, Why> {
    let name = path.to_string_lossy();
    writes.named(&name, kind)?;
    let file = if kind == TargetKind::Device {
        guard::device_in_use(path)?;
        guard::claim(path)?
    } else {
        guard::file_in_use(path)?;
        File::options().read(true).write(true).open(path)?
    };
    guard::signatures(path)?;
    let unmarked = guard::unmarked(bytes, &mut |at, buffer| Ok(file.read_exact_at(buffer, at)?));
    match (kind, unmarked) {
        (TargetKind::File, Ok(true) | Err(Why::Unmarked(_))) => Err(Why::other(
            "only a file that parda probe has made is plainly there to be overwritten: make one with \
             --create 1GiB, under a new name",
        )),
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
    let (_, mut connection) = connect(name)?;
    may_overwrite_export(&mut connection, name, writes).map_err(|why| refused(name, &why))?;
    Ok(EDGE..connection.agreed().size - EDGE)
}

fn connect(name: &str) -> Result<(Uri, NbdConnection), TargetError> {
    let uri: Uri = name.parse().map_err(|error| unfit(name, error))?;
    let connection = NbdConnection::open(&uri, PATIENCE).map_err(|error| failed(name, error))?;
    Ok((uri, connection))
}

/// Checks that an NBD export may be overwritten, over a connection of the probe's own, and writes the mark.
fn may_overwrite_export(
    connection: &mut NbdConnection,
    name: &str,
    writes: &Writes,
) -> Result<(), Why> {
    let agreed = *connection.agreed();
    if agreed.flags.contains(TransmissionFlags::READ_ONLY) {
        return Err(Why::other("it is read-only"));
    }
    // A sparse file with the export's size and ends, as `wipefs` reads files only.
    let copy = tempfile::NamedTempFile::new().map_err(|error| {
        let message = format!("no temporary file: {error}. TMPDIR names another place");
        io::Error::new(error.kind(), message)
    })?;
    copy.as_file().set_len(agreed.size)?;
    let ends = guard::unmarked(agreed.size, &mut |at, buffer| {
        connection.restart_clock(PATIENCE);
        let bytes = connection.read(at, buffer.len()).map_err(Why::unread)?;
        buffer.copy_from_slice(&bytes);
        Ok(copy.as_file().write_all_at(&bytes, at)?)
    });
    // The name of a known format says more than the offset of the first byte that is not zero.
    guard::signatures(copy.path())?;
    let unmarked = ends?;
    writes.named(name, TargetKind::Nbd)?;
    if unmarked {
        connection.restart_clock(PATIENCE);
        guard::mark(&mut |block| connection.write(0, block).map_err(Why::unread))?;
    }
    Ok(())
}
