#![forbid(unsafe_code)]
//! Connections to NBD servers: socket, TLS if the URI asks for it, and the handshake, all within a bounded time.
//!
//! Everything blocks. Call it from a thread that may wait.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use parda_address::{Address, Uri};
use parda_awake::Instant;
use parda_nbd::client::{Agreed, Handshake, HandshakeError, Step};
use parda_tls::CloseReason;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// Why TLS does not begin: a byte in plaintext where nothing but TLS may follow.
const INJECTED: &str =
    "the server, or somebody on the way, sent more in plaintext after it agreed to TLS";

/// Error text of a connection that ends during the handshake.
const CLOSED: &str = "it closed the connection before anything was agreed";

/// Time limits and options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Dialler {
    /// Time for the connection, TLS and the handshake in all. Only the look-up of a host's addresses may take longer.
    pub within: Duration,
    /// Time for each address of a host.
    pub each_address: Duration,
    /// As [`notice_silence`], of a TCP connection.
    pub patience: Option<Duration>,
    /// Whether the server is asked for extended headers.
    pub extended_headers: bool,
}

/// A connection in transmission: requests may be sent.
#[derive(Debug)]
pub struct Connected {
    /// The socket, blocking and without time-outs; of a connection with TLS, the end where its plaintext comes and
    /// goes.
    pub socket: OwnedFd,
    /// Size, abilities and block sizes of the export.
    pub agreed: Agreed,
    /// Why TLS on the connection has ended, when it has.
    pub tls_end: CloseReason,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The server cannot be reached, does not answer in time, or TLS fails.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// Server and client do not agree.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl DialError {
    /// Whether the time was over.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, DialError::Connect(error) if error.kind() == io::ErrorKind::TimedOut)
    }
}

impl Dialler {
    /// Connects, begins TLS and shakes hands within `limit` in all.
    #[must_use]
    pub fn within(limit: Duration) -> Dialler {
        Dialler { within: limit, each_address: limit, patience: None, extended_headers: false }
    }

    /// Connects to the export that a URI names.
    ///
    /// # Errors
    /// The server cannot be reached, does not answer in time, is not to be trusted, or has no such export.
    pub fn dial(&self, uri: &Uri) -> Result<Connected, DialError> {
        let until = Instant::now() + self.within;
        let socket = self.connect(&uri.address, until)?;
        let mut stream = Stream { socket, until, tls_end: CloseReason::default() };
        let mut handshake = match &uri.tls {
            None => Handshake::new(uri.export.clone()),
            Some(_) => Handshake::new_with_tls(uri.export.clone()),
        };
        if self.extended_headers {
            handshake = handshake.ask_extended_headers();
        }
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let agreed = loop {
            if let (Some(tls), true) = (&uri.tls, handshake.starts_tls()) {
                if !input.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, INJECTED).into());
                }
                let (socket, tls_end) = parda_tls::secure(tls, stream.socket, left(until)?)?;
                stream = Stream { socket, until, tls_end };
                handshake.secured(&mut out);
            }
            let step = handshake.advance(&input, &mut out)?;
            stream.send_all(&out)?;
            out.clear();
            match step {
                Step::Taken(n) => drop(input.drain(..n)),
                // A server does not speak first in transmission.
                Step::Transmission { taken, agreed } if taken == input.len() => break agreed,
                Step::Transmission { .. } => {
                    let why = "the server answers requests that were not sent";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
                }
                Step::Incomplete => stream.receive_some(&mut input, CLOSED)?,
            }
        };
        let Stream { socket, tls_end, .. } = stream;
        set_timeout(&socket, None)?;
        Ok(Connected { socket, agreed, tls_end })
    }

    /// Connects to a server, and closes the connection before a byte is sent.
    ///
    /// # Errors
    /// The server cannot be reached in time.
    pub fn reach(&self, address: &Address) -> io::Result<()> {
        self.connect(address, Instant::now() + self.within).map(drop)
    }

    fn connect(&self, address: &Address, until: Instant) -> io::Result<OwnedFd> {
        match address {
            Address::Unix(path) => {
                let address = SocketAddrUnix::new(path)?;
                let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
                loop {
                    // A server that accepts nobody and whose queue is full would hold up a connect without a
                    // time-out for ever.
                    set_timeout(&fd, Some(left(until)?))?;
                    match rustix::net::connect(&fd, &address) {
                        Ok(()) => return Ok(fd),
                        Err(error) if again(error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for candidate in (host.as_str(), *port).to_socket_addrs()? {
                    let within = left(until)?.min(self.each_address);
                    match self.connect_tcp(candidate, Instant::now() + within) {
                        Ok(fd) => return Ok(fd),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            // A URI names none.
            other => {
                let why = format!("{other} is of a server that does not speak NBD");
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }
        }
    }

    fn connect_tcp(&self, to: SocketAddr, until: Instant) -> io::Result<OwnedFd> {
        let stream = loop {
            match TcpStream::connect_timeout(&to, left(until)?) {
                // After a stop of this process, the call sees only that the time has passed.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                connected => break connected?,
            }
        };
        // Requests go out in one piece each.
        stream.set_nodelay(true)?;
        let fd = OwnedFd::from(stream);
        if let Some(patience) = self.patience {
            notice_silence(&fd, patience)?;
        }
        Ok(fd)
    }
}

/// Asks the kernel to close a TCP connection whose peer has been silent for this long. It sets keepalive probes, and a bound on
/// unacknowledged data.
///
/// # Errors
/// The socket is not TCP.
pub fn notice_silence(fd: &OwnedFd, patience: Duration) -> io::Result<()> {
    let third = (patience / 3).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, third)?;
    sockopt::set_tcp_keepintvl(fd, third)?;
    sockopt::set_tcp_keepcnt(fd, 2)?;
    let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(fd, millis)?)
}

/// The rest of the time. An error if there is none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(left) }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}

/// Whether to repeat a blocking call, if there is time: its time-out counts also while this process is stopped.
fn again(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::AGAIN | Errno::INPROGRESS | Errno::INTR)
}

fn set_timeout(fd: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    sockopt::set_socket_timeout(fd, Timeout::Recv, timeout)?;
    sockopt::set_socket_timeout(fd, Timeout::Send, timeout)?;
    Ok(())
}

/// A connected socket whose calls have to be over by a moment.
#[derive(Debug)]
pub struct Stream {
    /// The socket. Its calls block.
    pub socket: OwnedFd,
    /// When its calls have to be over. An error of a later one says so.
    pub until: Instant,
    /// Why TLS on the connection has ended, when it has.
    pub tls_end: CloseReason,
}

impl Stream {
    /// Sends what is given, however many calls that takes.
    ///
    /// # Errors
    /// The connection is lost, or the time was over.
    pub fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(left(self.until)?))?;
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Err(error) if again(error) => {}
                Err(error) => return Err(self.tls_end.explain(error.into())),
                Ok(sent) => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    /// Waits for bytes and appends them; `at_end` says what it means that the server has closed the connection.
    ///
    /// # Errors
    /// The connection is lost or closed, or the time was over.
    pub fn receive_some(&self, input: &mut Vec<u8>, at_end: &str) -> io::Result<()> {
        let mut chunk = [0; 64 << 10];
        loop {
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(left(self.until)?))?;
            let error = match rustix::net::recv(&self.socket, &mut chunk, RecvFlags::empty()) {
                Err(error) if again(error) => continue,
                Ok((0, _)) => io::Error::new(io::ErrorKind::UnexpectedEof, at_end),
                Ok((n, _)) => {
                    input.extend_from_slice(&chunk[..n]);
                    return Ok(());
                }
                Err(error) => error.into(),
            };
            return Err(self.tls_end.explain(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    /// Error text of a connection to a socket, which must fail soon.
    fn failure(path: &std::path::Path) -> String {
        failure_of(&format!("nbd+unix:///?socket={}", path.display()), SHORT)
    }

    fn failure_of(uri: &str, within: Duration) -> String {
        let uri: Uri = uri.parse().unwrap();
        let started = Instant::now();
        let error = Dialler::within(within).dial(&uri).err().unwrap().to_string();
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}: {error}", started.elapsed());
        error
    }

    #[test]
    fn a_server_that_accepts_and_says_nothing_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(failure(&path).contains("does not answer in time"));
    }

    #[test]
    fn a_server_that_accepts_nobody_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = SocketAddrUnix::new(&path).unwrap();
        let new_socket = |flags| {
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = new_socket(SocketFlags::CLOEXEC);
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        // Until nobody more can wait for it.
        let waiting: Vec<OwnedFd> = (0..100)
            .map_while(|_| {
                let fd = new_socket(SocketFlags::NONBLOCK);
                rustix::net::connect(&fd, &address).ok().map(|()| fd)
            })
            .collect();
        assert!(failure(&path).contains("does not answer in time"), "{} wait", waiting.len());
    }

    #[test]
    fn a_server_that_greets_a_byte_at_a_time_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
            // A greeting that never ends would do as well; this one is right as far as it goes.
            for byte in b"NBDMAGICIHAVEOPT" {
                std::thread::sleep(SHORT / 4);
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        });
        assert!(failure(&path).contains("does not answer in time"));
    }

    /// A server that has agreed to TLS, and then takes what comes without a word.
    #[test]
    fn a_server_that_stalls_in_the_tls_handshake_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(dir.path().join("ca-cert.pem"), params.self_signed(&key).unwrap().pem())
            .unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let heard = std::thread::spawn(move || {
            let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
            stream.read_exact(&mut [0; 4 + 16]).unwrap();
            stream.write_all(&0x3_e889_0455_65a9_u64.to_be_bytes()).unwrap();
            stream.write_all(&[0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).unwrap();
            heard
        });
        let uri = format!(
            "nbds+unix:///?socket={}&tls-certificates={}",
            path.display(),
            dir.path().display()
        );
        // Long enough to come that far on a busy machine.
        let error = failure_of(&uri, 10 * SHORT);
        assert!(error.contains("does not answer in time in the TLS handshake"), "{error}");
        // A handshake record, and not a word of NBD behind it.
        let heard = heard.join().unwrap();
        assert_eq!(heard.first(), Some(&22));
        assert!(!heard.windows(8).any(|w| w == b"IHAVEOPT"));
    }
}
