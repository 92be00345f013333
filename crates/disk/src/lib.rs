//! A disk as its users see it, whatever the protocol between them: operations on ranges, errors,
//! geometry, block status.
//!
//! A front end turns requests of its protocol into [`Op`]s, a backend performs them.
#![forbid(unsafe_code)]

mod check;
mod errno;
mod extent;
mod failure;
mod geometry;
mod op;
mod rights;
pub mod status;

pub use check::Fault;
pub use errno::Errno;
pub use extent::Extent;
pub use failure::Failure;
pub use geometry::{BlockSizeError, BlockSizes, Geometry, MAX_PAYLOAD};
pub use op::Op;
pub use rights::{protected, rights};
