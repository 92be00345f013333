//! The load of a client: drawn by chance, or replayed from a trace.

use parda_control::Bytes;

use crate::drawn::{ArrivalRule, Bursts, Workload};
use crate::trace::Replay;

/// The load of a client on its disk.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientLoad {
    /// IOs that are drawn by chance.
    Drawn(Workload),
    /// IOs of a trace.
    Replayed(Replay),
}

impl ClientLoad {
    /// Outstanding IOs of a closed loop. `None` for an open loop.
    #[must_use]
    pub fn outstanding(&self) -> Option<u32> {
        match self.drawn()?.demand {
            ArrivalRule::Closed { outstanding } => Some(outstanding),
            ArrivalRule::Open { .. } => None,
        }
    }

    /// Arrivals per second of an open loop that runs all the time. `None` for any other load.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self.drawn()? {
            Workload { demand: ArrivalRule::Open { rate }, bursts: None, .. } => Some(*rate),
            _ => None,
        }
    }

    /// Times at which the load runs, if not always.
    #[must_use]
    pub fn bursts(&self) -> Option<Bursts> {
        self.drawn().and_then(|workload| workload.bursts)
    }

    /// The workload from which IOs are drawn. `None` for a trace.
    #[must_use]
    pub fn drawn(&self) -> Option<&Workload> {
        match self {
            ClientLoad::Drawn(workload) => Some(workload),
            ClientLoad::Replayed(_) => None,
        }
    }

    /// Checks that a disk of this size suits the load.
    ///
    /// # Errors
    /// The disk is too small for the load, or no multiple of 512 bytes; the error is a message.
    pub fn fits(&self, disk: Bytes) -> Result<(), String> {
        match self {
            ClientLoad::Drawn(workload) => workload.fits(disk).map_err(str::to_owned),
            ClientLoad::Replayed(replay) => replay.fits(disk),
        }
    }
}

impl From<Workload> for ClientLoad {
    fn from(workload: Workload) -> ClientLoad {
        ClientLoad::Drawn(workload)
    }
}
