//! The handshake of a connection, with the change to TLS.

use std::rc::Rc;
use std::sync::Arc;

use parda_nbd::server::Step;

use super::{Conn, ConnError, Offer, Phase, State, Want};
use crate::front::nbd::tls;
use crate::front::nbd::work::Work;

/// Options that a handshake has answers to at once. Clients send three to ten.
const OPTIONS_AT_ONCE: u32 = 16;

impl Conn {
    /// Takes one option of the handshake; `false` if none was taken whole, or none may be
    /// taken in this turn.
    pub(super) fn take_option(
        &mut self,
        offer: &Offer,
        work: &mut Work<'_>,
    ) -> Result<bool, ConnError> {
        let Phase::Handshake { handshake, options, .. } = &self.phase else { return Ok(true) };
        let many = *options >= OPTIONS_AT_ONCE;
        if handshake.starts_tls() {
            self.begin_tls(work)?;
            return Ok(false);
        }
        if many && !self.inbox.bytes().is_empty() && !self.has_answer(work) {
            return Ok(false);
        }
        let Phase::Handshake { handshake, options, .. } = &mut self.phase else { return Ok(true) };
        let input = self.inbox.bytes();
        match self.outbox.head(|out| handshake.advance(input, &offer.exports, out))? {
            Step::Incomplete => return Ok(false),
            Step::Taken(n) => {
                self.inbox.take(n);
                *options += 1;
            }
            Step::Transmission { taken, export, session } => {
                self.inbox.take(taken);
                let disk = offer.disks[export];
                let export = Rc::new(offer.exports[export].clone());
                self.phase = Phase::Transmission { disk, export, session };
                // The volume may have too many connections to this export.
                self.want = Want::Turn;
                return Ok(false);
            }
            Step::Closed => self.state = State::Closing,
        }
        Ok(true)
    }

    /// Goes over to TLS as soon as the client was told to begin. Until then nothing is received:
    /// what the client sends to begin with is for the relay.
    fn begin_tls(&mut self, work: &mut Work<'_>) -> Result<(), ConnError> {
        let Phase::Handshake { handshake, .. } = &mut self.phase else { return Ok(()) };
        if !self.inbox.bytes().is_empty() {
            return Err(ConnError::Injected);
        }
        self.want = Want::Room;
        let Some(tls) = &self.place.tls else { return Ok(()) };
        if !self.sending && self.outbox.is_empty() {
            let memory = work.budget.charge(tls::RELAY).ok_or(ConnError::NoMemory)?;
            let ring = self.fd.try_clone().and_then(|fd| tls.begin(fd, memory));
            let ring = ring.map_err(ConnError::Tls)?;
            self.fd = Arc::new(ring);
            handshake.secured();
            self.want = Want::Requests;
        }
        Ok(())
    }
}
