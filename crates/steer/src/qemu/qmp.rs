//! One conversation over a QMP socket: connected, asked, disconnected, within a bounded time and with bounded answers.
//!
//! A QMP socket serves one client at a time, and others wait. So a conversation is short.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parda_awake::Instant;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

/// Time limit of a conversation.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// Longest line of an answer, in bytes. A VM of a hundred disks with backing files sends some hundred kilobytes.
const LONGEST: usize = 4 << 20;

/// Reason why a conversation failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// Nobody listens, or the connection breaks.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no whole answer in time.
    #[error(
        "does not answer within {} ms: another client may hold the socket, as libvirt holds its own",
        PATIENCE.as_millis()
    )]
    Silent,
    /// The other side speaks no QMP.
    #[error("is no QMP socket: {0}")]
    NotQmp(String),
    /// QEMU refuses a command.
    #[error("QEMU refuses {command}: {why}")]
    Refused {
        /// Name of the command.
        command: String,
        /// Reason that QEMU gives.
        why: String,
    },
}

impl QmpError {
    /// Whether the QEMU has ended.
    #[must_use]
    pub fn gone(&self) -> bool {
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, QmpError::Io(error) if kinds.contains(&error.kind()))
    }
}

/// A conversation, which ends when this is dropped, and gives up after [`PATIENCE`] in all.
pub struct Talk {
    stream: UnixStream,
    until: Instant,
    received: Vec<u8>,
}

impl Talk {
    /// Begins a conversation over a socket.
    ///
    /// # Errors
    /// There is no QEMU, or it does not answer in time.
    pub fn begin(socket: &Path) -> Result<Talk, QmpError> {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match connect(socket) {
                Err(error) if again(&error) && Instant::now() < until => {}
                Err(error) if again(&error) => return Err(QmpError::Silent),
                connected => break connected?,
            }
        };
        let mut talk = Talk { stream, until, received: Vec::new() };
        if talk.line()?.get("QMP").is_none() {
            return Err(QmpError::NotQmp("it does not greet as one".to_owned()));
        }
        talk.ask(&[("qmp_capabilities", json!({}))])?;
        Ok(talk)
    }

    /// Answers to commands with their arguments, in their order.
    ///
    /// # Errors
    /// QEMU does not answer in time, or refuses a command.
    pub fn ask(&mut self, commands: &[(&str, Value)]) -> Result<Vec<Value>, QmpError> {
        let lines = commands.iter().map(|(command, arguments)| {
            format!("{}\n", json!({ "execute": command, "arguments": arguments }))
        });
        let request = lines.collect::<String>();
        let mut rest = request.as_bytes();
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(sent) => rest = &rest[sent..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        commands.iter().map(|(command, _)| self.answer(command)).collect()
    }

    fn left(&self) -> Result<Duration, QmpError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(QmpError::Silent) } else { Ok(left) }
    }

    /// The next line, which is a JSON object.
    fn line(&mut self) -> Result<Value, QmpError> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.received[seen..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=seen + end).collect();
                let no = |error: serde_json::Error| QmpError::NotQmp(error.to_string());
                return serde_json::from_slice(&line).map_err(no);
            }
            seen = self.received.len();
            if seen > LONGEST {
                let why = format!("it sends a line of more than {} MiB", LONGEST >> 20);
                return Err(QmpError::NotQmp(why));
            }
            self.stream.set_read_timeout(Some(self.left()?))?;
            let mut part = [0; 1 << 16];
            match self.stream.read(&mut part) {
                Ok(0) => return Err(QmpError::NotQmp("it closes the connection".to_owned())),
                Ok(n) => self.received.extend_from_slice(&part[..n]),
                Err(error) if again(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The answer to a command. Events that come meanwhile are skipped.
    fn answer(&mut self, command: &str) -> Result<Value, QmpError> {
        loop {
            self.left()?;
            let mut line = self.line()?;
            if let Some(answer) = line.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = line.get("error") {
                let why = short(error.get("desc").and_then(Value::as_str).unwrap_or("no reason"));
                return Err(QmpError::Refused { command: command.to_owned(), why });
            }
        }
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Without a time-out, a full queue of clients would hold up the call for as long as it is full.
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&fd, &address)?;
    Ok(fd.into())
}

/// Whether to repeat a call, if there is time. The call's own time-out counts also while this process is stopped.
fn again(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// A text of QEMU, cut where it is longer than any name.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(256).collect()
}
