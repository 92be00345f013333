//! The same stories over every transport: memory, a file, an NBD export of a real server, a real etcd, UDP to peers with
//! IPv4 and IPv6, a multicast group, UDP over a network that loses, repeats, delays and reorders,
//! and UDP with a file as its fall-back. And over
//! decorators that do the same to what any of them hears.
//!
//! | file | subject |
//! | --- | --- |
//! | `media` | the transports |
//! | `network` | a network between the hosts of UDP that is not perfect |
//! | `faults` | a decorator of any exchange |
//! | `cluster` | hosts that meet, period by period |
//! | `stories` | what must be so over each of them |
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "says which tests were skipped")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/memory.rs"]
#[allow(dead_code, reason = "what fails or is changed by hand is so beside the code")]
mod medium;

mod cluster;
mod faults;
mod media;
mod network;
mod stories;

use cluster::Cluster;
use faults::Fault;
use media::{Etcd, Export, Family, Files, Medium, Memory, Multicast, Unicast, WithFallback};
use network::Network;

/// The stories of one transport, and how many periods it may take longer than a perfect one.
macro_rules! conformance {
    ($transport:ident, $slack:expr, $medium:expr) => {
        mod $transport {
            use super::*;

            const SLACK: u64 = $slack;

            fn cluster(seats: usize) -> Option<Cluster> {
                let medium: Option<Box<dyn Medium>> = $medium(seats);
                medium.map(|medium| Cluster::new(medium, seats))
            }

            conformance!(@stories
                a_host_is_heard
                a_host_that_leaves_is_given_up_at_once
                a_host_that_falls_silent_goes_stale_and_returns
                a_host_that_restarts_is_counted_once
                hosts_of_one_name_are_named_on_both_sides
                volumes_do_not_mix
                many_hosts_hear_each_other
                what_one_says_is_heard_by_others_only
                a_path_that_works_one_way
                a_cluster_that_parts_and_meets_again
                what_is_heard_late_twice_or_not_at_all
            );
        }
    };
    (@stories $($story:ident)*) => {
        $(#[test]
        fn $story() {
            stories::$story(cluster, SLACK);
        })*
    };
}

/// A medium for a cluster.
fn boxed(medium: impl Medium + 'static) -> Option<Box<dyn Medium>> {
    Some(Box::new(medium))
}

conformance!(memory, 0, |_| boxed(Memory::new()));
conformance!(file, 0, |_| boxed(Files::new()));
conformance!(nbd, 0, |_| boxed(Export::new()));
conformance!(etcd, 0, |_| boxed(Etcd::new()));
conformance!(udp, 0, |seats| boxed(Unicast::new(Family::V4, seats)));
conformance!(udp_ipv6, 0, |seats| boxed(Unicast::new(Family::V6, seats)));
conformance!(multicast, 0, |_| Multicast::new(Family::V4).and_then(boxed));
conformance!(multicast_ipv6, 0, |_| Multicast::new(Family::V6).and_then(boxed));
// What is visited in every second round is given up two rounds later.
conformance!(udp_with_fallback, 2, |seats| {
    boxed(WithFallback::new(Unicast::new(Family::V4, seats)))
});
conformance!(udp_with_loss, 12, |seats| boxed(Unicast::over(Network::new(seats, 30, 0, 0))));
conformance!(udp_repeated_and_late, 8, |seats| {
    boxed(Unicast::over(Network::new(seats, 0, 30, 30)))
});

/// All faults that the decorator knows.
const FAULTS: [Fault; 5] =
    [Fault::None, Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Reorder];
