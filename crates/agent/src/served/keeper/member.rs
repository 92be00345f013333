//! A disk or listener on its way in and out.

use std::time::{Duration, Instant};

use super::Owner;
use crate::served::opens::Heard;

/// After what time it is tried again for the first time to open a disk or a listener, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// At most, if another disk of this agent has to be closed first.
const BRIEF_PAUSE: Duration = Duration::from_secs(1);

/// Something that is to be open.
pub(super) struct Member<T, O> {
    pub(super) owner: Owner,
    pub(super) config: T,
    pub(super) state: State<O>,
    pub(super) since: Instant,
    pub(super) fault: Option<String>,
    pub(super) pause: Duration,
    /// While it is opened and does not count as silent: when its file system has answered last.
    pub(super) heard: Option<Heard>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum State<O> {
    /// To be opened then.
    Waiting(Instant),
    Opening,
    Open(O),
    Leaving,
}

impl<T, O> Member<T, O> {
    pub(super) fn new(config: T) -> Self {
        let now = Instant::now();
        let (owner, state) = (Owner::new(), State::Waiting(now));
        Member { owner, config, state, since: now, fault: None, pause: FIRST_PAUSE, heard: None }
    }

    /// It could not be opened. True if that is news.
    pub(super) fn failed(&mut self, fault: String) -> bool {
        self.wait(fault, LAST_PAUSE)
    }

    /// Another disk still has what it needs. True if that is news.
    pub(super) fn must_wait(&mut self, fault: String) -> bool {
        self.wait(fault, BRIEF_PAUSE)
    }

    fn wait(&mut self, fault: String, at_most: Duration) -> bool {
        self.pause = self.pause.min(at_most);
        self.state = State::Waiting(Instant::now() + self.pause);
        self.pause = (2 * self.pause).min(at_most);
        if self.fault.is_none() {
            self.since = Instant::now();
        }
        self.fault.replace(fault.clone()) != Some(fault)
    }

    /// Takes note that what is being opened does not answer. True if that is news.
    pub(super) fn falls_silent(&mut self, fault: impl FnOnce(&T) -> String) -> bool {
        let Some(heard) = self.heard.take_if(|heard| heard.is_silent()) else { return false };
        if self.fault.is_none() {
            self.since = Instant::now().checked_sub(heard.silence()).unwrap_or(self.since);
        }
        self.fault = Some(fault(&self.config));
        true
    }

    pub(super) fn opened(&mut self, what: O) {
        self.state = State::Open(what);
        self.since = Instant::now();
        self.fault = None;
        self.pause = FIRST_PAUSE;
    }

    /// It has been tried.
    pub(super) fn is_settled(&self) -> bool {
        self.fault.is_some() || matches!(self.state, State::Open(_) | State::Leaving)
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(at) => Some(at),
            State::Opening => self.heard.as_ref().map(Heard::due),
            _ => None,
        }
    }
}
