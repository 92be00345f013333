//! The socket of a connection under load.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

use parda_address::Uri;
use parda_dial::{Connected, DialError, Dialler};
use parda_nbd::Framing;
use parda_nbd::client::{Agreed, put_disconnect};
use parda_nbd::outbox::Outbox;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

/// Largest number of slices in one send.
const SLICES: usize = 256;

/// Size of the receive buffer in bytes. It fits into a processor's second-level cache.
const INBOX_LEN: usize = 256 << 10;

/// Socket buffer size that is requested for each direction, in bytes, so that a deep queue of small
/// requests fits. The system's limit (net.core.wmem_max) may be lower.
const SOCKET_BUFFER: usize = 1 << 20;

/// Socket of a connection, with the received bytes that wait to be parsed.
pub(crate) struct BufferedSocket {
    socket: OwnedFd,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
}

impl BufferedSocket {
    /// Connects and negotiates the export. `patience` bounds that, and later the wait for each reply.
    pub(crate) fn open(uri: &Uri, patience: Duration) -> Result<(Self, Agreed), DialError> {
        let Connected { socket, agreed, tls_end: _ } = Dialler::within(patience).dial(uri)?;
        let unix = uri.address.path().is_some() || uri.tls.is_some();
        prepare(&socket, unix, patience)?;
        Ok((Self { socket, inbox: vec![0; INBOX_LEN], start: 0, end: 0 }, agreed))
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.socket
    }

    /// Bytes that were received and not taken.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// Drops the first `n` bytes of the buffer.
    pub(crate) fn take(&mut self, n: usize) {
        self.start += n;
        if self.start >= self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives more bytes and appends them to the buffer. Returns whether some came: none were there, or none came in time. A closed connection is
    /// an error.
    pub(crate) fn receive(&mut self, wait: bool) -> io::Result<bool> {
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match recv(&self.socket, &mut self.inbox[self.end..], flags) {
            Ok((_, 0)) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok((_, n)) => {
                self.end += n;
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends as much of the outbox as the socket takes without blocking.
    pub(crate) fn send(&mut self, outbox: &mut Outbox<&[u8]>) -> io::Result<()> {
        while !outbox.is_empty() {
            let (mut slices, mut filled) = ([IoSlice::new(&[]); SLICES], 0);
            for (slot, slice) in slices.iter_mut().zip(outbox.slices()) {
                *slot = IoSlice::new(slice);
                filled += 1;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut nothing = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &slices[..filled], &mut nothing, flags) {
                Ok(n) => outbox.sent(n, |_| {}),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends NBD_CMD_DISC. A server that is gone by then needs none.
    pub(crate) fn disconnect(&mut self) {
        let mut out = Vec::new();
        put_disconnect(&mut out, Framing::Structured);
        // All earlier requests are answered: the socket takes so few bytes at once.
        let _ = send(&self.socket, &out, SendFlags::NOSIGNAL);
    }
}

/// Sets the buffer sizes and time-outs of a socket.
fn prepare(socket: &OwnedFd, unix: bool, patience: Duration) -> io::Result<()> {
    // A system with a lower limit is measured with smaller buffers.
    let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER);
    if unix {
        // TCP sizes its own receive buffer better than a constant would.
        let _ = sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER);
    }
    for direction in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, direction, Some(patience))?;
    }
    Ok(())
}
