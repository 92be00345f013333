//! Events that wake the agent's main thread.

use std::sync::mpsc::{Sender, channel};

use crate::config::Config;

/// Wakeup that wakes the main thread.
pub(crate) enum Wakeup {
    Signal(i32),
    /// The configuration was read again.
    Read(Result<Box<Config>, parda_config::Error>, Sender<()>),
    /// The configuration was changed live. The sender gets its answer once the change is taken over.
    Changed(Box<Config>, Sender<()>),
    /// All of a volume was tried once.
    Settled,
    /// The watchdog asks for a sign of life.
    Asked,
}

/// Gives the agent a configuration to take over.
#[derive(Clone)]
pub(crate) struct Takeover(pub(crate) Sender<Wakeup>);

impl Takeover {
    /// Returns when it was taken over. False if the agent is ending.
    pub(crate) fn take_over(&self, config: Config) -> bool {
        let (done, is_done) = channel();
        let sent = self.0.send(Wakeup::Changed(Box::new(config), done));
        sent.is_ok() && is_done.recv().is_ok()
    }
}
