//! A disk or listener on its way in and out.

use std::sync::Arc;
use std::time::Duration;

use parda_awake::Instant;
use parda_block::{DiskConfig, DiskId};
use parda_tls::Acceptor;

use super::shared::{Heard, Owner};
use crate::config::Listener;
use crate::news::is_news;
use crate::status::DiskState;

/// First and longest pause between attempts to open a disk or a listener.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Longest pause if another disk of this agent has to be closed first.
const BRIEF_PAUSE: Duration = Duration::from_secs(1);

/// TLS that a listener shows, if it has any.
pub(super) type Certificate = Option<Arc<Acceptor>>;
pub(super) type DiskMember = Member<DiskConfig, DiskId>;
pub(super) type ListenerMember = Member<Listener, Certificate>;

/// A disk or listener that the keeper keeps open.
#[derive(Clone)]
pub(super) struct Member<T, O> {
    pub(super) owner: Owner,
    pub(super) config: T,
    pub(super) state: State<O>,
    pub(super) since: Instant,
    pub(super) fault: Option<String>,
    pub(super) pause: Duration,
    /// While it is opened and does not count as silent: when its file system has answered last.
    pub(super) heard: Option<Heard>,
    /// The process has no descriptors for it.
    pub(super) no_room: bool,
    /// A listener: its disks were not all tried.
    pub(super) too_early: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum State<O> {
    /// To be opened then.
    Waiting(Instant),
    Opening,
    Open(O),
    Leaving,
}

/// Position of a member. Members are in the order of their owners, which are assigned in turn.
pub(super) fn position<T, O>(members: &[Member<T, O>], owner: Owner) -> Option<usize> {
    members.binary_search_by_key(&owner, |member| member.owner).ok()
}

impl<T, O> Member<T, O> {
    pub(super) fn new(config: T) -> Self {
        let now = Instant::now();
        let (owner, state) = (Owner::new(), State::Waiting(now));
        let (fault, heard, no_room, too_early) = (None, None, false, false);
        Member {
            owner,
            config,
            state,
            since: now,
            fault,
            pause: FIRST_PAUSE,
            heard,
            no_room,
            too_early,
        }
    }

    /// Notes that it could not be opened. True if that is news.
    pub(super) fn failed(&mut self, fault: String) -> bool {
        self.wait(fault, LAST_PAUSE)
    }

    /// Notes that another disk still holds its data. True if that is news.
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
        is_news(&mut self.fault, &fault)
    }

    /// Notes that the file system of a disk being opened does not answer. True if that is news.
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
        self.no_room = false;
        self.since = Instant::now();
        self.fault = None;
        self.pause = FIRST_PAUSE;
    }

    /// Whether the first attempt to open it has ended.
    pub(super) fn is_settled(&self) -> bool {
        self.fault.is_some() || matches!(self.state, State::Open(_) | State::Leaving)
    }

    /// Time of the next step for this member.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(at) => Some(at).filter(|_| !self.too_early),
            State::Opening => self.heard.as_ref().and_then(Heard::due),
            _ => None,
        }
    }
}

impl DiskMember {
    /// The disk in its ring, while it is open.
    pub(super) fn id(&self) -> Option<DiskId> {
        if let State::Open(id) = self.state { Some(id) } else { None }
    }

    /// The state that clients see.
    pub(super) fn shown(&self) -> DiskState {
        match self.state {
            State::Open(_) => DiskState::Serving,
            State::Leaving => DiskState::Leaving,
            State::Opening if self.fault.is_none() => DiskState::Opening,
            State::Waiting(_) | State::Opening => DiskState::Waiting,
        }
    }
}
