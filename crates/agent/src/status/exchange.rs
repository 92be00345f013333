//! Status of a volume's exchange and of the hosts that are met there.

use std::collections::BTreeMap;

use parda_control::{Bounded, Governed, Proportional, Report, Span, Tuning};
use parda_etcd::Traffic;
use parda_exchange::etcd::notice::EtcdStanding;
use parda_exchange::fallback::FallbackStanding;
use parda_exchange::udp::notice::DatagramStanding;
use parda_exchange::udp::{DatagramCounters, Refused};
use parda_exchange::{HostName, Liveness, Peer, Standing};
use serde::{Deserialize, Serialize};

/// The state of a volume's exchange.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeStatus {
    /// File, device, NBD URI, UDP address or etcd of the exchange.
    pub place: String,
    /// State of a transport with slots.
    #[serde(flatten)]
    pub slots: Option<SlotStatus>,
    /// State of a transport over UDP.
    pub udp: Option<UdpStatus>,
    /// State of a transport over etcd.
    pub etcd: Option<EtcdStatus>,
    /// State of a fall-back, if there is one.
    pub fallback: Option<FallbackStatus>,
    /// Current fault, if there is one.
    pub fault: Option<String>,
    /// Periods in which it failed, since the start.
    pub failures: u64,
    /// Slots, datagrams or values that were ignored, since the start: damaged, foreign or of another version.
    pub ignored: u64,
    /// How often another live host with our name was heard.
    pub duplicate_hosts: u64,
    /// That another live host has our name now, and what to do about it. `None` if no other has it.
    pub duplicate: Option<String>,
    /// Seconds between two rounds of this host. `None` before the first one.
    pub period_s: Option<f64>,
    /// Fraction of the array's IOs that the rounds of all hosts are, if each has this host's period.
    pub part: Option<f64>,
    /// Reason for which rounds are further apart than configured. `None` if they are not.
    pub slowed: Option<String>,
    /// All other hosts in the exchange, whatever their liveness.
    pub peers: Vec<PeerStatus>,
}

/// The state of a transport with slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// The slot in use, once one is.
    pub slot: Option<u32>,
    /// Looks at which somebody else had written to our slot.
    pub slot_conflicts: u64,
}

/// The state of a transport over UDP. Datagrams are counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpStatus {
    /// Datagrams sent, one for each destination and period.
    pub sent: u64,
    /// Datagrams that could not be sent.
    pub unsent: u64,
    /// Datagrams heard, and counted for what they say.
    pub heard: u64,
    /// Own datagrams that came back.
    pub own: u64,
    /// Hosts that are heard now and have not shown that they hear this one.
    pub unproven: usize,
    /// Number of keys in force.
    pub keys: usize,
    /// Datagrams that counted for nothing, by the reason.
    pub refused: BTreeMap<String, u64>,
}

impl From<&DatagramStanding> for UdpStatus {
    fn from(standing: &DatagramStanding) -> UdpStatus {
        let DatagramStanding { counters, unproven, keys } = *standing;
        let refused = Refused::ALL.map(|why| (why.name().to_owned(), counters.refused(why)));
        let DatagramCounters { sent, unsent, heard, own, .. } = counters;
        UdpStatus { sent, unsent, heard, own, unproven, keys, refused: refused.into() }
    }
}

/// The state of a transport and its fall-back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// Whether the fall-back is in force.
    pub in_force: bool,
    /// How often that changed since the start.
    pub switches: u64,
    /// Current fault of the first transport, if there is one.
    pub first_fault: Option<String>,
    /// Current fault of the fall-back, if there is one.
    pub fault: Option<String>,
}

/// The state of a transport over etcd. All is counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdStatus {
    /// The endpoint that is asked.
    pub endpoint: String,
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed, once for each endpoint that was tried.
    pub failed_calls: u64,
    /// Bytes of bodies that were sent.
    pub sent_bytes: u64,
    /// Bytes of bodies that were received.
    pub received_bytes: u64,
    /// Leases that were granted.
    pub leases: u64,
    /// Values that counted for nothing, by the reason.
    pub ignored: BTreeMap<String, u64>,
    /// Key of the last one of them.
    pub ignored_key: Option<String>,
}

impl From<&EtcdStanding> for EtcdStatus {
    fn from(standing: &EtcdStanding) -> EtcdStatus {
        let EtcdStanding { endpoint, traffic, leases, counters, ignored_key } = standing;
        let Traffic { calls, failures, sent, received } = *traffic;
        EtcdStatus {
            endpoint: endpoint.clone(),
            calls,
            failed_calls: failures,
            sent_bytes: sent,
            received_bytes: received,
            leases: *leases,
            ignored: counters.ignored().map(|(why, count)| (why.to_owned(), count)).into(),
            ignored_key: ignored_key.clone(),
        }
    }
}

impl ExchangeStatus {
    /// Takes over what the transport has counted.
    pub(crate) fn count(&mut self, standing: &Standing) {
        match standing {
            Standing::Slots { slot, counters } => {
                let slot = slot.map(|slot| slot.0);
                self.slots = Some(SlotStatus { slot, slot_conflicts: counters.slot_conflicts });
                self.ignored += counters.ignored().iter().map(|(_, count)| count).sum::<u64>();
            }
            Standing::Datagrams(datagrams) => {
                let udp = UdpStatus::from(datagrams);
                self.ignored += udp.refused.values().sum::<u64>();
                self.udp = Some(udp);
            }
            Standing::Etcd(etcd) => {
                let etcd_status = EtcdStatus::from(etcd);
                self.ignored += etcd_status.ignored.values().sum::<u64>();
                self.etcd = Some(etcd_status);
            }
            Standing::Both(both) => {
                self.count(&both.first);
                self.count(&both.second);
                let [first_fault, fault] = both.faults.clone();
                let FallbackStanding { in_force, switches, .. } = **both;
                self.fallback = Some(FallbackStatus { in_force, switches, first_fault, fault });
            }
        }
    }
}

/// Another host of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name of the other host.
    pub host: String,
    /// Whether it is alive, as far as this host can see.
    pub liveness: Liveness,
    /// Seconds since it was last seen to change.
    pub age_s: f64,
    /// Seconds between two of its rounds, if these are further apart than it was told, as they would be too much for the exchange.
    pub slowed_to_s: Option<f64>,
    /// Its window, in slots. None without control.
    pub window: Option<f64>,
    /// Window that it would have, in slots, if it observes.
    pub would_be: Option<f64>,
    /// The latency threshold that it was told or has found, in milliseconds, if it says so.
    pub latency_threshold_ms: Option<f64>,
    /// Whether it finds that while working.
    #[serde(default)]
    pub auto: bool,
    /// The threshold that a disk of it with a latency objective asks for now, in milliseconds.
    pub asks_ms: Option<f64>,
    /// Sum of the shares of the host's VMs.
    pub shares: u32,
    /// The same, scaled down for VMs that use less than their slice.
    #[serde(default)]
    pub active_shares: f64,
    /// Its mean device latency in its last interval, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Reads and writes per second in its last interval.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second in its last interval.
    pub bytes_per_s: Option<f64>,
    /// Mean outstanding IOs at the array in its last interval, in slots.
    #[serde(default)]
    pub outstanding: f64,
    /// Bound of its window: its slices, `window_max`, or none as nobody wants more.
    #[serde(default)]
    pub bounded: Bounded,
    /// What it has for each share while its slices bound it, or nothing does: outstanding slots, or slots a second where shares divide
    /// throughput.
    pub per_share: Option<f64>,
}

impl PeerStatus {
    pub(crate) fn new(peer: &Peer<'_>) -> PeerStatus {
        let host = &peer.message.from.host;
        let body = &peer.message.body;
        PeerStatus {
            slowed_to_s: body.slowed.then(|| body.period.secs()),
            ..PeerStatus::of(host, peer.liveness, peer.age, &body.report)
        }
    }

    /// The status of a peer, from its report.
    pub(crate) fn of(
        host: &HostName,
        liveness: Liveness,
        age: Span,
        report: &Report,
    ) -> PeerStatus {
        let says_threshold = report.governed == Governed::Yes && report.tuning != Tuning::Unsaid;
        let all = report.interval.reads.plus(report.interval.writes);
        let lasted = Some(report.elapsed.secs()).filter(|secs| *secs > 0.0);
        PeerStatus {
            host: host.to_string(),
            liveness,
            age_s: age.secs(),
            slowed_to_s: None,
            window: report.in_force().map(|w| w.0),
            would_be: report.would_be().map(|w| w.0),
            latency_threshold_ms: says_threshold.then(|| report.threshold.secs() * 1e3),
            asks_ms: report.wants.asks.map(|asks| asks.secs() * 1e3),
            auto: matches!(report.tuning, Tuning::Auto | Tuning::Joining),
            shares: report.shares.0,
            active_shares: report.active,
            latency_ms: all.mean().map(|s| s * 1e3),
            iops: lasted.map(|secs| all.ios as f64 / secs),
            bytes_per_s: lasted.map(|secs| all.bytes.0 as f64 / secs),
            outstanding: report.outstanding,
            bounded: report.bounded,
            per_share: per_share(report),
        }
    }
}

/// What a host has for each share, of those of its VMs that want more. Without control all its shares count.
fn per_share(report: &Report) -> Option<f64> {
    let divides = report.settings.map(|settings| settings.proportional);
    let slices = report.bounded == Bounded::Slices;
    let (had, shares) = match divides {
        Some(Proportional::Throughput) => (report.saturated.rate, report.saturated.shares),
        _ if slices => (report.outstanding, report.active),
        _ => (report.outstanding, f64::from(report.shares.0)),
    };
    let counts = (slices || report.in_force().is_none()) && shares > 0.0;
    counts.then(|| had / shares).filter(|per_share| per_share.is_finite())
}
