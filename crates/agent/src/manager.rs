//! Messages to the service manager that started the agent (sd_notify(3)). They report start, reload, end, a line of state, and that the
//! main thread lives.
//!
//! A thread of its own sends the messages: a manager that does not read them delays no other thread. Without `NOTIFY_SOCKET` there is no
//! thread.

mod pulse;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

pub(crate) use pulse::Pulse;

/// Longest state in characters: `systemctl status` shows a line.
const STATE_LIMIT: usize = 400;

/// Longest wait of the agent's end for the last message to be taken.
const LAST: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
pub(crate) struct Manager {
    /// The main thread's signs of life.
    pub(crate) pulse: Arc<Pulse>,
    /// The thread that sends, and the sender of its messages.
    speaker: Option<(Sender<String>, JoinHandle<()>)>,
    /// The state that was sent last.
    told: String,
    /// Whether the manager was informed that the agent serves.
    ready: bool,
}

impl Manager {
    /// Begins to speak to the manager that the environment names. With a watchdog (`WATCHDOG_USEC`), `ask` asks the main thread again and
    /// again for a sign of life. The thread gives that sign by [`Pulse::answer`].
    pub(crate) fn start(ask: impl Fn() + Send + 'static) -> std::io::Result<Manager> {
        let pulse = Arc::new(Pulse::default());
        let mut manager =
            Manager { pulse: Arc::clone(&pulse), speaker: None, told: String::new(), ready: false };
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(manager);
        }
        let (messages, received) = channel();
        // Four signs of life in the time without one that the manager allows.
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 4);
        let every = every.filter(|every| !every.is_zero());
        let thread = std::thread::Builder::new().name("manager".to_owned());
        let thread = thread.spawn(move || speak(&received, every, &pulse, ask))?;
        manager.speaker = Some((messages, thread));
        Ok(manager)
    }

    /// The agent serves, with this state.
    pub(crate) fn ready(&mut self, state: String) {
        self.ready = true;
        self.told.clone_from(&state);
        self.say(format!("READY=1\nSTATUS={}", line(&state)));
    }

    /// The agent reads its configuration again.
    pub(crate) fn reloading(&self) {
        if self.ready {
            // Without a clock the manager gets the message all the same.
            let now = NotifyState::monotonic_usec_now().map(|now| now.to_string());
            self.say(format!("RELOADING=1\n{}", now.unwrap_or_default()));
        }
    }

    /// The agent has read its configuration again, and is in this state.
    pub(crate) fn reloaded(&mut self, state: String) {
        // An agent that still starts reports later that it serves.
        if self.ready {
            self.ready(state);
        }
    }

    /// The agent has begun to end.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=answers the requests in flight, then ends".to_owned());
    }

    /// The state has changed, or may have.
    pub(crate) fn state(&mut self, state: String) {
        if self.ready && self.told != state {
            self.told.clone_from(&state);
            self.say(format!("STATUS={}", line(&state)));
        }
    }

    fn say(&self, message: String) {
        if let Some((messages, _)) = &self.speaker {
            // A thread that is gone has panicked, which the log has.
            let _ = messages.send(message);
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let Some((messages, thread)) = self.speaker.take() else { return };
        drop(messages);
        // A manager that takes no message keeps no agent from ending.
        let until = Instant::now() + LAST;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sends the messages received, and signs of life in between, until all senders are gone.
fn speak(received: &Receiver<String>, every: Option<Duration>, pulse: &Pulse, ask: impl Fn()) {
    let mut next = Instant::now();
    loop {
        let message = match every {
            Some(_) => received.recv_timeout(next.saturating_duration_since(Instant::now())),
            None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match (message, every) {
            (Ok(message), _) => send(NotifyState::Custom(&message)),
            (Err(RecvTimeoutError::Timeout), Some(every)) => {
                if pulse.beats() {
                    send(NotifyState::Watchdog);
                }
                if pulse.may_ask() {
                    ask();
                }
                next = Instant::now() + every;
            }
            (Err(_), _) => return,
        }
    }
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!("the service manager was not told: {error}");
    }
}

/// The text as a line. An error may quote a line break of a file, after which the manager would read another message.
fn line(text: &str) -> String {
    text.chars().take(STATE_LIMIT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_one_line_and_short_whatever_a_file_has_in_it() {
        assert_eq!(line("2 volumes\nWATCHDOG=trigger\r\0"), "2 volumes WATCHDOG=trigger  ");
        assert_eq!(line(&"λ".repeat(2 * STATE_LIMIT)), "λ".repeat(STATE_LIMIT));
    }
}
