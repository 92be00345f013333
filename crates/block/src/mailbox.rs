//! How others speak to a volume's thread without it ever waiting for them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;

use parda_address::Address;
use parda_control::{Config, ConfigError, Report, Tenant, TenantId, TenantPart, Totals, VmConfig};
use parda_dial::Connected;
use parda_disk::status::Descriptor;
use rustix::event::{EventfdFlags, eventfd};

use crate::backend::Failure;
use crate::backend::disk_file::Look;
use crate::disk_id::DiskId;
use crate::front::GuestMail;
use crate::listen::Bound;
use crate::open_disk::OpenDisk;
use crate::stats::Stats;

/// What the other hosts say: their reports added up, and what each says of its tenants.
pub type Heard = (Totals, Vec<TenantPart>);

/// What a host publishes.
pub type Said = (Report, Vec<TenantPart>);

/// Command to a volume's thread.
pub(crate) enum Command {
    /// End a period; `None` if the exchange is silent.
    Tick { peers: Option<Box<Heard>>, answer: SyncSender<Said> },
    /// Change the tenants that the volume knows.
    SetTenants { tenants: Vec<(TenantId, Tenant)>, answer: SyncSender<()> },
    /// Tell what was counted.
    Stats { answer: SyncSender<Stats> },
    /// Change a disk's part; answers with what is in force, `None` if there is no such disk.
    SetVm { disk: DiskId, vm: VmConfig, answer: SyncSender<Option<VmConfig>> },
    /// Serve one more disk.
    AddDisk { disk: Box<OpenDisk>, answer: SyncSender<DiskId> },
    /// Answer what is in flight of a disk, for at most this long, and close its connections. The
    /// sender of `gone` is used when nothing is left of it, and dropped if there is no such disk.
    RemoveDisk { disk: DiskId, within: Duration, gone: SyncSender<()> },
    /// Offer a disk at these addresses; connections stay. `false` if there is no such disk.
    SetListen { disk: DiskId, listen: Vec<Address>, answer: SyncSender<bool> },
    /// Accepts connections of one more listener.
    AddListener { address: Address, bound: Bound, answer: SyncSender<io::Result<()>> },
    /// Accept no more connections there, and close the socket; connections stay.
    RemoveListener { address: Address, answer: SyncSender<bool> },
    /// Change the law; answers with what is in force.
    SetControl { config: Config, answer: SyncSender<Result<Config, ConfigError>> },
    /// A connection to an NBD server is open (again).
    Reconnected { disk: DiskId, lane: usize, connected: Connected },
    /// Extents of the range of this BLOCK_STATUS request.
    Mapped { key: usize, extents: Result<Vec<Descriptor>, Failure> },
    /// State of the files behind these disks, as far as it is to be had, and the number of the look.
    Looked { number: u64, looks: Vec<(DiskId, Option<Look>)> },
    /// Something of the control socket of a guest.
    Guest(GuestMail),
    /// Answer what is in flight, then end, at the latest after this long.
    Shutdown { within: Duration },
}

/// The side that asks.
#[derive(Clone, Debug)]
pub(crate) struct Mailer {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
}

/// The side that is asked.
pub(crate) struct Mailbox {
    commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
}

pub(crate) fn mailbox() -> io::Result<(Mailer, Mailbox)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, commands) = channel();
    Ok((Mailer { commands: sender, bell: Arc::clone(&bell) }, Mailbox { commands, bell }))
}

impl Mailer {
    /// Sends a command; `false` if nobody is there to take it.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok() && self.ring()
    }

    fn ring(&self) -> bool {
        // It cannot be full: that would take 2⁶⁴ − 1 unanswered rings.
        rustix::io::write(&*self.bell, &1u64.to_ne_bytes()).is_ok()
    }
}

impl Mailbox {
    /// A descriptor that is readable when there is mail.
    pub(crate) fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// The next command. After [`Mailbox::silence`], to be asked until it answers `None`.
    pub(crate) fn next(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    /// Makes the bell unreadable until the next command.
    pub(crate) fn silence(&self) {
        let mut count = [0; 8];
        // Nothing to read means that it is silent already.
        let _ = rustix::io::read(&*self.bell, &mut count);
    }

    /// Rings the bell, so that nobody waits for it any more.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}
