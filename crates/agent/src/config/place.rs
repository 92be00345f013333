//! A place where data is, as the file spells it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use parda_address::{Uri, UriError};
use parda_block::Stretch;

/// Granularity of regions, in bytes: what O_DIRECT needs on every device.
pub(super) const REGION_ALIGNMENT: u64 = 4096;

/// A place where data is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A file or a block device.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(Uri),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => path.display().fmt(f),
            Place::Nbd(uri) => {
                let tls = if uri.tls.is_some() { " with TLS" } else { "" };
                write!(f, "NBD export {:?} of {}{tls}", uri.export.as_str(), uri.address)
            }
        }
    }
}

pub(super) fn place(text: &str) -> Result<Place, String> {
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    if text.contains("://") {
        return text.parse().map(Place::Nbd).map_err(|e: UriError| e.to_string());
    }
    Ok(Place::Path(PathBuf::from(text)))
}

/// Bytes of a place; without a range, all of it.
pub(super) fn stretch(place: &Place, range: Option<Range<u64>>) -> Stretch {
    match place {
        Place::Path(path) => Stretch::of_path(path, range),
        Place::Nbd(uri) => Stretch::of_export(uri, range),
    }
}
