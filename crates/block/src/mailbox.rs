//! How others speak to a volume's thread without it ever waiting for them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parda_dial::Connected;
use parda_disk::Failure;
use parda_disk::status::Descriptor;
use rustix::event::{EventfdFlags, eventfd};

use crate::backend::disk_file::Look;
use crate::disk_id::DiskId;
use crate::front::GuestMail;

/// What a thread of the volume has found or done for its main one.
pub(crate) enum News {
    /// A connection to an NBD server is open (again).
    Reconnected { disk: DiskId, lane: usize, connected: Connected },
    /// Extents of the range of this BLOCK_STATUS request.
    Mapped { key: usize, extents: Result<Vec<Descriptor>, Failure> },
    /// State of the files behind these disks, where it is known, and the number of the look.
    Looked { number: u64, looks: Vec<(DiskId, Option<Look>)> },
    /// Something of the control socket of a guest.
    Guest(GuestMail),
}

/// The side that tells.
#[derive(Clone, Debug)]
pub(crate) struct Mailer {
    news: Sender<News>,
    bell: Arc<OwnedFd>,
}

/// The side that is told.
pub(crate) struct Mailbox {
    news: Receiver<News>,
    bell: Arc<OwnedFd>,
}

pub(crate) fn mailbox() -> io::Result<(Mailer, Mailbox)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, news) = channel();
    Ok((Mailer { news: sender, bell: Arc::clone(&bell) }, Mailbox { news, bell }))
}

impl Mailer {
    /// Sends news; `false` if nobody is there to take it.
    pub(crate) fn send(&self, news: News) -> bool {
        self.news.send(news).is_ok() && self.ring()
    }

    /// Has the volume's thread look at all that it was sent.
    pub(crate) fn ring(&self) -> bool {
        // The counter cannot overflow: that would take 2⁶⁴ − 1 unanswered rings.
        rustix::io::write(&*self.bell, &1u64.to_ne_bytes()).is_ok()
    }
}

impl Mailbox {
    /// A descriptor that is readable when there is mail.
    pub(crate) fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// The next news. After [`Mailbox::silence`], to be asked until it answers `None`.
    pub(crate) fn next(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Makes the bell unreadable until it is rung again.
    pub(crate) fn silence(&self) {
        let mut count = [0; 8];
        // Nothing to read means that it is silent already.
        let _ = rustix::io::read(&*self.bell, &mut count);
    }
}
