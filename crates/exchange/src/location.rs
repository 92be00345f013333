//! The place of an exchange with slots, as configuration and command line spell it.

pub use parda_address::Place as Location;
use parda_control::Bytes;

use crate::region::{Misaligned, aligned};

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

    /// Beginning of the place in bytes, if it is a region.
    #[must_use]
    pub fn offset(&self) -> Option<Bytes> {
        self.offset
    }
}
