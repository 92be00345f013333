//! How a volume's thread ends: as it is told, by a panic, or because its ring failed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use parda_control::{Instant, Span};

use super::{Engine, closing};
use crate::ended::{DrainedVolume, Ended};
use crate::front::any;
use crate::front::front_end::FrontEnd;

/// Time that the kernel gets to return operations of killed connections, at an orderly end.
const LAST_WAIT: Span = Span::from_millis(1_000);

impl Engine {
    /// Serves until it is told to end, or cannot go on.
    pub(crate) fn run(mut self) -> Ended {
        let how = self.serve();
        self.disks.iter().for_each(|(key, _)| self.leave_losses(key));
        if let Ended::Broken(_) = how {
            // For as long as this process lives, as what is in flight may still change the disks.
            self.disks.iter_mut().for_each(|(_, disk)| std::mem::forget(disk.claim.take()));
        }
        closing::close_all(self.disks.drain());
        how
    }

    fn serve(&mut self) -> Ended {
        // After a panic the engine is only closed: sockets are shut down, and operations in flight
        // are waited for.
        let ended = catch_unwind(AssertUnwindSafe(|| self.turns()));
        let unanswered = self.unanswered;
        let how = match ended {
            Ok(Ok(())) => Ended::Drained(DrainedVolume { unanswered }),
            Ok(Err(error)) => {
                tracing::error!(volume = self.name, %error, "the ring failed; the volume ends");
                return Ended::Broken(format!("io_uring: {error}"));
            }
            Err(panic) => Ended::Crashed(message(panic.as_ref())),
        };
        let limit = matches!(how, Ended::Drained(_)).then_some(LAST_WAIT);
        match catch_unwind(AssertUnwindSafe(|| self.close(limit))) {
            Ok(true) => how,
            Ok(false) if limit.is_some() => how,
            Ok(false) => Ended::Broken(format!("{how:?}, and then io_uring failed")),
            Err(again) => Ended::Broken(format!("{how:?}, and then {}", message(again.as_ref()))),
        }
    }

    pub(crate) fn stop(&mut self, now: Instant, within: Duration) {
        self.stop_by = Some(now + Span::from(within));
        self.fronts.stop(&mut self.work.io);
    }

    /// Whether a shutdown is over.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        if !any!(self.fronts, has_clients()) {
            return self.has_flushed(now) || now >= stop_by;
        }
        if now < stop_by && !self.only_silent_servers(now) {
            return false;
        }
        self.unanswered = self.work.requests.len();
        let (volume, unanswered) = (&self.name, self.unanswered);
        let why = if now < stop_by {
            "the servers behind their disks are silent"
        } else {
            "the time is over"
        };
        tracing::warn!(volume, unanswered, "requests stay unanswered at the end: {why}");
        true
    }

    /// Closes all sockets and lets the kernel return what it still has, so that all descriptors are closed. Without a limit it waits as
    /// long as needed: an IO may still change a file until it returns. The next server of the disk must not be overtaken. False if
    /// something is left.
    fn close(&mut self, limit: Option<Span>) -> bool {
        self.fronts.close(&mut self.work.io);
        for up in self.disks.iter_mut().filter_map(|(_, disk)| disk.backend.remote()) {
            up.close();
        }
        // The poll of the bell ends.
        self.mailer.ring();
        let until = limit.map(|limit| self.now() + limit);
        while self.work.io.ring.in_flight() > 0 && until.is_none_or(|until| self.now() < until) {
            let timeout = until.map(|until| until.since(self.now()).into());
            if self.work.io.ring.wait(timeout).is_err() {
                break;
            }
            while self.work.io.ring.next().is_some() {}
        }
        self.work.io.ring.in_flight() == 0
    }
}

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a panic: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}
