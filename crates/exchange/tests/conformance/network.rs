//! A network between hosts that loses datagrams, repeats them, and delivers some late and so in another order.
//!
//! Each host has a door: what others send there comes to the host, or does not.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::media::{Family, free_address};

/// How long a datagram may take on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

pub(crate) struct Network {
    hosts: Vec<SocketAddr>,
    doors: Vec<UdpSocket>,
    addresses: Vec<SocketAddr>,
    /// What each door holds back for the next period.
    held: Vec<Vec<Vec<u8>>>,
    /// Percent of datagrams that are lost, repeated, and held back.
    lost: u8,
    repeated: u8,
    late: u8,
    random: fastrand::Rng,
}

impl Network {
    pub(crate) fn new(seats: usize, lost: u8, repeated: u8, late: u8) -> Network {
        let hosts = (0..seats).map(|_| free_address(Family::V4)).collect();
        let doors: Vec<_> =
            (0..seats).map(|_| UdpSocket::bind(free_address(Family::V4)).unwrap()).collect();
        let addresses = doors.iter().map(|door| door.local_addr().unwrap()).collect();
        let random = fastrand::Rng::with_seed(7);
        let held = vec![Vec::new(); seats];
        Network { hosts, doors, addresses, held, lost, repeated, late, random }
    }

    /// Addresses of the hosts.
    pub(crate) fn hosts(&self) -> &[SocketAddr] {
        &self.hosts
    }

    /// Addresses to send to.
    pub(crate) fn doors(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes so many datagrams at a host's door, and forwards what comes through. Returns how many.
    pub(crate) fn forward(&mut self, seat: usize, sent: u64) -> u64 {
        let door = &self.doors[seat];
        door.set_read_timeout(Some(PATIENT)).unwrap();
        let begun = Instant::now();
        let mut through = std::mem::take(&mut self.held[seat]);
        for _ in 0..sent {
            let mut buffer = [0; 2048];
            let (length, _) = door.recv_from(&mut buffer).unwrap();
            assert!(begun.elapsed() < PATIENT);
            let datagram = buffer[..length].to_vec();
            let mut percent = |limit: u8| self.random.u8(..100) < limit;
            if percent(self.lost) {
                continue;
            }
            if percent(self.repeated) {
                through.push(datagram.clone());
            }
            if percent(self.late) {
                self.held[seat].push(datagram);
            } else {
                through.push(datagram);
            }
        }
        self.random.shuffle(&mut through);
        for datagram in &through {
            door.send_to(datagram, self.hosts[seat]).unwrap();
        }
        through.len() as u64
    }
}
