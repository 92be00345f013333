//! The transport over etcd. In each period a host reads all keys of its volume and writes its own key. The number of hosts
//! is not bounded; [`pace`] makes the periods of many hosts longer.
//!
//! `docs/exchange-etcd.md` has keys, values and leases. A separate thread makes all calls. The control thread waits for at
//! most a part of its period. Late answers are taken in the next period.

use std::time::Duration;

use parda_control::{Instant, Span};
use parda_etcd::EtcdClient;

use crate::exchange::{Collected, Exchange, ExchangeError, Standing};
use crate::identity::{HostName, Identity, Incarnation, Sequence, VolumeId};
use crate::message::{Message, Publication};

use reading::Reader;
use worker::{Worker, Write};

mod pace;
mod reading;
mod value;
mod worker;

pub use pace::pace;
pub use reading::EtcdStanding;

/// Time of a lease, in periods of the host.
const LEASE_PERIODS: u32 = 10;

/// Shortest lease, in seconds, so that a lease outlasts the election of a leader.
const LEAST_LEASE: u64 = 8;

/// Settings of a host's exchange over etcd.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// Name of this host.
    pub host: HostName,
    /// Name of the volume.
    pub volume: String,
    /// Beginning of all keys.
    pub prefix: String,
    /// Endpoints of the cluster, and this host's certificates and user there.
    pub cluster: parda_etcd::EtcdAccess,
    /// Time limits of calls.
    pub limits: EtcdLimits,
}

/// Time limits of calls to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdLimits {
    /// Longest wait of a collection or a publication for its answer.
    pub wait: Duration,
    /// Time that each endpoint has for its answer, on the thread that makes the calls.
    pub attempt: Duration,
}

impl EtcdLimits {
    /// Limits for a period. A collection and a publication together wait for at most half of it, and a silent endpoint
    /// costs one period. The least limit is a second: a busy host needs that for the TLS connection after a failed
    /// attempt.
    #[must_use]
    pub fn of(period: Span) -> EtcdLimits {
        let period = Duration::from(period);
        EtcdLimits {
            wait: (period / 4).clamp(Duration::from_millis(20), Duration::from_secs(1)),
            attempt: period.clamp(Duration::from_secs(1), Duration::from_secs(5)),
        }
    }
}

/// An exchange over etcd.
#[derive(Debug)]
pub struct EtcdExchange {
    me: Identity,
    volume: VolumeId,
    key: Vec<u8>,
    sequence: Sequence,
    limits: EtcdLimits,
    worker: Worker,
    reader: Reader,
    unread: Steady,
    unwritten: Steady,
}

impl EtcdExchange {
    /// An exchange over etcd, not connected yet, as a cluster may start later than its hosts. Each exchange is an
    /// incarnation of its own, as its sequence numbers begin anew.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(settings: EtcdSettings) -> std::io::Result<EtcdExchange> {
        let me = Identity { host: settings.host.clone(), incarnation: Incarnation::starting_now() };
        let volume = VolumeId::of(&settings.volume);
        let keys = value::prefix(&settings.prefix, &settings.volume);
        let client = EtcdClient::new(settings.cluster, me.host.id().0);
        Ok(EtcdExchange {
            key: value::key(&keys, &me),
            worker: Worker::start(client, keys.clone(), settings.limits.attempt)?,
            reader: Reader::new(me.clone(), volume, keys),
            me,
            volume,
            sequence: Sequence::default(),
            limits: settings.limits,
            unread: Steady::default(),
            unwritten: Steady::default(),
        })
    }
}

/// Time of the lease for a period. Similar periods have the same time, so that a small change needs no new lease.
fn lease(period: Span) -> Duration {
    let seconds = (period.secs() * f64::from(LEASE_PERIODS)).ceil() as u64;
    Duration::from_secs(seconds.clamp(LEAST_LEASE, 1 << 20).next_power_of_two())
}

/// Filter of faults: the first of several in a row stays until another one persists. Endpoints are asked in turn, and
/// their faults may differ for one cause.
#[derive(Debug, Default)]
struct Steady {
    said: Option<ExchangeError>,
    met: Option<ExchangeError>,
    /// Number of times that `met` was met in a row.
    times: u32,
}

impl Steady {
    /// Number of times in a row that a fault is met before it replaces the reported one.
    const STAYS: u32 = 4;

    fn keep<T>(&mut self, result: Result<T, ExchangeError>) -> Result<T, ExchangeError> {
        let fault = match result {
            Ok(answer) => {
                *self = Steady::default();
                return Ok(answer);
            }
            Err(fault) => fault,
        };
        if self.met.as_ref() != Some(&fault) {
            self.times = 0;
        }
        self.times += 1;
        if self.times >= Self::STAYS {
            self.said = Some(fault.clone());
        }
        self.met = Some(fault.clone());
        Err(self.said.get_or_insert(fault).clone())
    }
}

impl Exchange for EtcdExchange {
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        self.sequence = self.sequence.next();
        let message = Message::new(self.me.clone(), self.sequence, publication.clone());
        let value = value::encode(self.volume, message)
            .map_err(|error| ExchangeError::new(format!("exchange etcd: {error}")))?;
        let lease = lease(publication.period);
        let write = Write { key: self.key.clone(), value, lease };
        // A goodbye waits longer, as no later period delivers it.
        let wait = if publication.leaving { self.limits.wait * 2 } else { self.limits.wait };
        let written = self.worker.write(write, wait);
        self.unwritten.keep(written)
    }

    fn collect(&mut self, _: Instant) -> Result<Collected, ExchangeError> {
        let read = self.worker.read(self.limits.wait);
        let pairs = self.unread.keep(read)?;
        Ok(Collected { messages: self.reader.take_in(&pairs), events: Vec::new() })
    }

    /// Reads certificates and password again.
    fn reload(&mut self) {
        self.worker.reload();
    }

    fn loads_array(&self) -> bool {
        false
    }

    fn least_period(&self, hosts: usize) -> Span {
        pace(hosts)
    }

    fn standing(&self) -> Standing {
        let (endpoint, traffic, leases) = self.worker.standing();
        let ignored = self.reader.counters.ignored().map(|(why, count)| (why.to_owned(), count));
        let (ignored, ignored_key) = (ignored.into(), self.reader.ignored_key());
        Standing::Etcd(EtcdStanding { endpoint, traffic, leases, ignored, ignored_key })
    }
}

/// Reason why the keys of a volume cannot be read; `None` if they can. Writes nothing. `limit`: time for the answer of all
/// endpoints together.
#[must_use]
pub fn examine(
    cluster: &parda_etcd::EtcdAccess,
    prefix: &str,
    volume: &str,
    limit: Duration,
) -> Option<String> {
    let limit = limit / cluster.endpoints.len().max(1) as u32;
    let keys = value::prefix(prefix, volume);
    let found = EtcdClient::new(cluster.clone(), 0).range(&keys, worker::MOST_KEYS, limit);
    found.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_for_ten_periods_and_small_changes_keep_it() {
        let of = |ms| lease(Span::from_millis(ms)).as_secs();
        assert_eq!([of(0), of(100), of(800), of(1_000), of(1_600)], [8, 8, 8, 16, 16]);
        assert_eq!(of(60_000), 1024);
    }

    #[test]
    fn a_row_of_faults_is_told_as_one() {
        let mut steady = Steady::default();
        let mut told = |fault: Result<(), ExchangeError>| {
            steady.keep(fault).map_err(|error| error.to_string())
        };
        let late = |ms| Err(ExchangeError::new(format!("no answer within {ms}ms")));
        let first = told(late(1)).unwrap_err();
        assert_eq!(told(late(2)).unwrap_err(), first);
        told(Ok(())).unwrap();
        assert_ne!(told(late(2)).unwrap_err(), first);
        for _ in 0..100 {
            assert!(told(late(3)).unwrap_err().contains("2ms"), "endpoints that take turns");
            assert!(told(late(4)).unwrap_err().contains("2ms"));
        }
        for _ in 0..3 {
            assert!(told(late(3)).unwrap_err().contains("2ms"));
        }
        assert!(told(late(3)).unwrap_err().contains("3ms"), "what stays is told");
    }

    #[test]
    fn waits_are_parts_of_the_period() {
        let limits = |ms| EtcdLimits::of(Span::from_millis(ms));
        assert_eq!(limits(1_000).wait, Duration::from_millis(250));
        assert_eq!(limits(60_000).wait, Duration::from_secs(1));
        assert_eq!(limits(250).attempt, Duration::from_secs(1));
        assert_eq!(limits(2_000).attempt, Duration::from_secs(2));
    }
}
