//! The client of a VM: its next IO, and the time before it.

use parda_array::{ArrayIo, Bytes, IoKind, LunId};
use parda_control::Span;
use parda_workload::trace::{Player, TraceIo};
use parda_workload::{Bursts, ClientLoad};

use crate::drawn::Drawn;

/// A VM's client. Other drivers of the model draw from it too, so that a workload is the same for all.
#[derive(Debug)]
pub struct VmClient {
    /// Outstanding IOs of a closed loop. `None` for an open loop.
    pub(crate) outstanding: Option<u32>,
    /// Bursts of activity; `None`: always active.
    pub(crate) bursts: Option<Bursts>,
    ios: Ios,
}

#[derive(Debug)]
enum Ios {
    Drawn(Drawn),
    Replayed(LunId, Player),
}

impl VmClient {
    /// Makes the client of a VM on a disk of this size; `random` is its only source of chance.
    #[must_use]
    pub fn new(
        load: &ClientLoad,
        lun: LunId,
        disk: parda_control::Bytes,
        mut random: fastrand::Rng,
    ) -> VmClient {
        let ios = match load {
            ClientLoad::Drawn(workload) => Ios::Drawn(Drawn::new(workload, lun, disk, random)),
            ClientLoad::Replayed(replay) => {
                Ios::Replayed(lun, Player::new(replay, disk, random.f64()))
            }
        };
        VmClient { outstanding: load.outstanding(), bursts: load.bursts(), ios }
    }

    /// Starts a run. A trace begins anew; random draws continue.
    pub(crate) fn start(&mut self) {
        if let Ios::Replayed(_, player) = &mut self.ios {
            player.restart();
        }
    }

    /// Next IO of the client.
    pub fn draw(&mut self) -> ArrayIo {
        match &mut self.ios {
            Ios::Drawn(drawn) => drawn.draw(),
            Ios::Replayed(lun, player) => {
                let TraceIo { offset, len, read, .. } = player.io();
                let kind = if read { IoKind::Read } else { IoKind::Write };
                ArrayIo { lun: *lun, kind, offset: Bytes(offset), len: Bytes(len.into()) }
            }
        }
    }

    /// Time until the next arrival of an open loop. `None` for a closed loop.
    pub fn gap(&mut self) -> Option<Span> {
        match &mut self.ios {
            Ios::Drawn(drawn) => drawn.gap(),
            Ios::Replayed(_, player) => player.gap().map(Span),
        }
    }
}
