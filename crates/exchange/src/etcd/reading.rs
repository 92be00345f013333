//! Interpretation of a read of all keys of a volume, without sockets or clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use parda_control::Instant;
use parda_etcd::KeyValue;

use crate::exchange::Collected;
use crate::freshness::{Freshness, Liveness, Watch};
use crate::identity::{Identity, Incarnation, Sequence, VolumeId};
use crate::message::Message;

use super::notice::EtcdEvent;
use super::value;
use crate::counters::RecordCounters;

/// Most other runs of this host's name that are watched.
const MOST_TWINS: usize = 64;

/// Reads values, and finds other live runs of this host's name.
#[derive(Debug)]
pub(super) struct Reader {
    me: Identity,
    volume: VolumeId,
    keys: Vec<u8>,
    freshness: Freshness,
    twins: BTreeMap<Incarnation, Watch<Sequence>>,
    told: Option<Incarnation>,
    counters: RecordCounters,
    /// Key of the last value that was ignored.
    ignored: Option<Vec<u8>>,
}

impl Reader {
    pub(super) fn new(
        me: Identity,
        volume: VolumeId,
        keys: Vec<u8>,
        freshness: Freshness,
    ) -> Reader {
        let counters = RecordCounters::default();
        let (twins, told, ignored) = (BTreeMap::new(), None, None);
        Reader { me, volume, keys, freshness, twins, told, counters, ignored }
    }

    pub(super) fn counters(&self) -> RecordCounters {
        self.counters
    }

    /// Key of the last value that was ignored, as text.
    pub(super) fn ignored_key(&self) -> Option<String> {
        let key = String::from_utf8_lossy(self.ignored.as_ref()?);
        Some(key.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    }

    /// Takes over the keys and values of a read.
    pub(super) fn take_in(&mut self, now: Instant, pairs: &[KeyValue]) -> Collected<EtcdEvent> {
        let messages = pairs.iter().filter_map(|pair| {
            let message = self.message(pair);
            if message.is_none() {
                self.ignored = Some(pair.key.clone());
            }
            message
        });
        let messages: Vec<_> = messages.collect();
        let events = self.find_twin(now, &messages).into_iter().collect();
        Collected { messages, events }
    }

    fn message(&mut self, pair: &KeyValue) -> Option<Arc<Message>> {
        let record = match value::decode(&pair.value) {
            Some(Ok(record)) => record,
            Some(Err(fault)) => {
                self.counters.count_fault(&fault);
                return None;
            }
            None => {
                self.counters.foreign += 1;
                return None;
            }
        };
        if record.volume != self.volume {
            self.counters.other_volume += 1;
            return None;
        }
        // A record in another key than its own is a copy, which only a fault makes.
        if pair.key != value::key(&self.keys, &record.message.from) {
            self.counters.malformed += 1;
            return None;
        }
        self.counters.records += 1;
        Some(Arc::new(record.message))
    }

    /// Another run of this host's name whose record changes. That of an earlier run of this host does not.
    fn find_twin(&mut self, now: Instant, messages: &[Arc<Message>]) -> Option<EtcdEvent> {
        let others = messages.iter().filter(|message| {
            message.from.host == self.me.host && message.from.incarnation != self.me.incarnation
        });
        let others: Vec<_> = others.take(MOST_TWINS).collect();
        self.twins.retain(|run, _| others.iter().any(|other| other.from.incarnation == *run));
        let mut twin = None;
        for other in others {
            let run = other.from.incarnation;
            let watch = self.twins.entry(run).or_insert_with(|| Watch::new(now, other.sequence));
            watch.look(now, other.sequence);
            let body = &other.body;
            let is_live =
                watch.liveness(now, body.period, self.freshness) == Liveness::Live && !body.leaving;
            if is_live {
                twin = Some(&other.from);
            }
        }
        let twin = twin?;
        self.counters.duplicate_hosts += 1;
        let is_news = self.told.replace(twin.incarnation) != Some(twin.incarnation);
        is_news.then(|| EtcdEvent::DuplicateHost { twin: twin.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::RECORD_BYTES;
    use crate::testing::{at, identity};

    fn volume() -> VolumeId {
        VolumeId::of("array-a")
    }

    fn keys() -> Vec<u8> {
        value::prefix("/parda/", "array-a")
    }

    fn pair(host: &str, run: u64, sequence: u64) -> KeyValue {
        let message = crate::testing::message(identity(host, run), sequence);
        let key = value::key(&keys(), &message.from);
        KeyValue { key, value: value::encode(volume(), message).unwrap() }
    }

    fn reader() -> Reader {
        Reader::new(identity("me", 5), volume(), keys(), Freshness::default())
    }

    #[test]
    fn keys_can_be_read_by_people() {
        let key = value::key(&keys(), &identity("kvm-01", 5));
        assert_eq!(key, b"/parda/exchange/array-a/kvm-01/0000000000000005");
    }

    #[test]
    fn what_is_no_record_of_this_volume_and_key_is_ignored_and_counted() {
        let mut reader = reader();
        let good = pair("a", 1, 1);
        let mut damaged = pair("b", 1, 1);
        damaged.value[100] ^= 1;
        let mut version = pair("b", 1, 1);
        version.value[8] = 9;
        let short = KeyValue { value: vec![7; 9], ..pair("b", 1, 1) };
        let noise = KeyValue { value: vec![7; RECORD_BYTES], ..pair("b", 1, 1) };
        let zeros = KeyValue { value: vec![0; RECORD_BYTES], ..pair("b", 1, 1) };
        let copied = KeyValue { key: pair("b", 1, 1).key, ..good.clone() };
        let message = crate::testing::message(identity("b", 1), 1);
        let other = KeyValue {
            value: value::encode(VolumeId::of("array-b"), message).unwrap(),
            ..pair("b", 1, 1)
        };
        let all = [good, damaged, version, short, noise, zeros, copied, other];
        assert_eq!(reader.take_in(at(0), &all).messages.len(), 1);
        let expected = RecordCounters {
            records: 1,
            other_volume: 1,
            other_version: 1,
            damaged: 1,
            malformed: 1,
            foreign: 3,
            duplicate_hosts: 0,
            slot_conflicts: 0,
        };
        assert_eq!(reader.counters(), expected);
        assert_eq!(reader.counters().ignored().iter().map(|(_, count)| count).sum::<u64>(), 7);
    }

    #[test]
    fn the_run_before_is_no_twin_and_one_that_changes_is_told_once() {
        let mut reader = reader();
        for period in 0..6 {
            let all = [pair("me", 1, 7), pair("me", 5, period)];
            assert_eq!(reader.take_in(at(period), &all).events, []);
        }
        let mut told = 0;
        for period in 6..12 {
            told += reader.take_in(at(period), &[pair("me", 9, period)]).events.len();
        }
        assert_eq!((told, reader.counters().duplicate_hosts), (1, 5));
        assert_eq!(reader.take_in(at(16), &[pair("me", 9, 11)]).events, [], "it fell silent");
        assert_eq!(reader.counters().duplicate_hosts, 5);
    }
}
