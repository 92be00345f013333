//! Connecting to another NBD server. This blocks, for a bounded time, so it never runs on a
//! volume's thread.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use parda_nbd::client::{Agreed, Handshake, Step, put_disconnect};
use parda_nbd::uri::{Address, Uri, UriTls};
use parda_nbd::wire::DEFAULT_MAX_PAYLOAD;
use parda_nbd::{BlockSizes, Framing, TransmissionFlags};
use parda_tls::End;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Geometry, NbdOptions, OpenError};

/// How long connecting and agreeing may take in all, however slowly the server speaks.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Bytes in plaintext where nothing but TLS may follow.
const INJECTED: &str =
    "the server, or somebody on the way, sent more in plaintext after it agreed to TLS";

/// How long one address of a server may take to be connected to.
const ADDRESS_WITHIN: Duration = Duration::from_secs(5);

/// A connection that is open and agreed.
pub(crate) struct Connected {
    pub(crate) fd: OwnedFd,
    pub(crate) agreed: Agreed,
    /// Why TLS on it has ended, when it has.
    pub(crate) tls_end: End,
}

/// A server with its first connection, before its thread has it.
pub(crate) struct Opened {
    pub(crate) connected: Connected,
    pub(crate) uri: Uri,
    pub(crate) options: NbdOptions,
    pub(crate) geometry: Geometry,
}

/// Connects to the server.
pub(crate) fn open(uri: &Uri, options: NbdOptions, read_only: bool) -> Result<Opened, OpenError> {
    let connected = connect(uri, options)?;
    let agreed = &connected.agreed;
    let has = |flag| agreed.flags.contains(flag);
    if !read_only {
        let address = uri.address.to_string();
        if has(TransmissionFlags::READ_ONLY) {
            return Err(OpenError::ReadOnly(format!("the NBD export {}", uri.export)));
        }
        if !has(TransmissionFlags::SEND_FLUSH) {
            return Err(OpenError::NoFlush(address));
        }
    }
    if options.connections > 1 && !has(TransmissionFlags::CAN_MULTI_CONN) {
        tracing::warn!(
            server = %uri.address, connections = options.connections,
            "the NBD server does not say that its connections share their data: one is used"
        );
    }
    let [min, preferred, max] =
        [agreed.blocks.min(), agreed.blocks.preferred(), agreed.blocks.max()];
    let blocks = BlockSizes::from_wire([min, preferred, max.min(DEFAULT_MAX_PAYLOAD)])
        .unwrap_or(agreed.blocks);
    let geometry = Geometry {
        align: blocks.min(),
        size: agreed.size,
        blocks,
        trim: has(TransmissionFlags::SEND_TRIM),
        write_zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
        fast_zero: has(TransmissionFlags::SEND_FAST_ZERO),
        cache: has(TransmissionFlags::SEND_CACHE),
    };
    Ok(Opened { connected, uri: uri.clone(), options, geometry })
}

/// Connects to the server of a disk and closes the connection again.
///
/// # Errors
/// Why the disk could not be served.
pub fn try_server(uri: &Uri, options: NbdOptions, read_only: bool) -> Result<(), OpenError> {
    let opened = open(uri, options, read_only)?;
    disconnect(&opened.connected.fd, opened.connected.agreed.framing);
    Ok(())
}

/// Whether a server that agreed on `now` can take the place of one that agreed on `before`.
/// Clients were told of the old one's size and abilities, and hold requests made for them.
pub(crate) fn compatible(before: &Agreed, now: &Agreed) -> Result<(), String> {
    use TransmissionFlags as Flags;
    if now.size < before.size {
        return Err(format!("it has {} bytes where it had {}", now.size, before.size));
    }
    let read_only = |agreed: &Agreed| agreed.flags.contains(Flags::READ_ONLY);
    if read_only(now) && !read_only(before) {
        return Err("it is read-only now".to_owned());
    }
    let needed = [
        (Flags::SEND_FLUSH, "FLUSH"),
        (Flags::SEND_FUA, "FUA"),
        (Flags::SEND_TRIM, "TRIM"),
        (Flags::SEND_WRITE_ZEROES, "WRITE_ZEROES"),
        (Flags::SEND_FAST_ZERO, "FAST_ZERO"),
        (Flags::SEND_CACHE, "CACHE"),
        (Flags::CAN_MULTI_CONN, "CAN_MULTI_CONN"),
    ];
    for (flag, name) in needed {
        if before.flags.contains(flag) && !now.flags.contains(flag) {
            return Err(format!("it does not offer {name} any more"));
        }
    }
    if before.framing == Framing::Extended && now.framing != Framing::Extended {
        return Err("it does not offer extended headers any more".to_owned());
    }
    if before.allocation.is_some() && now.allocation.is_none() {
        return Err("it does not offer block status any more".to_owned());
    }
    if now.blocks.min() > before.blocks.min() || now.blocks.max() < before.blocks.max() {
        return Err("its block sizes are narrower than they were".to_owned());
    }
    Ok(())
}

/// Connects and agrees on an export.
pub(crate) fn connect(uri: &Uri, options: NbdOptions) -> Result<Connected, OpenError> {
    connect_within(uri, options, CONNECT_WITHIN)
}

fn connect_within(
    uri: &Uri,
    options: NbdOptions,
    within: Duration,
) -> Result<Connected, OpenError> {
    let address = uri.address.to_string();
    let until = Instant::now() + within;
    let io_error = |source| OpenError::Connect { address: address.clone(), source };
    let socket = dial(&uri.address, options, until).map_err(io_error)?;
    let mut socket = Socket { fd: socket, until, tls_end: End::default() };
    let handshake = match &uri.tls {
        None => Handshake::new(uri.export.clone()),
        Some(_) => Handshake::new_with_tls(uri.export.clone()),
    };
    let mut handshake = handshake.ask_extended_headers();
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let agreed = loop {
        if let (Some(tls), true) = (&uri.tls, handshake.starts_tls()) {
            if !input.is_empty() {
                return Err(io_error(io::Error::new(io::ErrorKind::InvalidData, INJECTED)));
            }
            socket = socket.secured(tls).map_err(io_error)?;
            handshake.secured(&mut out);
        }
        let step = handshake
            .advance(&input, &mut out)
            .map_err(|source| OpenError::Handshake { address: address.clone(), source })?;
        socket.send_all(&out).map_err(io_error)?;
        out.clear();
        match step {
            Step::Taken(n) => drop(input.drain(..n)),
            // Nothing may follow: a server does not speak first in transmission.
            Step::Transmission { taken, agreed } if taken == input.len() => break agreed,
            Step::Transmission { .. } => {
                let why = "the server answers requests that were not sent";
                return Err(io_error(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            Step::Incomplete => socket.receive_some(&mut input).map_err(io_error)?,
        }
    };
    set_timeout(&socket.fd, None).map_err(io_error)?;
    Ok(Connected { fd: socket.fd, agreed, tls_end: socket.tls_end })
}

fn dial(address: &Address, options: NbdOptions, until: Instant) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => {
            let address = SocketAddrUnix::new(path)?;
            let fd = socket(AddressFamily::UNIX)?;
            // A server that accepts nobody, and has a full queue of those who wait, would hold up
            // a connect without a time-out for ever.
            set_timeout(&fd, Some(left(until)?))?;
            rustix::net::connect(&fd, &address).map_err(too_slow)?;
            Ok(fd)
        }
        Address::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for candidate in (host.as_str(), *port).to_socket_addrs()? {
                match dial_tcp(candidate, options, left(until)?.min(ADDRESS_WITHIN)) {
                    Ok(fd) => return Ok(fd),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn dial_tcp(to: SocketAddr, options: NbdOptions, within: Duration) -> io::Result<OwnedFd> {
    let fd = socket(if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    set_timeout(&fd, Some(within))?;
    rustix::net::connect(&fd, &to).map_err(too_slow)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    // A host that vanished is noticed without a request, and packets that nobody acknowledges are
    // given up when requests are.
    sockopt::set_socket_keepalive(&fd, true)?;
    sockopt::set_tcp_keepidle(&fd, (options.timeout / 2).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(&fd, (options.timeout / 6).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(&fd, 3)?;
    let millis = u32::try_from(options.timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&fd, millis)?;
    Ok(fd)
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// What is left of the time, if any is.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(left) }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}

/// The end of a blocking call by its time-out, in words that say so.
fn too_slow(error: rustix::io::Errno) -> io::Error {
    use rustix::io::Errno;
    match error {
        Errno::AGAIN | Errno::INPROGRESS => timed_out(),
        error => error.into(),
    }
}

fn set_timeout(fd: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    sockopt::set_socket_timeout(fd, Timeout::Recv, timeout)?;
    sockopt::set_socket_timeout(fd, Timeout::Send, timeout)?;
    Ok(())
}

/// A socket during the handshake, all of which has to be done by a moment.
struct Socket {
    fd: OwnedFd,
    until: Instant,
    tls_end: End,
}

impl Socket {
    /// The same inside of TLS.
    fn secured(self, tls: &UriTls) -> io::Result<Self> {
        let (fd, tls_end) = parda_tls::secure(tls, self.fd, left(self.until)?)?;
        Ok(Self { fd, tls_end, ..self })
    }

    fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            sockopt::set_socket_timeout(&self.fd, Timeout::Send, Some(left(self.until)?))?;
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.tls_end.explain(too_slow(error))),
                Ok(sent) => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    fn receive_some(&self, input: &mut Vec<u8>) -> io::Result<()> {
        let mut chunk = [0; 4096];
        sockopt::set_socket_timeout(&self.fd, Timeout::Recv, Some(left(self.until)?))?;
        match rustix::net::recv(&self.fd, &mut chunk, RecvFlags::empty()) {
            Ok((0, _)) => Err(self.tls_end.explain(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it closed the connection before anything was agreed",
            ))),
            Ok((n, _)) => {
                input.extend_from_slice(&chunk[..n]);
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(self.tls_end.explain(too_slow(error))),
        }
    }
}

/// Says goodbye on a connection that is not used any more.
pub(crate) fn disconnect(fd: &OwnedFd, framing: Framing) {
    let mut out = Vec::new();
    put_disconnect(&mut out, framing);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // Best effort: a server notices a closed socket as well.
    let _ = rustix::net::send(fd, &out, flags);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    /// How connecting to a socket fails, which must be soon.
    fn failure(path: &std::path::Path) -> String {
        failure_of(&format!("nbd+unix:///?socket={}", path.display()))
    }

    fn failure_of(uri: &str) -> String {
        let uri: Uri = uri.parse().unwrap();
        let started = Instant::now();
        let error = connect_within(&uri, NbdOptions::default(), SHORT).err().unwrap().to_string();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}: {error}", started.elapsed());
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
        let error = failure_of(&uri);
        assert!(error.contains("does not answer in time in the TLS handshake"), "{error}");
        // A handshake record, and not a word of NBD behind it.
        let heard = heard.join().unwrap();
        assert_eq!(heard.first(), Some(&22));
        assert!(!heard.windows(8).any(|w| w == b"IHAVEOPT"));
    }

    #[test]
    fn a_server_takes_the_place_of_one_that_offered_no_more() {
        let flags = TransmissionFlags(0).with(TransmissionFlags::SEND_FLUSH, true);
        let blocks = BlockSizes::DEFAULT;
        let before =
            Agreed { size: 4096, flags, blocks, framing: Framing::Extended, allocation: Some(1) };
        assert_eq!(compatible(&before, &before), Ok(()));
        let more = flags.with(TransmissionFlags::SEND_FUA, true);
        let larger = Agreed { size: 8192, flags: more, allocation: Some(7), ..before };
        assert_eq!(compatible(&before, &larger), Ok(()));
        assert!(compatible(&larger, &before).is_err());
        let read_only = flags.with(TransmissionFlags::READ_ONLY, true);
        for worse in [
            Agreed { size: 4095, ..before },
            Agreed { flags: TransmissionFlags(0), ..before },
            Agreed { flags: read_only, ..before },
            Agreed { allocation: None, ..before },
            Agreed { framing: Framing::Structured, ..before },
            Agreed { blocks: BlockSizes::with_min(4096).unwrap(), ..before },
        ] {
            assert!(compatible(&before, &worse).is_err(), "{worse:?}");
        }
    }
}
