//! The log: text or JSON, one line an event, to standard error.
//!
//! Threads that carry IO log too, so that no call may wait. Lines go through a bounded queue to a
//! thread that writes them. Lines without room in the queue are dropped and counted. So are lines
//! that exceed a source's rate and lines that cannot be written. The counts are logged as soon as
//! possible.

mod filter;
mod limit;
mod lines;
mod priority;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use limit::{Limit, Throttle};
use lines::{Lines, Unwritten};
use priority::Prioritised;

/// Options of the log, which all commands have.
#[derive(Args)]
pub struct Options {
    /// What to log: a level (error, warn, info, debug) or a filter such as parda_block=debug
    #[arg(long = "log", global = true, env = "PARDA_LOG", default_value = filter::DEFAULT, value_name = "FILTER")]
    filter: String,
    /// How to write the log: text or JSON
    #[arg(
        long = "log-format",
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    format: Format,
}

/// The form of the log.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Lines for people to read
    Text,
    /// One JSON object a line
    Json,
}

/// Lines that wait for the thread that writes them. A line has some hundred bytes, so that this is
/// below a megabyte.
const QUEUE: usize = 4096;

/// Time between two looks for dropped lines.
const LOOK: Duration = Duration::from_secs(1);

/// The log of this process. Dropping it writes the queued lines, if a reader takes them within a
/// second.
pub(crate) struct Log {
    /// Ends the thread that reports dropped lines.
    end: Option<Sender<()>>,
    reporter: Option<JoinHandle<()>>,
    _writer: WorkerGuard,
}

/// Starts the log. Its filter hides nothing from `events`.
pub(crate) fn start(
    options: &Options,
    events: impl Layer<Registry> + Send + Sync,
) -> Result<Log, String> {
    let filter = filter::parse(&options.filter)?;
    let unwritten = Arc::new(Unwritten::default());
    let colours = std::io::stderr().is_terminal();
    let (queue, writer) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUE)
        .thread_name("log")
        .finish(Lines::new(std::io::stderr(), colours, Arc::clone(&unwritten)));
    let dropped = queue.error_counter();
    let limit = Arc::new(Limit::default());
    // Filtered events do not count towards the limits.
    let throttle = filter.and(Throttle(Arc::clone(&limit)));
    let lines = fmt::layer().with_ansi(colours).with_writer(queue);
    let lines = match options.format {
        Format::Text => {
            lines.with_target(false).map_event_format(Prioritised::of).with_filter(throttle).boxed()
        }
        Format::Json => {
            lines.json().map_event_format(Prioritised::of).with_filter(throttle).boxed()
        }
    };
    tracing_subscriber::registry().with(events).with(lines).init();

    let (end, ended) = channel();
    let reporter = std::thread::Builder::new().name("log-report".to_owned()).spawn(move || {
        let mut lost = Lost { dropped, told: 0 };
        while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            limit.report(Instant::now(), false);
            lost.report();
            unwritten.report();
        }
        limit.report(Instant::now(), true);
        lost.report();
    });
    let reporter = reporter.map_err(|e| format!("cannot start the log's thread: {e}"))?;
    Ok(Log { end: Some(end), reporter: Some(reporter), _writer: writer })
}

/// Prefix of an error that is written to standard error beside the log.
pub(crate) fn error_prefix() -> &'static str {
    if priority::journal() { priority::prefix(tracing::Level::ERROR) } else { "" }
}

/// Makes a panic of any thread an entry in the log. A message directly to standard error could wait
/// for a reader for ever.
pub fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return usual(panic);
        }
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let backtrace = std::backtrace::Backtrace::capture();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            tracing::error!(%backtrace, "thread {thread} {panic}");
        } else {
            tracing::error!("thread {thread} {panic}");
        }
    }));
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread only waits for `end`; the log has its panic, if any.
        let _ = self.reporter.take().map(JoinHandle::join);
    }
}

/// Number of lines for which the queue had no room.
struct Lost {
    dropped: ErrorCounter,
    told: usize,
}

impl Lost {
    /// Logs how many lines were dropped, unless that line is dropped too.
    fn report(&mut self) {
        let before = self.dropped.dropped_lines();
        let lines = before - self.told;
        if lines == 0 {
            return;
        }
        tracing::warn!(
            lines,
            "lines of this log were dropped: standard error was not read in time"
        );
        if self.dropped.dropped_lines() == before {
            self.told = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Writes nothing before it is let.
    struct Stuck {
        lines: SyncSender<Vec<u8>>,
        go: Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _ = self.go.recv();
            self.lines.send(line.to_vec()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_dropped_is_counted_and_told_when_there_is_room_again() {
        let (lines, written) = sync_channel(1000);
        let (let_go, go) = channel();
        let (queue, guard) =
            NonBlockingBuilder::default().buffered_lines_limit(8).finish(Stuck { lines, go });
        let dropped = queue.error_counter();
        let mut lost = Lost { dropped: dropped.clone(), told: 0 };
        let lines = fmt::layer().with_ansi(false).with_writer(queue);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            (0..100).for_each(|i| tracing::info!("line {i}"));
            let missing = dropped.dropped_lines();
            assert!((90..=92).contains(&missing), "{missing} of 100");
            // The writer has taken its first line, or is about to make room by that.
            if missing < 92 {
                lost.report();
                assert_eq!(lost.told, 0, "there was no room for that line either");
            }
            drop(let_go);
            while lost.told == 0 {
                lost.report();
                std::thread::yield_now();
            }
        });
        drop(guard);
        let last = String::from_utf8(written.try_iter().last().unwrap()).unwrap();
        assert!(last.contains("lines of this log were dropped"), "{last}");
        assert!(last.ends_with(&format!("lines={}\n", lost.told)), "{last}");
    }
}
