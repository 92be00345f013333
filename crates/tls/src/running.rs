//! Threads of relays. Ending the process would cut off relays before they have handed on the last
//! data, so its end waits for them.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::relay::{RelayError, TlsRelay};

/// Stack size of a relay's thread, in bytes. A handshake needs most of it.
const STACK: usize = 512 << 10;

/// Number of relays that run in this process.
static RUNNING: Mutex<usize> = Mutex::new(0);
static ONE_LESS: Condvar = Condvar::new();

/// Counts one relay for as long as the value exists.
struct Counted;

impl Counted {
    fn new() -> Counted {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ONE_LESS.notify_all();
    }
}

impl TlsRelay {
    /// Runs a relay in a thread of its own. `ended` is called with the result before either side sees
    /// its socket closed.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(
        self,
        ended: impl FnOnce(Result<(), RelayError>) + Send + 'static,
    ) -> io::Result<()> {
        let counted = Counted::new();
        let thread = std::thread::Builder::new().name("parda-tls".into()).stack_size(STACK);
        thread.spawn(move || {
            // Dropped last, after the sockets are closed.
            let _counted = counted;
            let mut relay = self;
            ended(relay.run());
        })?;
        Ok(())
    }
}

/// Waits for the relays of this process to end, at most for `limit`. Call it once the plaintext
/// sides are closed, before the process ends. `false` if relays still run.
pub fn settle(limit: Duration) -> bool {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ONE_LESS.wait_timeout_while(running, limit, |running| *running > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}
