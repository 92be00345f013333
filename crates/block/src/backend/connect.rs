//! Connecting to another NBD server. This blocks, so it never runs on a volume's thread.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parda_nbd::client::{Agreed, Handshake, Step, put_disconnect};
use parda_nbd::uri::{Address, Uri};
use parda_nbd::wire::DEFAULT_MAX_PAYLOAD;
use parda_nbd::{BlockSizes, TransmissionFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};

use super::{Geometry, OpenError};

/// How long a server may take for each step of connecting, and for the acknowledgement of a
/// packet later: one that vanished without a word must not hold IOs for ever.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that is open and agreed, before its thread has it.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) agreed: Agreed,
    pub(crate) uri: Uri,
    pub(crate) geometry: Geometry,
}

/// Connects to the server.
pub(crate) fn open(uri: &Uri, read_only: bool) -> Result<Opened, OpenError> {
    let (fd, agreed) = connect(uri)?;
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
    let [min, preferred, max] =
        [agreed.blocks.min(), agreed.blocks.preferred(), agreed.blocks.max()];
    let blocks = BlockSizes::from_wire([min, preferred, max.min(DEFAULT_MAX_PAYLOAD)])
        .unwrap_or(agreed.blocks);
    let geometry = Geometry {
        size: agreed.size,
        blocks,
        trim: has(TransmissionFlags::SEND_TRIM),
        write_zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
        fast_zero: has(TransmissionFlags::SEND_FAST_ZERO),
        cache: has(TransmissionFlags::SEND_CACHE),
    };
    Ok(Opened { fd, agreed, uri: uri.clone(), geometry })
}

/// Connects and agrees on an export.
pub(crate) fn connect(uri: &Uri) -> Result<(OwnedFd, Agreed), OpenError> {
    let address = uri.address.to_string();
    let io_error = |source| OpenError::Connect { address: address.clone(), source };
    let fd = dial(&uri.address).map_err(io_error)?;
    set_timeout(&fd, Some(TIMEOUT)).map_err(io_error)?;
    let mut handshake = Handshake::new(uri.export.clone());
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let agreed = loop {
        let step = handshake
            .advance(&input, &mut out)
            .map_err(|source| OpenError::Handshake { address: address.clone(), source })?;
        send_all(&fd, &out).map_err(io_error)?;
        out.clear();
        match step {
            Step::Taken(n) => drop(input.drain(..n)),
            // Nothing may follow: a server does not speak first in transmission.
            Step::Transmission { agreed, .. } => break agreed,
            Step::Incomplete => receive_some(&fd, &mut input).map_err(io_error)?,
        }
    };
    set_timeout(&fd, None).map_err(io_error)?;
    Ok((fd, agreed))
}

fn dial(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => Ok(UnixStream::connect(path)?.into()),
        Address::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for candidate in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&candidate, TIMEOUT) {
                    Ok(socket) => {
                        socket.set_nodelay(true)?;
                        sockopt::set_socket_keepalive(&socket, true)?;
                        sockopt::set_tcp_user_timeout(&socket, TIMEOUT.as_millis() as u32)?;
                        return Ok(socket.into());
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn set_timeout(fd: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    sockopt::set_socket_timeout(fd, Timeout::Recv, timeout)?;
    sockopt::set_socket_timeout(fd, Timeout::Send, timeout)?;
    Ok(())
}

fn send_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

fn receive_some(fd: &OwnedFd, input: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 4096];
    match rustix::net::recv(fd, &mut chunk, RecvFlags::empty())?.0 {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => {
            input.extend_from_slice(&chunk[..n]);
            Ok(())
        }
    }
}

/// Says goodbye on a connection that is not used any more.
pub(crate) fn disconnect(fd: &OwnedFd) {
    let mut out = Vec::new();
    put_disconnect(&mut out);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // Best effort: a server notices a closed socket as well.
    let _ = rustix::net::send(fd, &out, flags);
}
