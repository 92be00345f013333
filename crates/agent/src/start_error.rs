//! Why a volume does not start.

use parda_block::SpawnError;

use crate::steered::SteerError;

/// Reason why a volume does not start. Faults of its disks, listeners or exchange are none: those
/// are tried again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The volume's ring does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Its device, or the way to steer it.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// The law's parameters cannot work.
    #[error(transparent)]
    Control(#[from] parda_control::ConfigError),
    /// A thread of the volume does not start.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
