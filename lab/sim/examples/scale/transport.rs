//! The transports, with the network that each of them has, and what a round of one host sends and receives.

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: f64 = 28.0;

/// A transport of the exchange, with the hosts that it takes and the traffic that a round costs.
pub(crate) struct Transport {
    pub(crate) name: &'static str,
    /// Keys of `[exchange]`.
    pub(crate) keys: &'static str,
    /// Largest number of hosts.
    pub(crate) most: u64,
    pub(crate) round: fn(f64) -> Traffic,
}

/// Messages and bytes of a round of one host.
pub(crate) struct Traffic {
    pub(crate) sent: f64,
    pub(crate) sent_bytes: f64,
    pub(crate) received: f64,
    pub(crate) received_bytes: f64,
}

pub(crate) const TRANSPORTS: [Transport; 6] = [
    Transport { name: "file", keys: "transport = \"file\"", most: 1000, round: file },
    Transport {
        name: "peers",
        keys: "transport = \"udp\"\ndelay = \"1ms\"",
        most: 1000,
        round: peers,
    },
    Transport {
        name: "group",
        keys: "transport = \"udp\"\ndelay = \"1ms\"",
        most: 16_384,
        round: group,
    },
    Transport {
        name: "group-1%",
        keys: "transport = \"udp\"\ndelay = \"10ms\"\nloss = \"1%\"",
        most: 2000,
        round: group,
    },
    Transport {
        name: "group-30%",
        keys: "transport = \"udp\"\ndelay = \"10ms\"\nloss = \"30%\"",
        most: 2000,
        round: group,
    },
    Transport {
        name: "etcd",
        keys: "transport = \"etcd\"\nmembers = 3\ndelay = \"100ms\"",
        most: 2000,
        round: etcd,
    },
];

/// A write of a slot, and a read of the header and of the slots in use.
fn file(hosts: f64) -> Traffic {
    let read = 4096.0 * (hosts + 5.0);
    Traffic { sent: 1.0, sent_bytes: 4096.0, received: 1.0, received_bytes: read }
}

/// A datagram with the echoes of a cluster in which all have been heard.
fn datagram(hosts: f64) -> f64 {
    HEADERS + 568.0 + 8.0 * (hosts - 1.0).min(8.0)
}

/// A datagram to each other host, and one from each.
fn peers(hosts: f64) -> Traffic {
    let (others, bytes) = (hosts - 1.0, (hosts - 1.0) * datagram(hosts));
    Traffic { sent: others, sent_bytes: bytes, received: others, received_bytes: bytes }
}

/// A datagram to the group, and one from each other host.
fn group(hosts: f64) -> Traffic {
    Traffic { sent: 1.0, sent_bytes: datagram(hosts), ..peers(hosts) }
}

/// A write and a read of all values, as docs/exchange-etcd.md has them measured.
fn etcd(hosts: f64) -> Traffic {
    Traffic { sent: 2.0, sent_bytes: 930.0, received: 2.0, received_bytes: 870.0 * hosts }
}
