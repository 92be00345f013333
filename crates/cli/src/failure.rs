//! Failure of a command.

/// Failure of a command: message and exit status.
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Something went wrong: exit status 1.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// The request is impossible: exit status 2, as for a wrong option.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// Exit status of a program that an interrupt ended.
    pub(crate) fn interrupted() -> Failure {
        Failure { message: String::new(), code: 130 }
    }

    /// Exit status 1 without a message: the output names the failure already.
    pub(crate) fn silent() -> Failure {
        Failure { message: String::new(), code: 1 }
    }
}

impl From<parda_config::Error> for Failure {
    fn from(error: parda_config::Error) -> Failure {
        Failure::usage(error.to_string())
    }
}
