//! A message that waits in the socket, looked at before the library takes it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg,
};
use vhost::vhost_user::Error;
use vhost::vhost_user::message::{FrontendReq, VhostUserHeaderFlag};

use super::VERSION;

const NEED_REPLY: u32 = VhostUserHeaderFlag::NEED_REPLY.bits();

/// Header of a message that was not taken yet.
#[derive(Clone, Copy)]
pub(super) struct Next {
    number: u32,
    flags: u32,
    /// Bytes behind the header.
    size: u32,
}

impl Next {
    pub(super) fn is(self, message: FrontendReq) -> bool {
        self.number == message as u32
    }

    /// Whether the connection goes on though this message was refused: the front end has read of it, or need not know.
    pub(super) fn outlives(self, error: &Error, acknowledges: bool) -> bool {
        let ours = matches!(error, Error::InvalidOperation(_) | Error::ReqHandlerError(_));
        // Messages with an answer of their own have got none.
        let answers = [FrontendReq::GET_VRING_BASE, FrontendReq::GET_INFLIGHT_FD];
        let asks = self.flags & NEED_REPLY != 0;
        let told = acknowledges && asks && !answers.iter().any(|message| self.is(*message));
        ours && (told || self.is(FrontendReq::SET_CONFIG))
    }

    /// Whether the library refused this message of a queue because it lacks its descriptor. The library has then taken all of it and
    /// answered nothing. The sender gets an error then, if it asks.
    pub(super) fn lacks_descriptor(self, error: &Error) -> bool {
        let messages =
            [FrontendReq::SET_VRING_KICK, FrontendReq::SET_VRING_CALL, FrontendReq::SET_VRING_ERR];
        let whole = self.flags & !NEED_REPLY == VERSION && self.size as usize == size_of::<u64>();
        whole && matches!(error, Error::InvalidMessage) && messages.iter().any(|m| self.is(*m))
    }

    /// Refuses it, as the library does, if its sender asks.
    pub(super) fn refuse(self, socket: &UnixStream, acknowledges: bool) -> io::Result<bool> {
        let told = acknowledges && self.flags & NEED_REPLY != 0;
        if told {
            let flags = VERSION | VhostUserHeaderFlag::REPLY.bits();
            let mut answer = [self.number, flags, 8].map(u32::to_ne_bytes).concat();
            answer.extend(1u64.to_ne_bytes());
            let mut socket = socket;
            socket.write_all(&answer)?;
        }
        Ok(told)
    }
}

/// The next message, which is not taken. `None` if there is none any more.
pub(super) fn next_message(socket: &UnixStream) -> Option<Next> {
    let mut header = [0; 12];
    let (_, n) = recv(socket, &mut header, RecvFlags::PEEK | RecvFlags::WAITALL).ok()?;
    let [n0, n1, n2, n3, f0, f1, f2, f3, s0, s1, s2, s3] = header;
    (n == header.len()).then(|| Next {
        number: u32::from_ne_bytes([n0, n1, n2, n3]),
        flags: u32::from_ne_bytes([f0, f1, f2, f3]),
        size: u32::from_ne_bytes([s0, s1, s2, s3]),
    })
}

/// The descriptor of the next message, if that is SET_BACKEND_REQ_FD. The descriptor is read before the message is taken. The library keeps
/// it to itself, and has no call for the one message that we send there.
pub(super) fn channel(socket: &UnixStream, next: Next) -> Option<OwnedFd> {
    if !next.is(FrontendReq::SET_BACKEND_REQ_FD) {
        return None;
    }
    let mut header = [0; 4];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [io::IoSliceMut::new(&mut header)];
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut bytes, &mut ancillary, flags).ok()?;
    let all = !message.flags.contains(ReturnFlags::CTRUNC);
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().filter(|_| all),
        _ => None,
    })
}
