//! A place where data is, as the file spells it.

use std::ops::Range;

use parda_address::{Place, UriError};
use parda_block::Stretch;

/// Granularity of regions, in bytes: what O_DIRECT needs on every device.
pub(super) const REGION_ALIGNMENT: u64 = 4096;

pub(super) fn place(text: &str) -> Result<Place, String> {
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    text.parse().map_err(|error: UriError| error.to_string())
}

/// Bytes of a place; without a range, all of it.
pub(super) fn stretch(place: &Place, range: Option<Range<u64>>) -> Stretch {
    match place {
        Place::Path(path) => Stretch::of_path(path, range),
        Place::Nbd(uri) => Stretch::of_export(uri, range),
    }
}
