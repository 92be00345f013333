//! The priority of each line, where the journal reads standard error: sd-daemon(3).

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Whether standard error is the journal's: systemd names the device and inode that it gave to the service.
pub(crate) fn journal() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let own = std::io::stderr().as_fd().try_clone_to_owned();
    let own = own.and_then(|own| File::from(own).metadata());
    own.is_ok_and(|own| named.to_str() == Some(&format!("{}:{}", own.dev(), own.ino())))
}

/// Prefix of a line of this level: the priority of syslog(3) in angle brackets.
pub(crate) fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Writes events, with their priority before them if the journal reads them.
pub(super) struct Prioritised<F> {
    format: F,
    journal: bool,
}

impl<F> Prioritised<F> {
    pub(super) fn of(format: F) -> Prioritised<F> {
        Prioritised { format, journal: journal() }
    }
}

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.journal {
            writer.write_str(prefix(*event.metadata().level()))?;
        }
        self.format.format_event(context, writer, event)
    }
}
