//! Status of a volume's exchange and of the hosts that are met there.

use parda_api::{Host, Limit};
use parda_control::{Bounded, Doubt, Governed, Report, Span, Tuning};
use parda_exchange::etcd::EtcdStanding;
use parda_exchange::fallback::FallbackStanding;
use parda_exchange::udp::DatagramStanding;
use parda_exchange::{HostName, Liveness, Peer, Standing};
use serde::{Deserialize, Serialize};

use crate::history::{rounded, short};

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
    pub udp: Option<DatagramStanding>,
    /// State of a transport over etcd.
    pub etcd: Option<EtcdStanding>,
    /// State of a fall-back, if there is one.
    pub fallback: Option<FallbackStatus>,
    /// Current fault, if there is one.
    pub fault: Option<String>,
    /// Reason why no other host is heard, where others are expected. `None` if one is, or who is expected is not known.
    pub silence: Option<String>,
    /// Periods in which it failed, since the start.
    pub failures: u64,
    /// Slots, datagrams or values that were ignored, since the start: damaged, foreign or of another version.
    pub ignored: u64,
    /// Number of times that another live host with our name was heard.
    pub duplicate_hosts: u64,
    /// Text of the conflict with another live host that has our name now, and of its remedy. `None` if no other has it.
    pub duplicate: Option<String>,
    /// Seconds between two rounds of this host. `None` before the first one.
    pub period_s: Option<f64>,
    /// Fraction of the array's IOs that the rounds of all hosts are, if each has this host's period.
    pub part: Option<f64>,
    /// Reason for which rounds are further apart than configured. `None` if they are not.
    pub slowed: Option<String>,
    /// All other hosts in the exchange, whatever their liveness.
    pub peers: Vec<Host>,
    /// Hosts that are left out of all sums, heard or not.
    pub leaves_out: Vec<String>,
}

/// The state of a transport with slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// The slot in use, once one is.
    pub slot: Option<u32>,
    /// Looks that found our slot written by another host.
    pub slot_conflicts: u64,
}

/// The state of a transport and its fall-back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// Whether the fall-back is in force.
    pub in_force: bool,
    /// Number of switches since the start.
    pub switches: u64,
    /// Current fault of the first transport, if there is one.
    pub first_fault: Option<String>,
    /// Current fault of the fall-back, if there is one.
    pub fault: Option<String>,
}

impl ExchangeStatus {
    /// Present faults. By each of them hosts do not hear each other, or not rightly.
    pub fn faults(&self) -> impl Iterator<Item = &String> {
        self.fault.iter().chain(&self.silence).chain(&self.duplicate)
    }

    /// Sentences on hosts that are heard and do not hear this one.
    pub(crate) fn one_way(&self) -> Vec<String> {
        self.udp.iter().flat_map(|udp| &udp.one_way).map(ToString::to_string).collect()
    }

    /// Takes over the counters of the transport.
    pub(crate) fn count(&mut self, standing: Standing) {
        match standing {
            Standing::Slots { slot, counters } => {
                let slot = slot.map(|slot| slot.0);
                self.slots = Some(SlotStatus { slot, slot_conflicts: counters.slot_conflicts });
                self.ignored += counters.ignored().iter().map(|(_, count)| count).sum::<u64>();
            }
            Standing::Datagrams(udp) => {
                self.ignored += udp.refused.values().sum::<u64>();
                self.udp = Some(udp);
            }
            Standing::Etcd(etcd) => {
                self.ignored += etcd.ignored.values().sum::<u64>();
                self.etcd = Some(etcd);
            }
            Standing::Both(both) => {
                let FallbackStanding { first, second, in_force, switches, faults } = *both;
                self.count(first);
                self.count(second);
                let [first_fault, fault] = faults;
                self.fallback = Some(FallbackStatus { in_force, switches, first_fault, fault });
            }
        }
    }
}

/// Another host of a volume.
pub(crate) fn peer(peer: &Peer<'_>) -> Host {
    let (host, body) = (&peer.message.from.host, &peer.message.body);
    let slowed_to_s = body.slowed.then(|| rounded(body.period.secs()));
    let doubt = peer.doubt.filter(|_| peer.liveness == Liveness::Live).map(because);
    let doubt = doubt.or(peer.several.then_some(SEVERAL)).map(str::to_owned);
    let ignored = peer.ignored;
    Host { slowed_to_s, doubt, ignored, ..of_report(host, peer.liveness, peer.age, &body.report) }
}

const SEVERAL: &str = "a later run has its name as well; the one that was there first counts";

/// Why a host is not believed.
fn because(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Window => "its outstanding IOs do not fit its active shares",
        Doubt::Latency => "its IOs and latency are not as they were, and nobody else's changed",
        Doubt::Outstanding => "its latency and IOs do not fit what it has outstanding",
        Doubt::Throughput => "its throughput does not fit its shares",
        Doubt::Shares => "it has many times the shares that it had",
        Doubt::Objective => "it asks for a threshold that the array does not reach",
        Doubt::Threshold => "the threshold that it finds leaps",
    }
}

/// This host, as the others see it.
pub(crate) fn own(host: &HostName, report: &Report) -> Host {
    Host { own: true, ..of_report(host, Liveness::Live, Span::ZERO, report) }
}

fn of_report(host: &HostName, liveness: Liveness, age: Span, report: &Report) -> Host {
    let says_threshold = report.governed == Governed::Yes && report.tuning != Tuning::Unsaid;
    let all = report.interval.reads.plus(report.interval.writes);
    let lasted = Some(report.elapsed.secs()).filter(|secs| *secs > 0.0);
    let ms = |time: Span| time.secs() * 1e3;
    Host {
        name: host.to_string(),
        liveness,
        age_s: rounded(age.secs()),
        window: short(report.in_force().map(|w| w.0)),
        would_be: short(report.would_be().map(|w| w.0)),
        latency_threshold_ms: short(says_threshold.then(|| ms(report.threshold))),
        asks_ms: short(report.wants.asks.map(ms)),
        auto: matches!(report.tuning, Tuning::Auto | Tuning::Joining),
        shares: report.shares.0,
        active_shares: rounded(report.active),
        latency_ms: short(all.mean().map(|s| s * 1e3)),
        iops: short(lasted.map(|secs| all.ios as f64 / secs)),
        bytes_per_s: short(lasted.map(|secs| all.bytes.0 as f64 / secs)),
        outstanding: rounded(report.outstanding),
        limited_by: match report.bounded {
            Bounded::Unsaid => None,
            Bounded::Nothing => Some(Limit::Depth),
            Bounded::Slices => Some(Limit::Slice),
            Bounded::Window => Some(Limit::WindowMax),
        },
        per_share: short(per_share(report)),
        ..Host::default()
    }
}

/// Part of its share that each VM of a host has which is held back ([`parda_api::DiskRates::of_share`]). `held`: of each such VM its part
/// of what shares divide, and its shares. `of_host`: part of its share that the host has.
#[must_use]
pub fn of_share(held: &[(f64, f64)], of_host: Option<f64>) -> Vec<Option<f64>> {
    let (had, shares) = held.iter().fold((0.0, 0.0), |sum, vm| (sum.0 + vm.0, sum.1 + vm.1));
    let of = |(own, of): &(f64, f64)| of_host.unwrap_or(1.0) * own / had / (of / shares);
    held.iter().map(|vm| (had > 0.0).then(|| rounded(of(vm)))).collect()
}

/// Compares the quantity that hosts have for each share ([`Host::of_share`]).
pub(crate) fn compare<'a>(hosts: impl IntoIterator<Item = &'a mut Host>) {
    let mut live: Vec<_> =
        hosts.into_iter().filter(|host| host.liveness == Liveness::Live).collect();
    let Some(mean) = mean_per_share(&live) else { return };
    for host in &mut live {
        // A host without control that has less may want no more.
        let counts = |per_share: &f64| wants(host) || *per_share > mean;
        host.of_share = host.per_share.filter(counts).map(|per_share| rounded(per_share / mean));
    }
}

fn wants(host: &Host) -> bool {
    host.limited_by == Some(Limit::Slice)
}

/// Mean of the quantity that live hosts have for each share, weighted by their shares. Hosts that want more count, and so do hosts without
/// control that have more than these. `None` if there are fewer than two.
fn mean_per_share(live: &[&mut Host]) -> Option<f64> {
    let all = live.iter().filter_map(|host| {
        let shares = if wants(host) { host.active_shares } else { f64::from(host.shares) };
        Some((host.per_share?, shares, wants(host)))
    });
    let all: Vec<_> = all.collect();
    let mean = |above: f64| {
        let counted = all.iter().filter(|(per_share, _, wants)| *wants || *per_share > above);
        let sums = counted.fold((0, 0.0, 0.0), |(count, had, shares), (per_share, each, _)| {
            (count + 1, had + per_share * each, shares + each)
        });
        Some(sums)
            .filter(|(_, had, _)| *had > 0.0)
            .map(|(count, had, shares)| (count, had / shares))
    };
    let (_, of_those_that_want) = mean(f64::INFINITY)?;
    let (count, mean) = mean(of_those_that_want)?;
    (count > 1).then_some(mean)
}

/// Divided quantity of a host for each share of its VMs that want more. Without control, all its shares count.
fn per_share(report: &Report) -> Option<f64> {
    let throughput = report.settings.is_some_and(|settings| settings.costs.is_some());
    let slices = report.bounded == Bounded::Slices;
    let (had, shares) = match slices {
        _ if throughput => (report.saturated.rate, report.saturated.shares),
        true => (report.outstanding, report.active),
        false => (report.outstanding, f64::from(report.shares.0)),
    };
    let counts = (slices || report.in_force().is_none()) && shares > 0.0;
    counts.then(|| had / shares).filter(|per_share| per_share.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that wants more, with so many active shares, and so much for each of them.
    fn host(active_shares: f64, per_share: Option<f64>) -> Host {
        let (liveness, limited_by) = (Liveness::Live, Some(Limit::Slice));
        Host { liveness, limited_by, shares: 1000, active_shares, per_share, ..Host::default() }
    }

    fn of_share<const N: usize>(mut hosts: [Host; N]) -> [Option<f64>; N] {
        compare(&mut hosts);
        hosts.map(|host| host.of_share)
    }

    #[test]
    fn a_host_is_compared_with_the_live_hosts_that_want_more() {
        let (one, other) = (host(1000.0, Some(0.01)), host(3000.0, Some(0.03)));
        let left = Host { liveness: Liveness::Left, ..one.clone() };
        assert_eq!(of_share([one, other, left]), [Some(0.4), Some(1.2), None]);
        let alone = [host(1000.0, Some(0.01)), host(500.0, None)];
        assert_eq!(of_share(alone), [None, None], "nobody to compare with");
    }

    #[test]
    fn a_host_without_control_counts_where_it_has_more_than_its_share() {
        let free =
            |per_share| Host { limited_by: Some(Limit::Depth), ..host(0.0, Some(per_share)) };
        let of = |greedy: Host| of_share([host(1000.0, Some(0.01)), greedy]);
        assert_eq!(of(free(0.03)), [Some(0.5), Some(1.5)]);
        assert_eq!(of(free(0.001)), [None, None], "it may want no more");
    }
}
