//! Places where data is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Uri, UriError};

/// A place where data is: of a disk, or of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A file or a block device.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(Uri),
}

impl FromStr for Place {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Place, UriError> {
        if text.contains("://") {
            return text.parse().map(Place::Nbd);
        }
        Ok(Place::Path(PathBuf::from(text)))
    }
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
