//! State that the connections of a volume share.

use super::answers::Answers;
use super::budget::Budget;
use crate::reactor::Reactor;

/// Memory and answers that the connections of a volume share.
pub(super) struct Shared {
    pub(super) budget: Budget,
    pub(super) answers: Answers,
}

/// The same, with the volume's ring and buffers.
pub(super) struct Work<'a> {
    pub(super) io: &'a mut Reactor,
    pub(super) budget: &'a mut Budget,
    pub(super) answers: &'a mut Answers,
}

impl Shared {
    pub(super) fn with<'a>(&'a mut self, io: &'a mut Reactor) -> Work<'a> {
        Work { io, budget: &mut self.budget, answers: &mut self.answers }
    }
}
