//! The client of a VM: its next IO, and the time before it.

use parda_array::{ArrayIo, Bytes, IoKind, LunId};
use parda_control::Span;
use parda_workload::trace::{Player, TraceIo};
use parda_workload::{Bursts, ClientLoad};

use crate::drawn::Drawn;

/// A VM's client. What drives a model elsewhere draws from it, too, so that a workload means the same.
#[derive(Debug)]
pub struct Client {
    /// How many a closed loop has under way. `None` of an open loop.
    pub(crate) outstanding: Option<u32>,
    /// When it works, if not always.
    pub(crate) bursts: Option<Bursts>,
    ios: Ios,
}

#[derive(Debug)]
enum Ios {
    Drawn(Drawn),
    Replayed(LunId, Player),
}

impl Client {
    /// The client of a VM on a disk of this size, that draws all chance from `random`.
    #[must_use]
    pub fn new(
        load: &ClientLoad,
        lun: LunId,
        disk: parda_control::Bytes,
        mut random: fastrand::Rng,
    ) -> Client {
        let ios = match load {
            ClientLoad::Drawn(workload) => Ios::Drawn(Drawn::new(workload, lun, disk, random)),
            ClientLoad::Replayed(replay) => {
                Ios::Replayed(lun, Player::new(replay, disk, random.f64()))
            }
        };
        Client { outstanding: load.outstanding(), bursts: load.bursts(), ios }
    }

    /// It is started. A trace then begins anew; what is drawn goes on where it was.
    pub(crate) fn start(&mut self) {
        if let Ios::Replayed(_, player) = &mut self.ios {
            player.restart();
        }
    }

    /// The client's next IO.
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

    /// The time until the next IO of an open loop arrives, if one does. A closed loop has none.
    pub fn gap(&mut self) -> Option<Span> {
        match &mut self.ios {
            Ios::Drawn(drawn) => drawn.gap(),
            Ios::Replayed(_, player) => player.gap().map(Span),
        }
    }
}
