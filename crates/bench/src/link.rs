//! A connection: its socket, its handshake, and the bytes that came and wait to be taken.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parda_nbd::Framing;
use parda_nbd::client::{Agreed, Handshake, HandshakeError, Step, put_disconnect};
use parda_nbd::uri::{Address, Uri, UriTls};
use parda_tls::End;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use crate::outbox::{Outbox, SLICES};

/// Room for the replies of one receive. All of it stays in the processor's second-level cache.
const INBOX_LEN: usize = 256 << 10;

/// Asked of the kernel for each direction, so that a deep queue of small requests fits; the
/// system's limit (net.core.wmem_max) may give less.
const SOCKET_BUFFER: usize = 1 << 20;

/// Why a connection cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket.
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    /// The server does not agree.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

pub(crate) struct Link {
    socket: OwnedFd,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    tls_end: End,
}

/// What a receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Some,
    /// Nothing was there, or nothing came in time.
    Nothing,
    Closed,
}

impl Link {
    /// Connects and agrees on the export.
    pub(crate) fn open(uri: &Uri, patience: Duration) -> Result<(Self, Agreed), ConnectError> {
        let socket = dial(&uri.address, patience)?;
        prepare(&socket, matches!(uri.address, Address::Unix(_)), patience)?;
        let inbox = vec![0; INBOX_LEN];
        let mut link = Self { socket, inbox, start: 0, end: 0, tls_end: End::default() };
        let mut handshake = match &uri.tls {
            None => Handshake::new(uri.export.clone()),
            Some(_) => Handshake::new_with_tls(uri.export.clone()),
        };
        let mut out = Vec::new();
        loop {
            out.clear();
            if let (Some(tls), true) = (&uri.tls, handshake.starts_tls()) {
                link = link.secured(tls, patience)?;
                handshake.secured(&mut out);
            }
            let step = handshake.advance(link.bytes(), &mut out)?;
            link.send_all(&out)?;
            match step {
                Step::Taken(n) => link.take(n),
                Step::Transmission { taken, agreed } => {
                    link.take(taken);
                    return Ok((link, agreed));
                }
                Step::Incomplete => match link.receive(true)? {
                    Received::Some => {}
                    Received::Nothing => return Err(io::Error::from(ErrorKind::TimedOut).into()),
                    Received::Closed => {
                        let closed = io::Error::from(ErrorKind::UnexpectedEof);
                        return Err(link.tls_end.explain(closed).into());
                    }
                },
            }
        }
    }

    /// The same inside of TLS.
    fn secured(self, tls: &UriTls, patience: Duration) -> io::Result<Self> {
        if !self.bytes().is_empty() {
            let why = "the server, or somebody on the way, sent more in plaintext after it agreed \
                       to TLS";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        let (socket, tls_end) = parda_tls::secure(tls, self.socket, patience)?;
        prepare(&socket, true, patience)?;
        Ok(Self { socket, tls_end, ..self })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// What was received and not taken.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// Drops the first `n` bytes.
    pub(crate) fn take(&mut self, n: usize) {
        self.start += n;
        if self.start >= self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives more bytes behind those that wait.
    pub(crate) fn receive(&mut self, wait: bool) -> io::Result<Received> {
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match recv(&self.socket, &mut self.inbox[self.end..], flags) {
            Ok((_, 0)) => Ok(Received::Closed),
            Ok((_, n)) => {
                self.end += n;
                Ok(Received::Some)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends of the outbox what the socket takes without waiting.
    pub(crate) fn send(&mut self, outbox: &mut Outbox, data: &[u8]) -> io::Result<()> {
        while !outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = outbox.fill(data, &mut slices);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut nothing = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &slices[..filled], &mut nothing, flags) {
                Ok(n) => outbox.sent(n),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Says goodbye. A server that is gone by then needs none.
    pub(crate) fn disconnect(&mut self) {
        let mut out = Vec::new();
        put_disconnect(&mut out, Framing::Structured);
        let _ = self.send_all(&out);
    }

    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = send(&self.socket, bytes, SendFlags::NOSIGNAL)?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

/// Sets the buffers and time-outs of a socket.
fn prepare(socket: &OwnedFd, unix: bool, patience: Duration) -> io::Result<()> {
    // A system that gives less is measured with less.
    let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER);
    if unix {
        // TCP sizes its own receive buffer, better than a constant would.
        let _ = sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER);
    }
    for direction in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, direction, Some(patience))?;
    }
    Ok(())
}

fn dial(address: &Address, patience: Duration) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => Ok(UnixStream::connect(path)?.into()),
        Address::Tcp { host, port } => {
            let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
            for candidate in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&candidate, patience) {
                    Ok(socket) => {
                        socket.set_nodelay(true)?;
                        return Ok(socket.into());
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}
