//! Replies to requests that the volume is done with.

use parda_disk::{Failure, Op};
use parda_nbd::Cookie;
use parda_nbd::server::ReplyTo;

use super::charge::cost;
use super::{Conn, Phase, State};
use crate::batch::Data;
use crate::client::{Body, ReplyHandle};
use crate::front::nbd::work::Work;
use crate::front::nbd::zeroes::all_zero;

/// The shortest read that is answered as a hole if it is all zeroes, in bytes.
const MIN_HOLE: u64 = 512;

impl Conn {
    /// Queues the reply to a request that the volume is done with.
    pub(crate) fn reply(
        &mut self,
        work: &mut Work<'_>,
        reply: ReplyHandle,
        op: Op,
        outcome: Result<Body, Failure>,
    ) {
        assert!(self.requests > 0, "each request is answered once");
        self.requests -= 1;
        self.status_requests -= usize::from(matches!(op, Op::BlockStatus { .. }));
        let Phase::Transmission { session, .. } = self.phase else { return };
        if self.state == State::Dead {
            if let Ok(Body::Data(buffer)) = outcome {
                work.io.pool.put(buffer);
            }
            work.budget.give(self.key, cost(op));
            return;
        }
        let cookie = Cookie(reply.0);
        let to = ReplyTo::new(cookie, op);
        match (op, outcome) {
            (Op::Read(extent), Ok(Body::Data(buffer)))
                if session.can_put_hole()
                    && extent.len >= MIN_HOLE
                    && buffer.slices(0..extent.len as usize).all(all_zero) =>
            {
                self.outbox.head(|out| session.put_hole(out, cookie, extent));
                work.io.pool.put(buffer);
            }
            (Op::Read(extent), Ok(Body::Data(buffer))) => {
                self.outbox.head(|out| session.put_read(out, cookie, extent));
                // Its memory is given back when it was sent.
                let (len, owner) = (extent.len as usize, cost(op) as u64);
                self.outbox.data(Data { buffer, len, owner });
                return;
            }
            (_, Ok(Body::Status(extents))) => {
                self.outbox.head(|out| session.put_status(out, to, &extents));
            }
            (_, Ok(_)) => self.outbox.head(|out| session.put_done(out, to)),
            (_, Err(failure)) => {
                let Failure { errno, message, at, .. } = failure;
                self.outbox.head(|out| session.put_error_at(out, to, errno, &message, at));
            }
        }
        work.budget.give(self.key, cost(op));
    }
}
