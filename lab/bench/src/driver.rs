//! A front end of vhost-user with the driver of a guest: the other side of [`parda_vhost`].
//!
//! A [`Driver`] has queues of slots. A slot has room for a request and its data, and is used again when its request is
//! answered.

use std::fs::File;
use std::io;
use std::num::Wrapping;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use parda_vhost::blk::{HEADER, SECTOR};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{
    Frontend, VhostUserFrontend, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC, VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT,
    VRING_DESC_F_WRITE,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap, MmapRegion,
};
use vmm_sys_util::eventfd::EventFd;

mod regions;

/// Shape of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Queues that the driver has.
    pub queues: u16,
    /// Requests that each queue can have at a time, up to 128.
    pub slots: u16,
    /// Room for data of each of them, in bytes.
    pub data: u32,
    /// Chains are in tables of their own.
    pub indirect: bool,
    /// Kicks and calls are asked for by index.
    pub event_idx: bool,
}

/// Operation of a guest on its disk. Ranges are in the units of virtio, sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read so many bytes into the slot.
    Read {
        /// First sector of the range.
        sector: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// Write so many bytes of the slot.
    Write {
        /// First sector of the range.
        sector: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// Make all that was written durable.
    Flush,
    /// Read the serial number into the slot.
    Serial,
    /// Give up the contents of sectors.
    Discard {
        /// First sector of the range.
        sector: u64,
        /// Its length in sectors.
        count: u32,
    },
    /// Have sectors read as zeroes.
    WriteZeroes {
        /// First sector of the range.
        sector: u64,
        /// Its length in sectors.
        count: u32,
        /// They may become holes.
        unmap: bool,
    },
}

/// Descriptors of each slot.
const CHAIN: u16 = 8;

/// Where the guest's memory begins.
const BASE: u64 = 0x10_0000;

#[derive(Debug)]
struct Line {
    size: u16,
    descriptors: u64,
    available: u64,
    used: u64,
    headers: u64,
    tables: u64,
    data: u64,
    next: Wrapping<u16>,
    published: Wrapping<u16>,
    seen: Wrapping<u16>,
    kick: EventFd,
    call: EventFd,
}

/// A front end that is connected.
pub struct Driver {
    frontend: Frontend,
    shape: Shape,
    memory: GuestMemoryMmap,
    /// The file of the guest's memory.
    pub file: File,
    lines: Vec<Line>,
    /// Where the device says that the configuration space has changed.
    pub channel: Option<OwnedFd>,
    /// Features that the device offers.
    pub features: u64,
    /// The device logs unanswered requests, in this file.
    logs: bool,
    log: Option<(VhostUserInflight, File)>,
}

/// How many requests of a queue were answered, modulo 2¹⁶.
fn used(memory: &GuestMemoryMmap, line: &Line) -> io::Result<u16> {
    let used = memory.load(GuestAddress(line.used + 2), Ordering::Acquire);
    used.map(u16::from_le).map_err(other)
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl Driver {
    /// Connects, shares memory and starts the queues.
    ///
    /// # Errors
    /// The socket, or what the device answers.
    pub fn connect(path: &Path, shape: Shape) -> io::Result<Driver> {
        Driver::over(UnixStream::connect(path)?, shape)
    }

    /// As [`Driver::connect`], on a socket that is connected.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn over(socket: UnixStream, shape: Shape) -> io::Result<Driver> {
        let frontend = Frontend::from_stream(socket, shape.queues.into());
        let (slots, size) = (u64::from(shape.slots), (shape.slots * CHAIN).next_power_of_two());
        // Rings, then headers of 32 bytes with their status, tables, data.
        let rings = 0x1_0000;
        let data = (slots * 32 + slots * u64::from(CHAIN) * 16).next_multiple_of(4096) + rings;
        let part = data + (slots * u64::from(shape.data)).next_multiple_of(4096);
        let file = File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, part * u64::from(shape.queues))?;
        let all = (part * u64::from(shape.queues)) as usize;
        let region = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), all);
        let region = GuestRegionMmap::new(region.map_err(other)?, GuestAddress(BASE));
        let region = region.ok_or_else(|| io::Error::other("the memory is too large"))?;
        let memory = GuestMemoryMmap::from_regions(vec![region]).map_err(other)?;
        let mut lines = Vec::new();
        for queue in 0..u64::from(shape.queues) {
            let start = BASE + queue * part;
            lines.push(Line {
                size,
                descriptors: start,
                available: start + 0x8000,
                used: start + 0xa000,
                headers: start + rings,
                tables: start + rings + slots * 32,
                data: start + data,
                next: Wrapping(0),
                published: Wrapping(0),
                seen: Wrapping(0),
                kick: EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
                call: EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
            });
        }
        let mut driver = Driver {
            frontend,
            shape,
            memory,
            file,
            lines,
            channel: None,
            features: 0,
            logs: false,
            log: None,
        };
        driver.negotiate().map_err(other)?;
        driver.start().map_err(other)?;
        Ok(driver)
    }

    /// The features that it takes.
    fn wanted(&self) -> u64 {
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let mut wanted = protocol | 1 << VIRTIO_F_VERSION_1;
        if self.shape.event_idx {
            wanted |= 1 << VIRTIO_RING_F_EVENT_IDX;
        }
        if self.shape.indirect {
            wanted |= 1 << VIRTIO_RING_F_INDIRECT_DESC;
        }
        // Those of the disk are all taken.
        (wanted | self.features & 0xff_ffff) & self.features
    }

    fn negotiate(&mut self) -> vhost::Result<()> {
        self.frontend.set_owner()?;
        self.features = self.frontend.get_features()?;
        let offered = self.frontend.get_protocol_features()?;
        type P = VhostUserProtocolFeatures;
        let used = offered
            & (P::MQ
                | P::CONFIG
                | P::REPLY_ACK
                | P::BACKEND_REQ
                | P::INFLIGHT_SHMFD
                | P::CONFIGURE_MEM_SLOTS);
        self.logs = used.contains(P::INFLIGHT_SHMFD);
        self.frontend.set_protocol_features(used)?;
        self.frontend.set_features(self.wanted())?;
        if used.contains(P::REPLY_ACK) {
            self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        if used.contains(P::BACKEND_REQ)
            && let Ok((ours, theirs)) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        {
            self.frontend.set_backend_request_fd(&theirs)?;
            self.channel = Some(ours);
        }
        Ok(())
    }

    fn start(&mut self) -> vhost::Result<()> {
        let regions = self.memory.iter().map(|region| VhostUserMemoryRegionInfo {
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        });
        self.frontend.set_mem_table(&regions.collect::<Vec<_>>())?;
        if self.logs && self.log.is_none() {
            let size = self.lines.first().map_or(0, |line| line.size);
            let shape = VhostUserInflight::new(0, 0, self.shape.queues, size);
            self.log = Some(self.frontend.get_inflight_fd(&shape)?);
        }
        if let Some((shape, file)) = &self.log {
            self.frontend.set_inflight_fd(shape, file.as_raw_fd())?;
        }
        for queue in 0..self.lines.len() {
            self.start_queue(queue)?;
        }
        Ok(())
    }

    /// Begins anew, as a guest without flushes: firmware, or a driver that is old or small.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn forget_flushes(&mut self) -> io::Result<()> {
        for queue in 0..self.shape.queues {
            self.stop(queue)?;
        }
        self.frontend.set_features(self.wanted() & !(1 << VIRTIO_BLK_F_FLUSH)).map_err(other)?;
        (0..self.lines.len()).try_for_each(|queue| self.start_queue(queue)).map_err(other)
    }

    /// Connects again, to a device that has begun anew. It gets the log of the requests that are unanswered.
    ///
    /// # Errors
    /// The socket, or what the device answers.
    pub fn reconnect(&mut self, path: &Path) -> io::Result<()> {
        // The former connection ends first.
        self.frontend = Frontend::from_stream(UnixStream::pair()?.0, 0);
        let socket = UnixStream::connect(path)?;
        self.frontend = Frontend::from_stream(socket, self.shape.queues.into());
        self.negotiate().map_err(other)?;
        self.start().map_err(other)
    }

    /// Where this process has guest memory.
    fn host(&self, address: u64) -> u64 {
        self.memory.get_host_address(GuestAddress(address)).map_or(0, |place| place as u64)
    }

    fn start_queue(&mut self, queue: usize) -> vhost::Result<()> {
        let line = &self.lines[queue];
        let place = VringConfigData {
            queue_max_size: line.size,
            queue_size: line.size,
            flags: 0,
            desc_table_addr: self.host(line.descriptors),
            used_ring_addr: self.host(line.used),
            avail_ring_addr: self.host(line.available),
            log_addr: None,
        };
        self.frontend.set_vring_num(queue, line.size)?;
        // As QEMU does where a device has gone without a word.
        let used = used(&self.memory, line).unwrap_or(0);
        self.frontend.set_vring_base(queue, used)?;
        self.frontend.set_vring_addr(queue, &place)?;
        self.frontend.set_vring_call(queue, &line.call)?;
        self.frontend.set_vring_kick(queue, &line.kick)?;
        self.frontend.set_vring_enable(queue, true)
    }

    /// Stops a queue; returns the number of the request that would be next.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn stop(&mut self, queue: u16) -> io::Result<u32> {
        self.frontend.set_vring_enable(queue.into(), false).map_err(other)?;
        self.frontend.get_vring_base(queue.into()).map_err(other)
    }

    /// Starts a queue that was stopped, where it was.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn restart(&mut self, queue: u16) -> io::Result<()> {
        self.start_queue(queue.into()).map_err(other)
    }

    /// The first `len` bytes of the configuration space.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn config(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let buffer = vec![0; len as usize];
        let flags = VhostUserConfigFlags::empty();
        Ok(self.frontend.get_config(0, len, flags, &buffer).map_err(other)?.1)
    }

    /// Size of the disk, in bytes.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn size(&mut self) -> io::Result<u64> {
        let bytes = self.config(8)?;
        let sectors: [u8; 8] = bytes[..].try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(u64::from_le_bytes(sectors) * SECTOR)
    }

    /// Guest address of the data of a slot.
    #[must_use]
    pub fn data(&self, queue: u16, slot: u16) -> u64 {
        self.lines[usize::from(queue)].data + u64::from(slot) * u64::from(self.shape.data)
    }

    /// Guest addresses of a queue: descriptors, available ring, used ring.
    #[must_use]
    pub fn places(&self, queue: u16) -> [u64; 3] {
        let line = &self.lines[usize::from(queue)];
        [line.descriptors, line.available, line.used]
    }

    /// Writes bytes at an address of the guest.
    ///
    /// # Errors
    /// It is outside of that.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_slice(bytes, GuestAddress(address)).map_err(other)
    }

    /// Reads guest memory.
    ///
    /// # Errors
    /// It is outside of that.
    pub fn peek(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_slice(bytes, GuestAddress(address)).map_err(other)
    }

    /// Puts a request into a slot that has none. [`Driver::kick`] brings it to the device.
    ///
    /// # Errors
    /// The data is longer than the slot.
    pub fn submit(&mut self, queue: u16, slot: u16, command: Command) -> io::Result<()> {
        let data = self.data(queue, slot);
        let len = match command {
            Command::Read { len, .. } | Command::Write { len, .. } => len,
            Command::Flush => 0,
            Command::Serial => 20,
            Command::Discard { .. } | Command::WriteZeroes { .. } => 16,
        };
        if len > self.shape.data {
            return Err(io::Error::other("the slot is too small"));
        }
        self.submit_at(queue, slot, command, &[(data, len)])
    }

    /// As [`Driver::submit`], with data at these places of the guest's memory, each with its length in bytes.
    ///
    /// # Errors
    /// There are too many places.
    pub fn submit_at(
        &mut self,
        queue: u16,
        slot: u16,
        command: Command,
        places: &[(u64, u32)],
    ) -> io::Result<()> {
        let data = self.data(queue, slot);
        let (kind, sector, writes) = match command {
            Command::Read { sector, .. } => (VIRTIO_BLK_T_IN, sector, true),
            Command::Write { sector, .. } => (VIRTIO_BLK_T_OUT, sector, false),
            Command::Flush => (VIRTIO_BLK_T_FLUSH, 0, false),
            Command::Serial => (VIRTIO_BLK_T_GET_ID, 0, true),
            Command::Discard { sector, count } => {
                self.put_range(data, sector, count, 0)?;
                (VIRTIO_BLK_T_DISCARD, 0, false)
            }
            Command::WriteZeroes { sector, count, unmap } => {
                self.put_range(data, sector, count, unmap.into())?;
                (VIRTIO_BLK_T_WRITE_ZEROES, 0, false)
            }
        };
        let line = &self.lines[usize::from(queue)];
        let header = line.headers + u64::from(slot) * 32;
        let mut bytes = [0; HEADER + 1];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&sector.to_le_bytes());
        // A status that no device gives.
        bytes[HEADER] = 0xff;
        self.poke(header, &bytes)?;
        let status = header + HEADER as u64;
        let mut chain = vec![(header, HEADER as u32, false)];
        chain.extend(places.iter().map(|(place, len)| (*place, *len, writes)));
        chain.push((status, 1, true));
        chain.retain(|(_, len, _)| *len > 0);
        self.submit_chain(queue, slot, &chain)
    }

    fn put_range(&self, at: u64, sector: u64, count: u32, flags: u32) -> io::Result<()> {
        let mut range = sector.to_le_bytes().to_vec();
        range.extend(count.to_le_bytes());
        range.extend(flags.to_le_bytes());
        self.poke(at, &range)
    }

    /// Makes a chain of descriptors available: address, length, and whether the device writes it.
    ///
    /// # Errors
    /// The chain is too long.
    pub fn submit_chain(
        &mut self,
        queue: u16,
        slot: u16,
        chain: &[(u64, u32, bool)],
    ) -> io::Result<()> {
        if chain.len() > usize::from(CHAIN) {
            return Err(io::Error::other("the chain is too long"));
        }
        let line = &mut self.lines[usize::from(queue)];
        let head = slot * CHAIN;
        let (table, first) = if self.shape.indirect {
            let table = line.tables + u64::from(slot) * u64::from(CHAIN) * 16;
            let len = chain.len() as u32 * 16;
            let indirect = Descriptor::new(table, len, VRING_DESC_F_INDIRECT as u16, 0);
            let place = GuestAddress(line.descriptors + u64::from(head) * 16);
            self.memory.write_obj(indirect, place).map_err(other)?;
            (table, 0)
        } else {
            (line.descriptors, head)
        };
        for (n, (address, len, writes)) in (first..).zip(chain) {
            let last = usize::from(n - first) + 1 == chain.len();
            let next = if last { 0 } else { VRING_DESC_F_NEXT };
            let flags = next | if *writes { VRING_DESC_F_WRITE } else { 0 };
            let descriptor = Descriptor::new(*address, *len, flags as u16, n + 1);
            let place = GuestAddress(table + u64::from(n) * 16);
            self.memory.write_obj(descriptor, place).map_err(other)?;
        }
        let place = line.available + 4 + u64::from(line.next.0 % line.size) * 2;
        self.memory.write_obj(head.to_le(), GuestAddress(place)).map_err(other)?;
        line.next += 1;
        Ok(())
    }

    /// Publishes what was submitted, and wakes the device if that is wanted.
    ///
    /// # Errors
    /// The memory, or the descriptor.
    pub fn kick(&mut self, queue: u16) -> io::Result<()> {
        let line = &mut self.lines[usize::from(queue)];
        let (old, new) = (line.published, line.next);
        line.published = new;
        let place = GuestAddress(line.available + 2);
        self.memory.store(new.0.to_le(), place, Ordering::Release).map_err(other)?;
        fence(Ordering::SeqCst);
        let wanted = if self.shape.event_idx {
            let place = GuestAddress(line.used + 4 + u64::from(line.size) * 8);
            let event: u16 = self.memory.load(place, Ordering::Relaxed).map_err(other)?;
            new - Wrapping(u16::from_le(event)) - Wrapping(1) < new - old
        } else {
            let flags: u16 =
                self.memory.load(GuestAddress(line.used), Ordering::Relaxed).map_err(other)?;
            u16::from_le(flags) & 1 == 0
        };
        if wanted && new != old { line.kick.write(1) } else { Ok(()) }
    }

    /// Wakes the device, whether there is something new or not.
    ///
    /// # Errors
    /// The kick descriptor cannot be written.
    pub fn wake(&self, queue: u16) -> io::Result<()> {
        self.lines[usize::from(queue)].kick.write(1)
    }

    /// Stops a queue and starts it from its beginning, as the reset of a guest does.
    ///
    /// # Errors
    /// The memory, or what the device answers.
    pub fn reset(&mut self, queue: u16) -> io::Result<()> {
        self.stop(queue)?;
        let line = &mut self.lines[usize::from(queue)];
        (line.next, line.published, line.seen) = (Wrapping(0), Wrapping(0), Wrapping(0));
        for ring in [line.available, line.used] {
            let zeroes = [0; 0x1000];
            self.memory.write_slice(&zeroes, GuestAddress(ring)).map_err(other)?;
        }
        self.start_queue(queue.into()).map_err(other)
    }

    /// The next slot that was answered, and its status.
    ///
    /// # Errors
    /// The used ring is outside of the memory.
    pub fn answered(&mut self, queue: u16) -> io::Result<Option<(u16, u8)>> {
        let line = &mut self.lines[usize::from(queue)];
        if used(&self.memory, line)? == line.seen.0 {
            return Ok(None);
        }
        let place = line.used + 4 + u64::from(line.seen.0 % line.size) * 8;
        let head: u32 = self.memory.read_obj(GuestAddress(place)).map_err(other)?;
        line.seen += 1;
        let slot = u32::from_le(head) as u16 / CHAIN;
        let status = GuestAddress(line.headers + u64::from(slot) * 32 + HEADER as u64);
        Ok(Some((slot, self.memory.read_obj(status).map_err(other)?)))
    }

    /// Waits until something is answered; `false` if nothing was in time.
    ///
    /// # Errors
    /// The memory, or the descriptor.
    pub fn wait(&mut self, queue: u16, within: Duration) -> io::Result<bool> {
        let line = &mut self.lines[usize::from(queue)];
        if self.shape.event_idx {
            let place = GuestAddress(line.available + 4 + u64::from(line.size) * 2);
            self.memory.store(line.seen.0.to_le(), place, Ordering::Relaxed).map_err(other)?;
            fence(Ordering::SeqCst);
        }
        if used(&self.memory, line)? != line.seen.0 {
            return Ok(true);
        }
        let within = Timespec::try_from(within).map_err(other)?;
        // SAFETY: it is open as long as `line` is borrowed.
        let call = unsafe { BorrowedFd::borrow_raw(line.call.as_raw_fd()) };
        let found = poll(&mut [PollFd::new(&call, PollFlags::IN)], Some(&within))?;
        if found > 0 {
            // Nothing there means that it was read already.
            let _ = line.call.read();
        }
        Ok(found > 0)
    }

    /// Does one request in slot 0 of queue 0, and waits for its status.
    ///
    /// # Errors
    /// It is not answered in time.
    pub fn perform(&mut self, command: Command, within: Duration) -> io::Result<u8> {
        self.submit(0, 0, command)?;
        self.kick(0)?;
        self.one(within)
    }

    /// Waits for an answer of queue 0; returns its status.
    ///
    /// # Errors
    /// There is none in time.
    pub fn one(&mut self, within: Duration) -> io::Result<u8> {
        let until = std::time::Instant::now() + within;
        loop {
            if let Some((_, status)) = self.answered(0)? {
                return Ok(status);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait(0, left)?;
        }
    }
}
