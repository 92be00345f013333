//! The place of an exchange with slots, as configuration and command line spell it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use parda_address::{Uri, UriError};
use parda_control::Bytes;

use crate::region::{Misaligned, aligned};

/// A file, a block device or an NBD export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file or a block device.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(Uri),
}

impl FromStr for Location {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Location, UriError> {
        if text.contains("://") {
            return text.parse().map(Location::Nbd);
        }
        Ok(Location::Path(PathBuf::from(text)))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Path(path) => path.display().fmt(f),
            Location::Nbd(uri) => write!(f, "{}/{}", uri.address, uri.export.as_str()),
        }
    }
}

/// A location, and where in it the exchange begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Location of the region.
    pub location: Location,
    offset: Option<Bytes>,
}

impl Site {
    /// An exchange at `location`. With an offset it is a region of something larger, even at 0.
    ///
    /// # Errors
    /// The offset is no multiple of a slot.
    pub fn new(location: Location, offset: Option<Bytes>) -> Result<Site, Misaligned> {
        Ok(Site { location, offset: offset.map(aligned).transpose()? })
    }

    /// Where it begins, if it is a region.
    #[must_use]
    pub fn offset(&self) -> Option<Bytes> {
        self.offset
    }
}
