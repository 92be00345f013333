//! Requests of a guest on their way to the disk, and their answers on the way back.

use std::sync::Arc;

use parda_disk::{Failure, Geometry, Op};
use parda_vhost::blk::{GuestOp, GuestOutcome, Scratch};
use parda_vhost::{Broken, Memory};

use super::{Guest, Pending, State};
use crate::backend::Request;
use crate::buffer::Buffer;
use crate::client::{Body, Client, ReplyHandle};
use crate::front::AgentMemory;
use crate::front::vhost::lane::answer;
use crate::front::vhost::pieces::{Piece, Rest, WaitsFor};

/// Requests that a guest may bring in one turn.
const REQUESTS_PER_TURN: usize = 128;

/// Pieces of long requests that the disk has of a guest at a time, at most.
pub(super) const MAX_PIECES: usize = 128;

/// Bytes of requests that a guest may bring in one turn, rounded up to a whole piece.
const BYTES_PER_TURN: u64 = 4 << 20;

/// Memory for copies of data.
pub(in crate::front::vhost) struct Copies<'a> {
    pub(in crate::front::vhost) agent: &'a AgentMemory,
    /// Most bytes that the copies of one guest take, unless there is only one.
    pub(in crate::front::vhost) most: usize,
}

impl Guest {
    /// Takes requests, as many as there are and the limits allow.
    pub(in crate::front::vhost) fn take(
        &mut self,
        turn: u64,
        copies: &Copies<'_>,
        scratch: &mut Scratch,
        arrivals: &mut Vec<Request>,
    ) -> Result<(), Broken> {
        if self.turn != turn {
            (self.turn, self.requests, self.bytes) = (turn, 0, 0);
        }
        if !self.hand_over(copies, arrivals) {
            return Ok(());
        }
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        if self.state != State::Open || self.broken {
            return Ok(());
        }
        for queue in 0..self.lanes.len() {
            loop {
                if self.requests >= REQUESTS_PER_TURN || self.bytes >= BYTES_PER_TURN {
                    return Ok(());
                }
                if !self.take_one(queue, &memory, scratch)? {
                    break;
                }
                self.requests += 1;
                if !self.hand_over(copies, arrivals) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes a request of a queue, and answers it if it is nothing for the disk. `false` if there is none.
    fn take_one(
        &mut self,
        queue: usize,
        memory: &Arc<Memory>,
        scratch: &mut Scratch,
    ) -> Result<bool, Broken> {
        let (disk, lane) = (&self.offered.geometry, &mut self.lanes[queue]);
        let takes = lane.takes();
        let vring = lane.vring.as_mut().filter(|vring| takes && !vring.is_full());
        let Some(vring) = vring else { return Ok(false) };
        let Some(request) = vring.take(memory, scratch)? else { return Ok(false) };
        let (head, status) = (request.head, request.status());
        let (outcome, written) = match request.asked {
            GuestOp::Op(op) => match judge(disk, op) {
                Ok(()) => {
                    let buffer = matches!(op, Op::Read(_) | Op::Write { .. })
                        .then(|| Buffer::lent(request.data));
                    let len = u32::try_from(op.extent().len).unwrap_or(u32::MAX);
                    let writes = if matches!(op, Op::Read(_)) { len } else { 0 };
                    let (pieces, outcome, leaves) = (0, GuestOutcome::Ok, false);
                    let pending = Pending { queue, head, status, writes, pieces, outcome, leaves };
                    let pending = self.pending.insert(pending);
                    self.rest = Some(Rest::new(pending, op, buffer));
                    return Ok(true);
                }
                Err(outcome) => (outcome, 0),
            },
            GuestOp::Serial => {
                let serial = parda_vhost::blk::serial(self.offered.name.as_str());
                request.data.write(&serial);
                (GuestOutcome::Ok, request.data.len().min(serial.len() as u64) as u32)
            }
            GuestOp::Nothing(outcome) => (outcome, 0),
        };
        self.faults += u64::from(outcome != GuestOutcome::Ok);
        answer(lane, memory, head, &status, outcome, written)?;
        Ok(true)
    }

    /// Hands over what is left of a request, in pieces that the disk takes at once. `false` if a part of it waits.
    fn hand_over(&mut self, copies: &Copies<'_>, arrivals: &mut Vec<Request>) -> bool {
        while let Some(mut rest) = self.rest.take() {
            let cut = rest.next(&self.offered, copies.most);
            let (mut loan, mut waits_for) = (None, None);
            if self.bytes >= BYTES_PER_TURN {
                waits_for = Some(WaitsFor::Turn);
            } else if self.pieces.len() >= MAX_PIECES && self.pending[rest.of].pieces > 0 {
                waits_for = Some(WaitsFor::Answers);
            } else if let Some(bytes) = cut.copy {
                let few = self.copied == 0 || self.copied + bytes <= copies.most;
                loan = few.then(|| copies.agent.lend(bytes)).flatten();
                waits_for = loan.is_none().then_some(WaitsFor::Memory);
                self.copied += loan.as_ref().map_or(0, |loan| loan.bytes);
            }
            if let Some(waits_for) = waits_for {
                rest.waits_for = waits_for;
                self.rest = Some(rest);
                return false;
            }
            let (op, buffer) = rest.take(cut.len);
            self.bytes += buffer.as_ref().map_or(0, |_| cut.len);
            self.pending[rest.of].pieces += 1;
            let piece = self.pieces.insert(Piece { of: rest.of, loan });
            let (client, reply) = (Client::Vhost(self.key), ReplyHandle(piece as u64));
            arrivals.push(Request::new(client, self.disk, reply, op, buffer));
            self.rest = (!rest.is_over()).then_some(rest);
        }
        true
    }

    /// A piece that was handed over is done. Its request is answered with its last one; if one fails, no more are handed over.
    pub(in crate::front::vhost) fn reply(
        &mut self,
        reply: ReplyHandle,
        result: &Result<Body, Failure>,
    ) -> Result<(), Broken> {
        let Piece { of, loan } = self.pieces.remove(reply.0 as usize);
        self.copied -= loan.map_or(0, |loan| loan.bytes);
        let pending = &mut self.pending[of];
        pending.pieces -= 1;
        if let Err(failure) = result {
            self.rest.take_if(|rest| rest.of == of);
            pending.outcome = match failure.errno {
                parda_disk::Errno::NotSup => GuestOutcome::Unsupported,
                _ => GuestOutcome::Failed,
            };
        }
        if pending.pieces > 0 || self.rest.as_ref().is_some_and(|rest| rest.of == of) {
            return Ok(());
        }
        let Pending { queue, head, status, writes, outcome, leaves, .. } = self.pending.remove(of);
        let written = if outcome == GuestOutcome::Ok { writes } else { 0 };
        let (gone, lane) = (self.is_gone(), &mut self.lanes[queue]);
        // A queue with unanswered requests is neither stopped nor replaced.
        let answered = match (&self.memory, &mut lane.vring) {
            (Some(memory), Some(_)) if !gone => {
                answer(lane, memory, head, &status, outcome, written)
            }
            (_, Some(vring)) => {
                vring.give_up();
                Ok(())
            }
            (_, None) => unreachable!("a request is of a queue that was started"),
        };
        lane.stirred = true;
        self.stop_if_drained(queue);
        if leaves {
            self.leave();
        }
        answered
    }
}

/// Whether a disk can take a request; if not, what the guest is told.
fn judge(disk: &Geometry, op: Op) -> Result<(), GuestOutcome> {
    match op {
        Op::Trim { .. } if !disk.trim => Err(GuestOutcome::Unsupported),
        Op::WriteZeroes { .. } if !disk.write_zeroes => Err(GuestOutcome::Unsupported),
        _ => disk.check_range(op).map_err(|_| GuestOutcome::Failed),
    }
}
