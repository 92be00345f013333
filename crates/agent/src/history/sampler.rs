//! The thread that looks once a second.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::History;
use crate::status::Detail;
use crate::views::Views;

/// A thread that fills the history until it is dropped.
pub(crate) struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread that takes a sample of all volumes at once and then each second. `also`: what else it does then.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        views: Arc<Views>,
        history: Arc<History>,
        also: impl Fn() + Send + 'static,
    ) -> io::Result<Sampler> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn(move || {
            let mut looked = Instant::now();
            let calendar = &history.calendar;
            let timeout = Err(RecvTimeoutError::Timeout);
            // The first look is immediate, so that the first request finds volumes.
            loop {
                let status = views.counters(Detail::Counters);
                let second = calendar.now() / 1000;
                let before = std::mem::replace(&mut looked, Instant::now());
                let seconds = looked.saturating_duration_since(before).as_secs_f64();
                // The second that has just ended.
                history.take(second - 1, seconds, &status);
                also();
                if stopped.recv_timeout(calendar.until_next_second()) != timeout {
                    return;
                }
            }
        })?;
        Ok(Sampler { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
