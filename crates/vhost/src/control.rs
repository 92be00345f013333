//! The control socket of one front end.
//!
//! A message may be half there, or its sender may never read the answer: [`serve`] blocks, and is for a thread of its own. Messages on
//! queues go to their holder as an [`Order`], which is done when the front end gets its answer.

mod next;
mod order;

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use parda_disk::Geometry;
use rustix::io::dup2;
use rustix::net::{SendFlags, send};
use vhost::vhost_user::message::{
    FrontendReq, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use self::next::{channel, next_message};
pub use self::order::{Order, OrderDone};
use crate::blk::{CONFIG, config, features};
use crate::inflight::{self, Log};
use crate::{MAX_QUEUE_SIZE, MAX_QUEUES, MAX_REGIONS, Memory, MemoryRegion, Vring};

/// Number of the message to a front end that the configuration space has changed.
const CONFIG_CHANGE: u32 = 2;

/// Version 1 of the protocol, in the flags of a message.
const VERSION: u32 = 1;

/// Tells a front end that the disk has another size. Does not block; a front end that does not listen is not told.
///
/// # Errors
/// It does not listen.
pub fn tell_of_new_size(channel: impl AsFd) -> io::Result<()> {
    let mut message = [0; 12];
    message[..4].copy_from_slice(&CONFIG_CHANGE.to_ne_bytes());
    message[4..8].copy_from_slice(&VERSION.to_ne_bytes());
    send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Serves a front end until it goes. `disk` is the disk at the start, whose abilities stay. `order` has an order done; it
/// answers `None` when nobody has the queues any more. `keep` says whether a descriptor may be kept.
///
/// # Errors
/// Why the connection ended, unless the front end closed it.
pub fn serve(
    socket: UnixStream,
    disk: Geometry,
    order: impl FnMut(Order) -> Option<OrderDone>,
    keep: impl Fn(BorrowedFd<'_>) -> bool,
) -> Result<()> {
    let spare = socket.try_clone().map_err(Error::SocketError)?;
    let handler = Handler {
        disk,
        order,
        keep,
        event_idx: false,
        is_write_through: false,
        enabled: true,
        acknowledges: false,
        resumed: false,
        memory: Arc::default(),
        log: None,
        queues: Vec::new(),
    };
    let handler = Arc::new(Mutex::new(handler));
    let mut requests = match next_message(&spare) {
        Some(first) if !BEGINNINGS.iter().any(|message| first.is(*message)) => {
            resume(&socket, &handler)?
        }
        _ => BackendReqHandler::from_stream(socket, Arc::clone(&handler)),
    };
    loop {
        let next = next_message(&spare);
        let channel = next.and_then(|next| channel(&spare, next));
        let refused = match requests.handle_request() {
            Ok(()) => None,
            Err(Error::Disconnected) => return Ok(()),
            Err(error) => Some(error),
        };
        let mut handler = handler.lock().map_err(|_| Error::BackendInternalError)?;
        if let Some(error) = refused {
            let acknowledges = handler.acknowledges;
            let goes_on = match next {
                Some(next) if next.lacks_descriptor(&error) => {
                    next.refuse(&spare, acknowledges).map_err(Error::SocketError)?
                }
                next => next.is_some_and(|next| next.outlives(&error, acknowledges)),
            };
            if !goes_on {
                return Err(error);
            }
            handler.order(Order::Refused(error.to_string()))?;
        }
        if let Some(channel) = channel
            && (handler.keep)(channel.as_fd())
        {
            handler.order(Order::Channel(channel))?;
        }
    }
}

/// First messages of front ends that begin with a handshake.
const BEGINNINGS: [FrontendReq; 2] = [FrontendReq::GET_FEATURES, FrontendReq::SET_OWNER];

/// Handles the messages of a front end that goes on where it was with a device before this one. QEMU 7.2 does so while its guest has not
/// started the disk: the features negotiated then are sent in its place.
fn resume<O, K>(
    socket: &UnixStream,
    handler: &Arc<Mutex<Handler<O, K>>>,
) -> Result<BackendReqHandler<Mutex<Handler<O, K>>>>
where
    O: FnMut(Order) -> Option<OrderDone>,
    K: Fn(BorrowedFd<'_>) -> bool,
{
    let (ours, theirs) = UnixStream::pair().map_err(Error::SocketError)?;
    let mut requests = BackendReqHandler::from_stream(theirs, Arc::clone(handler));
    handler.lock().map_err(|_| Error::BackendInternalError)?.resumed = true;
    // The features of virtio follow, when the guest starts the disk. Answers are for nobody.
    let common = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    for (message, features) in [
        (FrontendReq::GET_FEATURES, None),
        (FrontendReq::SET_FEATURES, Some(common)),
        (FrontendReq::GET_PROTOCOL_FEATURES, None),
        (FrontendReq::SET_PROTOCOL_FEATURES, Some(offered().bits())),
    ] {
        let body: Vec<u8> = features.map_or_else(Vec::new, |bits| bits.to_ne_bytes().into());
        let mut bytes = [message as u32, VERSION, body.len() as u32].map(u32::to_ne_bytes).concat();
        bytes.extend(body);
        (&ours).write_all(&bytes).map_err(Error::SocketError)?;
        requests.handle_request()?;
    }
    // SAFETY: the descriptor is that of `theirs`, which `requests` owns and keeps open; it is not closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(requests.as_raw_fd()) });
    dup2(socket, &mut place).map_err(|error| Error::SocketError(error.into()))?;
    Ok(requests)
}

/// A queue as far as it was set up.
#[derive(Clone, Copy, Default)]
struct Setup {
    size: u16,
    base: u16,
    descriptors: u64,
    available: u64,
    used: u64,
}

struct Handler<O, K> {
    disk: Geometry,
    order: O,
    keep: K,
    event_idx: bool,
    /// The guest did not take [`VIRTIO_BLK_F_FLUSH`]: a write is durable when it is answered (virtio 1.2, 5.2.6.2).
    is_write_through: bool,
    /// Queues begin enabled: the front end knows nothing of protocol features.
    enabled: bool,
    /// The front end knows how to ask whether a message was refused.
    acknowledges: bool,
    /// The front end goes on where it was with a device before this one.
    resumed: bool,
    memory: Arc<Memory>,
    log: Option<Log>,
    queues: Vec<Setup>,
}

fn refuse<T>(why: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(why))
}

/// A part of guest memory, as a message has it.
fn region(place: &VhostUserMemoryRegion, file: File) -> MemoryRegion {
    let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *place;
    MemoryRegion {
        guest: guest_phys_addr,
        size: memory_size,
        user: user_addr,
        offset: mmap_offset,
        file,
    }
}

/// Checks that a descriptor is an eventfd. To wait for another file, or to write to it, could block.
fn eventfd(file: File) -> Result<OwnedFd> {
    let fd = OwnedFd::from(file);
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match std::fs::read_link(name) {
        Ok(kind) if kind.as_os_str() == "anon_inode:[eventfd]" => Ok(fd),
        _ => refuse("a queue's descriptor is not an eventfd"),
    }
}

impl<O: FnMut(Order) -> Option<OrderDone>, K: Fn(BorrowedFd<'_>) -> bool> Handler<O, K> {
    fn order(&mut self, order: Order) -> Result<OrderDone> {
        (self.order)(order).ok_or(Error::Disconnected)
    }

    fn queue(&mut self, index: u32) -> Result<&mut Setup> {
        let index = index as usize;
        if index >= usize::from(MAX_QUEUES) {
            return refuse("the disk has no queue of this number");
        }
        if index >= self.queues.len() {
            self.queues.resize(index + 1, Setup::default());
        }
        Ok(&mut self.queues[index])
    }

    fn kept(&self, file: File) -> Result<OwnedFd> {
        let fd = eventfd(file)?;
        self.check_kept(&fd)?;
        Ok(fd)
    }

    fn check_kept(&self, fd: impl AsFd) -> Result<()> {
        let keeps = (self.keep)(fd.as_fd());
        let why = "the agent has no descriptor left: raise LimitNOFILE=";
        keeps.then_some(()).ok_or(Error::InvalidOperation(why))
    }

    /// Has the guest go on with this memory.
    fn change_memory(&mut self, memory: Memory, shrinks: bool) -> Result<()> {
        let memory = Arc::new(memory);
        self.order(Order::Memory { memory: Arc::clone(&memory), shrinks })?;
        self.memory = memory;
        Ok(())
    }
}

impl<O: FnMut(Order) -> Option<OrderDone>, K: Fn(BorrowedFd<'_>) -> bool>
    VhostUserBackendReqHandlerMut for Handler<O, K>
{
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        refuse("RESET_DEVICE was not offered")
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features(&self.disk) | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, wanted: u64) -> Result<()> {
        if wanted & !self.get_features()? != 0 {
            return refuse("a feature was not offered");
        }
        self.event_idx = wanted & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        self.is_write_through = wanted & (1 << VIRTIO_BLK_F_FLUSH) == 0;
        self.enabled = wanted & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = regions.iter().zip(files).map(|(place, file)| region(place, file));
        let regions: Vec<MemoryRegion> = regions.collect();
        regions.iter().try_for_each(|region| self.check_kept(&region.file))?;
        let memory = Memory::map(regions).map_err(Error::ReqHandlerError)?;
        self.change_memory(memory, true)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).unwrap_or(0);
        if !size.is_power_of_two() || size > MAX_QUEUE_SIZE {
            return refuse("the size of a queue must be a power of two up to 1024");
        }
        self.queue(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        if self.resumed && self.memory.is_empty() {
            return refuse(
                "older QEMU (7.2) tells a guest's memory once, and the agent before this one had heard it: shut the guest down \
                 and start it",
            );
        }
        let memory = Arc::clone(&self.memory);
        let place = |user| match memory.guest_address(user) {
            Some(address) => Ok(address.0),
            None => refuse("a queue is not in the guest's memory"),
        };
        let places = (place(descriptors)?, place(available)?, place(used)?);
        let queue = self.queue(index)?;
        (queue.descriptors, queue.available, queue.used) = places;
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index)?.base = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let setup = self.queue(index)?;
        let before = setup.base;
        let base = match self.order(Order::Stop { queue: index as u16 })? {
            OrderDone::Stopped(base) => base,
            // The queue was never started.
            OrderDone::Done | OrderDone::Geometry(_) => before,
        };
        self.queue(index)?.base = base;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let kick = fd.map(|file| self.kept(file)).transpose()?;
        let (event_idx, enabled, is_write_through) =
            (self.event_idx, self.enabled, self.is_write_through);
        let setup = *self.queue(index.into())?;
        if setup.size == 0 || setup.descriptors == setup.available {
            return refuse("a queue is started before its size and place are known");
        }
        let log = self.log.as_ref().map(|log| log.of_queue(index.into(), setup.size));
        if let Some(None) = log {
            return refuse("the log of unanswered requests has no room for this queue");
        }
        let places = [setup.descriptors, setup.available, setup.used];
        let vring = Vring::at(setup.size, places, event_idx)
            .map_err(|_| Error::InvalidOperation("the place of a queue is not aligned"))?;
        let vring = vring.beginning(setup.base, log.flatten()).write_through(is_write_through);
        let vring = Box::new(vring);
        self.order(Order::Start { queue: index.into(), vring, kick })?;
        if enabled {
            self.order(Order::Enable { queue: index.into(), on: true })?;
        }
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.queue(index.into())?;
        let call = fd.map(|file| self.kept(file)).transpose()?;
        self.order(Order::Call { queue: index.into(), call }).map(drop)
    }

    fn set_vring_err(&mut self, _index: u8, _fd: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(offered())
    }

    fn set_protocol_features(&mut self, wanted: u64) -> Result<()> {
        if wanted & !offered().bits() != 0 {
            return refuse("a protocol feature was not offered");
        }
        self.acknowledges = wanted & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MAX_QUEUES.into())
    }

    fn set_vring_enable(&mut self, index: u32, on: bool) -> Result<()> {
        self.queue(index)?;
        self.order(Order::Enable { queue: index as u16, on }).map(drop)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        if let OrderDone::Geometry(now) = self.order(Order::Geometry)? {
            self.disk.size = now.size;
        }
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        match config(&self.disk)[..CONFIG].get(range) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => refuse("the configuration space has 256 bytes"),
        }
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        refuse("nothing of the configuration space can be written")
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        refuse("GPU_SET_SOCKET was not offered")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        refuse("GET_SHARED_OBJECT was not offered")
    }

    fn get_inflight_fd(&mut self, of: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let Some(bytes) = inflight::bytes(of.num_queues, of.queue_size) else {
            return refuse("a log of unanswered requests for too many queues, or for none");
        };
        let file = inflight::create(bytes).map_err(Error::ReqHandlerError)?;
        Ok((VhostUserInflight::new(bytes, 0, of.num_queues, of.queue_size), file))
    }

    fn set_inflight_fd(&mut self, of: &VhostUserInflight, file: File) -> Result<()> {
        self.check_kept(&file)?;
        let log = Log::map(file, of.mmap_offset, of.num_queues, of.queue_size);
        self.log = Some(log.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        place: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.check_kept(&file)?;
        let memory = self.memory.with(region(place, file)).map_err(Error::ReqHandlerError)?;
        self.change_memory(memory, false)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, place: &VhostUserSingleMemoryRegion) -> Result<()> {
        match self.memory.without(place.guest_phys_addr, place.memory_size, place.user_addr) {
            Some(memory) => self.change_memory(memory, true),
            None => refuse("the guest's memory has no such region"),
        }
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        refuse("SET_DEVICE_STATE_FD was not offered")
    }

    fn check_device_state(&mut self) -> Result<()> {
        refuse("CHECK_DEVICE_STATE was not offered")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        refuse("GET_SHMEM_CONFIG was not offered")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        refuse("SET_LOG_BASE was not offered")
    }
}

/// Protocol features of ours. The library adds REPLY_ACK.
fn offered() -> VhostUserProtocolFeatures {
    use VhostUserProtocolFeatures as P;
    P::MQ | P::CONFIG | P::BACKEND_REQ | P::REPLY_ACK | P::INFLIGHT_SHMFD | P::CONFIGURE_MEM_SLOTS
}
