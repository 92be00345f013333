//! Messages from the thread of a control socket to the volume's thread.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use parda_disk::Geometry;
use parda_vhost::control::{self, Order, OrderDone};

use crate::descriptors::is_reserved;
use crate::mailbox::{Mailer, News};

/// Message from one control socket.
pub(crate) struct GuestMail {
    /// Key of the guest.
    pub(crate) guest: usize,
    /// Told apart from others that had its key.
    pub(crate) serial: u64,
    pub(crate) what: GuestNews,
}

pub(crate) enum GuestNews {
    /// The front end wants something, and waits until it is done.
    Order(Order, SyncSender<OrderDone>),
    /// The front end is gone; why, unless it closed its connection.
    Gone(Option<String>),
}

/// A control thread needs little stack: messages have 4 KiB at most.
const STACK: usize = 256 << 10;

/// Serves a control socket on a thread of its own. Half a message, or an answer that is not read, delays only that thread.
pub(super) fn serve(
    fd: OwnedFd,
    disk: Geometry,
    (guest, serial): (usize, u64),
    mailer: Mailer,
) -> std::io::Result<()> {
    let thread = thread::Builder::new().name("parda-vhost".to_owned()).stack_size(STACK);
    let run = move || {
        let send = |what| mailer.send(News::Guest(GuestMail { guest, serial, what }));
        let order = |order| {
            let (done, is_done) = sync_channel(1);
            send(GuestNews::Order(order, done)).then(|| is_done.recv().ok()).flatten()
        };
        let keep = |fd: std::os::fd::BorrowedFd<'_>| !is_reserved(&fd);
        let ended = control::serve(UnixStream::from(fd), disk, order, keep);
        send(GuestNews::Gone(ended.err().map(|error| error.to_string())));
    };
    thread.spawn(run).map(drop)
}
