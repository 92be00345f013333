//! The period of many hosts, which bounds the load on etcd.
//!
//! Each host reads all keys. So with n hosts and a period T, etcd writes n / T keys and returns n² / T values a
//! second. So the period grows with the number of hosts where either would be too much. The load then stays constant.
//! `docs/exchange-etcd.md` has the load in numbers.

use parda_control::Span;

/// Most keys that all hosts of a volume write in a second. Each is a round of the members and a flush of their disks.
const WRITES: f64 = 100.0;

/// Most values that etcd returns to all hosts of a volume in a second, at about 0.9 kB each.
const VALUES: f64 = 20_000.0;

/// The shortest period of this number of hosts.
#[must_use]
pub fn pace(hosts: usize) -> Span {
    let hosts = hosts as f64;
    Span::from_secs((hosts / WRITES).max(hosts * hosts / VALUES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hosts_load_etcd_no_more_than_a_hundred_or_two() {
        for hosts in [1, 2, 10, 100, 200, 500, 1_000, 2_000] {
            let seconds = pace(hosts).secs();
            let hosts = hosts as f64;
            assert!(hosts / seconds <= WRITES * 1.001 && hosts * hosts / seconds <= VALUES * 1.001);
        }
        assert!(pace(100).secs() <= 1.0, "a hundred hosts have the usual period");
    }
}
