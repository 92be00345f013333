//! Failure of a command.

/// Failure of a command: message and exit status.
#[derive(Debug)]
pub struct Failure {
    /// Text for standard error; empty if all was printed already.
    pub message: String,
    /// Exit status of the process.
    pub code: u8,
}

impl Failure {
    /// Something went wrong: exit status 1.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// The request is impossible: exit status 2, as for a wrong option.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// It was stopped: the exit status of a program that an interrupt ended.
    #[must_use]
    pub fn interrupted() -> Failure {
        Failure { message: String::new(), code: 130 }
    }

    /// Everything has been said already: exit status 1.
    #[must_use]
    pub fn silent() -> Failure {
        Failure { message: String::new(), code: 1 }
    }
}

impl From<parda_config::Error> for Failure {
    fn from(error: parda_config::Error) -> Failure {
        Failure::usage(error.to_string())
    }
}
