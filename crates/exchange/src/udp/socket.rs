//! The socket of an exchange over UDP: bound to an address of its own, or to a multicast group.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netdevice, socket_with, sockopt};

/// Size of the receive buffer that is asked for, in bytes. Datagrams of 1,000 hosts take less, and
/// a flood is read faster than it fills the buffer.
const RECEIVE_BYTES: usize = 4 << 20;

/// Requested size of the send buffer, in bytes: room for the datagrams of one period to 1,000 hosts.
const SEND_BYTES: usize = 2 << 20;

/// Time to live of multicast datagrams. Routers do not forward them: the hosts of a group are on one subnet.
const GROUP_HOPS: u32 = 1;

/// Opens a socket that does not block. `interface` names the interface of the group, if `address` is a multicast group.
pub(super) fn open(address: SocketAddr, interface: Option<&str>) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    let mut address = address;
    if let Some(interface) = interface {
        let index = netdevice::name_to_index(&socket, interface)
            .map_err(|e| io::Error::new(e.kind(), format!("interface {interface}: {e}")))?;
        // Several agents of this machine may be in the group: each gets every datagram.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        match address.ip() {
            IpAddr::V4(group) => {
                sockopt::set_ip_multicast_if_with_ifindex(
                    &socket,
                    &group,
                    &std::net::Ipv4Addr::UNSPECIFIED,
                    index,
                )?;
                sockopt::set_ip_multicast_ttl(&socket, GROUP_HOPS)?;
                sockopt::set_ip_multicast_loop(&socket, true)?;
                sockopt::set_ip_add_membership_with_ifindex(
                    &socket,
                    &group,
                    &std::net::Ipv4Addr::UNSPECIFIED,
                    index,
                )?;
            }
            IpAddr::V6(group) => {
                sockopt::set_ipv6_multicast_if(&socket, index)?;
                sockopt::set_ipv6_multicast_hops(&socket, GROUP_HOPS)?;
                sockopt::set_ipv6_multicast_loop(&socket, true)?;
                sockopt::set_ipv6_add_membership(&socket, &group, index)?;
                if let SocketAddr::V6(address) = &mut address {
                    address.set_scope_id(index);
                }
            }
        }
    }
    bind(&socket, &address)?;
    // The kernel may give smaller buffers. Datagrams are lost then only where there are very many hosts.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BYTES);
    Ok(UdpSocket::from(socket))
}
