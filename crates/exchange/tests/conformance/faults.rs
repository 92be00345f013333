//! A decorator of any exchange: what is heard comes late, twice, in another order, or not at all.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use parda_control::Instant;
use parda_exchange::{Collected, Exchange, ExchangeError, Message, Publication, Standing};

/// What happens to messages on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Messages are heard as they are.
    None,
    /// Three of ten are not heard.
    Drop,
    /// All are heard two periods late.
    Delay,
    /// Each is heard twice, and with the one before it.
    Duplicate,
    /// They come in any order, with older ones among them.
    Reorder,
}

/// What is wrong with one host's ears, shared with who turns it.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    pub(crate) fault: Option<Fault>,
    /// Names of hosts that are not heard.
    pub(crate) deaf_to: BTreeSet<String>,
}

/// Another exchange, heard through such ears.
pub(crate) struct Faulty {
    inner: Box<dyn Exchange>,
    ears: Arc<Mutex<Ears>>,
    random: fastrand::Rng,
    before: VecDeque<Vec<Arc<Message>>>,
}

impl Faulty {
    pub(crate) fn new(inner: Box<dyn Exchange>, ears: Arc<Mutex<Ears>>, seed: u64) -> Faulty {
        let random = fastrand::Rng::with_seed(seed);
        Faulty { inner, ears, random, before: VecDeque::new() }
    }
}

impl Exchange for Faulty {
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        self.inner.publish(publication)
    }

    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        let mut heard = self.inner.collect(now)?;
        let ears = self.ears.lock().unwrap();
        heard.messages.retain(|m| !ears.deaf_to.contains(m.from.host.as_str()));
        self.before.push_front(heard.messages.clone());
        self.before.truncate(3);
        let older = || self.before.iter().skip(1).flatten().cloned();
        let messages = &mut heard.messages;
        match ears.fault.unwrap_or(Fault::None) {
            Fault::None => {}
            Fault::Drop => messages.retain(|_| self.random.u8(..10) >= 3),
            Fault::Delay => *messages = self.before.get(2).cloned().unwrap_or_default(),
            Fault::Duplicate => {
                let again = messages.clone();
                messages.splice(0..0, older());
                messages.extend(again);
            }
            Fault::Reorder => {
                messages.extend(older());
                self.random.shuffle(messages);
            }
        }
        Ok(heard)
    }

    fn reload(&mut self) {
        self.inner.reload();
    }

    fn loads_array(&self) -> bool {
        self.inner.loads_array()
    }

    fn standing(&self) -> Standing {
        self.inner.standing()
    }
}
