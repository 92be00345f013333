//! Status of the slowest VM.

use parda_control::latency::Signal;
use parda_control::slowest::Slowest;
use parda_exchange::Liveness;

use crate::status::{DiskStatus, PeerStatus, SlowVmStatus, SlowestStatus};

impl SlowVmStatus {
    /// The status of a VM. `None` if it had no IOs.
    pub(crate) fn new(slowest: &Slowest) -> Option<SlowVmStatus> {
        (slowest.vms > 0).then(|| SlowVmStatus::of_host(slowest))
    }

    /// The status of a host's slowest VM. Its excess is 0 if no VM had IOs.
    pub(crate) fn of_host(slowest: &Slowest) -> SlowVmStatus {
        SlowVmStatus { latency_ms: slowest.latency.secs() * 1e3, excess: slowest.excess }
    }
}

impl SlowestStatus {
    /// The slowest of this host's disks and of the other hosts that are live, if the law listens to it. As the law,
    /// it listens to none if one of the other hosts under control does not say its own.
    pub(crate) fn new(
        signal: Signal,
        disks: &[DiskStatus],
        peers: &[PeerStatus],
    ) -> Option<SlowestStatus> {
        let live = || peers.iter().filter(|peer| peer.liveness == Liveness::Live);
        let mute = live().any(|peer| peer.window.is_some() && peer.slowest.is_none());
        if signal != Signal::Slowest || mute {
            return None;
        }
        let ours = disks.iter().filter_map(|disk| Some((disk.slowest?, "disk", &disk.name)));
        let theirs = live().filter_map(|peer| Some((peer.slowest?, "host", &peer.host)));
        let (vm, what, name) =
            ours.chain(theirs).max_by(|one, other| one.0.excess.total_cmp(&other.0.excess))?;
        (vm.excess > 1.0).then(|| SlowestStatus { of: format!("{what} {name}"), vm })
    }
}

#[cfg(test)]
mod tests {
    use parda_control::Bounded;

    use super::*;

    fn peer(host: &str, excess: Option<f64>) -> PeerStatus {
        PeerStatus {
            host: host.to_owned(),
            liveness: Liveness::Live,
            age_s: 0.1,
            slowed_to_s: None,
            window: Some(4.0),
            would_be: None,
            latency_threshold_ms: None,
            auto: false,
            asks_ms: None,
            slowest: excess.map(|excess| SlowVmStatus { latency_ms: 36.0, excess }),
            shares: 1000,
            active_shares: 1000.0,
            latency_ms: None,
            iops: None,
            bytes_per_s: None,
            outstanding: 0.0,
            bounded: Bounded::Unsaid,
        }
    }

    #[test]
    fn the_slowest_is_named_while_the_law_goes_by_it() {
        let peers = [peer("kvm-02", Some(1.1)), peer("kvm-03", Some(1.8))];
        let named = SlowestStatus::new(Signal::Slowest, &[], &peers);
        assert_eq!(named.map(|slowest| slowest.of), Some("host kvm-03".to_owned()));
        assert_eq!(SlowestStatus::new(Signal::All, &[], &peers), None);
        assert_eq!(SlowestStatus::new(Signal::Slowest, &[], &[peer("kvm-02", Some(0.9))]), None);
        let mute = [peer("kvm-03", Some(1.8)), peer("old", None)];
        assert_eq!(SlowestStatus::new(Signal::Slowest, &[], &mute), None);
    }
}
