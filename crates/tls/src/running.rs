//! The threads of relays. A process that ends would cut them off before they have handed on the last
//! that was said inside, so whoever ends it waits for them.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::relay::{Relay, RelayError};

/// Stack of a relay's thread in bytes, of which a handshake takes the most.
const STACK: usize = 512 << 10;

/// How many run in this process.
static RUNNING: Mutex<usize> = Mutex::new(0);
static ONE_LESS: Condvar = Condvar::new();

/// Counts a relay as long as it is there.
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

impl Relay {
    /// Runs it in a thread of its own. `ended` hears how it ended before either side sees its socket
    /// closed.
    ///
    /// # Errors
    /// There is no thread to be had.
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

/// Waits until the relays of this process have ended, at most for `limit`: to be called when
/// nobody is inside any more, before the process ends. `false` if some were still there.
pub fn settle(limit: Duration) -> bool {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ONE_LESS.wait_timeout_while(running, limit, |running| *running > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}
