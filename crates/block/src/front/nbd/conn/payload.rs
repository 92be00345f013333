//! The payload of a write, and the memory that it is given as it arrives.

use super::{Conn, Payload, Phase, Want};
use crate::backend::Request;
use crate::buffer::{PIECE, allocated};
use crate::client::{Client, ReplyHandle};
use crate::front::nbd::work::Work;

impl Conn {
    /// The memory that it waited for is there.
    pub(crate) fn granted(&mut self) {
        if self.want == Want::Memory {
            self.want = Want::Requests;
            let asked = std::mem::take(&mut self.asked);
            if let Some(payload) = &mut self.payload {
                payload.granted += asked;
            }
        }
    }

    /// Asks for memory of a request; `false` if it has to wait.
    pub(super) fn ask(&mut self, work: &mut Work<'_>, bytes: usize, last: bool) -> bool {
        let granted = work.budget.ask(self.key, bytes, last);
        if !granted {
            self.want = Want::Memory;
            self.asked = bytes;
        }
        granted
    }

    /// Moves what was received of a payload; `false` if some of it is still to come.
    pub(super) fn take_payload(
        &mut self,
        work: &mut Work<'_>,
        arrivals: &mut Vec<Request>,
    ) -> bool {
        let Phase::Transmission { disk, .. } = self.phase else { return true };
        loop {
            let Some(payload) = &mut self.payload else { return true };
            let Payload { buffer, filled, len, .. } = payload;
            let Some(buffer) = buffer else { return false };
            let room = buffer.len().min(*len);
            *filled += self.inbox.take_into(buffer, *filled..room);
            if *filled == *len {
                break;
            }
            if *filled < room {
                return false;
            }
            let next = (*len).min(buffer.len() + PIECE);
            let lacks = allocated(next) - buffer.len();
            if payload.granted < lacks {
                if room == 0 && self.inbox.bytes().is_empty() {
                    // None of it has come.
                    return false;
                }
                let last = next == *len;
                if !self.ask(work, lacks, last) {
                    return false;
                }
                if let Some(payload) = &mut self.payload {
                    payload.granted += lacks;
                }
                continue;
            }
            payload.granted -= lacks;
            work.io.pool.grow(buffer, next);
        }
        if let Some(Payload { cookie, op, buffer, .. }) = self.payload.take() {
            let (client, reply) = (Client::Nbd(self.key), ReplyHandle(cookie.0));
            arrivals.push(Request::new(client, disk, reply, op, buffer));
        }
        true
    }
}
