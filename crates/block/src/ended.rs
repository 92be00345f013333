//! End of a volume, and its reason.

/// How a volume ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainedVolume {
    /// Requests that could not be answered in time.
    pub unanswered: usize,
}

/// Reason why a volume's thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Drained(DrainedVolume),
    /// A panic, with this message. All that was in flight has come back from the kernel, and all
    /// files and sockets are closed: the volume can be started again. A file whose file system does not answer is closed later, and its
    /// locks are there until then.
    Crashed(String),
    /// Its ring failed, for this reason. What was in flight may still change the disks, so that
    /// they must not be served before this process has ended.
    Broken(String),
}
