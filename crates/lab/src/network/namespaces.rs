//! Network namespaces. Each has one interface, a tunnel whose other end is the laboratory's.
//!
//! Nothing of them has a name in the file system or in the network of this machine: a namespace is there as long as a process or an open
//! file is in it, and a tunnel as long as its file is open. So nothing is left behind, also after SIGKILL.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::NetworkError;
use super::router::{Taken, To, Wires};

/// Name of the interface in each namespace.
pub(super) const INTERFACE: &str = "lab0";

/// Attaches an open `/dev/net/tun` to an interface.
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<libc::c_int>(b'T', 202);

/// `struct ifreq` of netdevice(7), as TUNSETIFF takes it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Nodes in one /24, so that no address ends with 0 or 255.
const EACH: usize = 250;

/// Address of a node.
pub(super) fn address(node: usize) -> Ipv4Addr {
    // At most 1,024 hosts and some servers.
    Ipv4Addr::new(10, 77, (node / EACH) as u8, (1 + node % EACH) as u8)
}

/// The node that has an address, if there are so many nodes.
fn node_at(address: Ipv4Addr) -> Option<usize> {
    let [10, 77, block, place] = address.octets() else { return None };
    let place = usize::from(place).checked_sub(1).filter(|place| *place < EACH)?;
    Some(usize::from(block) * EACH + place)
}

/// A network namespace with an address.
#[derive(Debug)]
pub(super) struct Namespace {
    space: Arc<OwnedFd>,
    tunnel: File,
}

impl Namespace {
    /// Makes the namespace of a node.
    pub(super) fn new(node: usize) -> Result<Namespace, NetworkError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NetworkError::NotRoot);
        }
        // A thread of its own leaves the namespace of this process, and ends.
        let made = thread::Builder::new().name("namespace".to_owned()).spawn(move || make(node));
        let made = made.map_err(NetworkError::io("start a thread"))?.join();
        let ended = || NetworkError::Ip("its thread ended".to_owned());
        made.map_err(|_| ended())?
    }

    /// Has a command run in this namespace.
    pub(super) fn enter(&self, command: &mut Command) {
        let space = Arc::clone(&self.space);
        // SAFETY: between fork and exec one system call is made, without allocation or lock.
        unsafe {
            command.pre_exec(move || Ok(go_into(space.as_fd())?));
        }
    }

    /// Calls a function in this namespace, on a thread of its own.
    pub(super) fn within<T: Send>(&self, call: impl FnOnce() -> T + Send) -> io::Result<T> {
        let called = thread::scope(|scope| {
            let there = || go_into(self.space.as_fd()).map(|()| call());
            scope.spawn(there).join()
        });
        Ok(called.map_err(|_| io::Error::other("its thread ended"))??)
    }
}

fn go_into(space: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_into_link_name_space(space, Some(LinkNameSpaceType::Network))
}

/// Moves the calling thread into a new namespace, and gives that an interface with an address.
fn make(node: usize) -> Result<Namespace, NetworkError> {
    // SAFETY: no file descriptors are unshared.
    let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    left.map_err(|e| NetworkError::io("make a network namespace")(e.into()))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let space = open("/proc/thread-self/ns/net", flags, Mode::empty())
        .map_err(|e| NetworkError::io("open the network namespace")(e.into()))?;
    let tunnel = tunnel().map_err(NetworkError::io("make a tunnel (/dev/net/tun)"))?;
    let address = address(node);
    ip(&format!(
        "link set lo up\naddress add {address}/16 dev {INTERFACE}\nlink set {INTERFACE} up\n\
         route add 224.0.0.0/4 dev {INTERFACE}\n"
    ))?;
    Ok(Namespace { space: Arc::new(space), tunnel })
}

/// The laboratory's end of a new interface, in the namespace of the calling thread.
fn tunnel() -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tunnel = open("/dev/net/tun", flags, Mode::empty())?;
    let mut name = [0; 16];
    name[..INTERFACE.len()].copy_from_slice(INTERFACE.as_bytes());
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let request = InterfaceRequest { name, flags, rest: [0; 22] };
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which this is in layout and size.
    unsafe { ioctl(&tunnel, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }?;
    Ok(tunnel.into())
}

/// Runs commands of ip(8) in the namespace of the calling thread.
fn ip(commands: &str) -> Result<(), NetworkError> {
    let io = NetworkError::io("run ip (Debian, Ubuntu: apt install iproute2)");
    let run = || {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        // What it does not read it complains about.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(commands.as_bytes()));
        child.wait_with_output()
    };
    let output = run().map_err(io)?;
    if output.status.success() {
        return Ok(());
    }
    Err(NetworkError::Ip(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The laboratory's ends of all tunnels.
#[derive(Debug)]
pub(super) struct Namespaces(Vec<File>);

impl Namespaces {
    pub(super) fn of(namespaces: &[Namespace]) -> io::Result<Namespaces> {
        let tunnels = namespaces.iter().map(|namespace| namespace.tunnel.try_clone());
        tunnels.collect::<io::Result<_>>().map(Namespaces)
    }

    /// Destination of an IP packet. `None` for what is not of IPv4, or for nobody here.
    fn destination(&self, packet: &[u8]) -> Option<To> {
        let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
        let to = Ipv4Addr::from(to);
        if packet[0] >> 4 != 4 {
            return None;
        }
        if to.is_multicast() {
            return Some(To::All);
        }
        node_at(to).filter(|node| *node < self.0.len()).map(To::Node)
    }
}

impl Wires for Namespaces {
    fn places(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd).collect()
    }

    fn take(&self, place: usize, buffer: &mut [u8]) -> Option<Taken> {
        let length = (&self.0[place]).read(buffer).ok()?;
        let to = self.destination(&buffer[..length]);
        Some(Taken { from: place, to: to.unwrap_or(To::All), length: to.map_or(0, |_| length) })
    }

    fn hand(&self, to: usize, packet: &[u8]) {
        // What the kernel does not take is lost, as on a wire.
        let _ = (&self.0[to]).write(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_an_address_of_its_own_and_is_found_by_it() {
        for node in 0..1_031 {
            assert_eq!(node_at(address(node)), Some(node));
        }
        for other in [[10, 77, 0, 0], [10, 77, 0, 255], [10, 78, 0, 1], [239, 7, 7, 7]] {
            assert_eq!(node_at(other.into()), None);
        }
    }
}
