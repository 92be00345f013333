//! Interpretation of a read of all keys of a volume, without sockets or clock, and the state of the exchange.

use std::collections::BTreeMap;
use std::sync::Arc;

use parda_etcd::{Entry, Traffic};

use crate::identity::{Identity, VolumeId};
use crate::message::Message;

use super::value;
use crate::counters::RecordCounters;

/// The state of an exchange over etcd. All is counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct EtcdStanding {
    /// The endpoint that is asked.
    pub endpoint: String,
    /// Calls to the cluster, with their bytes.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub traffic: Traffic,
    /// Leases that were granted: more than one if some ran out or the period grew.
    pub leases: u64,
    /// Values that counted for nothing, by the reason.
    pub ignored: BTreeMap<String, u64>,
    /// Key of the last one of them.
    pub ignored_key: Option<String>,
}

/// Reads the values of the other runs.
#[derive(Debug)]
pub(super) struct Reader {
    me: Identity,
    volume: VolumeId,
    keys: Vec<u8>,
    pub(super) counters: RecordCounters,
    /// Key of the last value that was ignored.
    ignored: Option<Vec<u8>>,
}

impl Reader {
    pub(super) fn new(me: Identity, volume: VolumeId, keys: Vec<u8>) -> Reader {
        Reader { me, volume, keys, counters: RecordCounters::default(), ignored: None }
    }

    /// Key of the last value that was ignored, as text.
    pub(super) fn ignored_key(&self) -> Option<String> {
        let key = String::from_utf8_lossy(self.ignored.as_ref()?);
        Some(key.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    }

    /// Takes over the keys and values of a read. Returns the messages of all runs but this one.
    pub(super) fn take_in(&mut self, pairs: &[Entry]) -> Vec<Arc<Message>> {
        let messages = pairs.iter().filter_map(|pair| {
            let message = self.message(pair);
            if message.is_none() {
                self.ignored = Some(pair.key.clone());
            }
            message.filter(|message| message.from != self.me)
        });
        messages.collect()
    }

    fn message(&mut self, pair: &Entry) -> Option<Arc<Message>> {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::RECORD_BYTES;
    use crate::testing::identity;

    fn volume() -> VolumeId {
        VolumeId::of("array-a")
    }

    fn keys() -> Vec<u8> {
        value::prefix("/parda/", "array-a")
    }

    fn pair(host: &str, run: u64, sequence: u64) -> Entry {
        let message = crate::testing::message(identity(host, run), sequence);
        let key = value::key(&keys(), &message.from);
        Entry { key, value: value::encode(volume(), message).unwrap(), revision: 1, lease: None }
    }

    fn reader() -> Reader {
        Reader::new(identity("me", 5), volume(), keys())
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
        let short = Entry { value: vec![7; 9], ..pair("b", 1, 1) };
        let noise = Entry { value: vec![7; RECORD_BYTES], ..pair("b", 1, 1) };
        let zeros = Entry { value: vec![0; RECORD_BYTES], ..pair("b", 1, 1) };
        let copied = Entry { key: pair("b", 1, 1).key, ..good.clone() };
        let message = crate::testing::message(identity("b", 1), 1);
        let other = Entry {
            value: value::encode(VolumeId::of("array-b"), message).unwrap(),
            ..pair("b", 1, 1)
        };
        let all = [good, damaged, version, short, noise, zeros, copied, other];
        assert_eq!(reader.take_in(&all).len(), 1);
        let expected = RecordCounters {
            records: 1,
            other_volume: 1,
            other_version: 1,
            damaged: 1,
            malformed: 1,
            foreign: 3,
            slot_conflicts: 0,
        };
        assert_eq!(reader.counters, expected);
        assert_eq!(reader.counters.ignored().iter().map(|(_, count)| count).sum::<u64>(), 7);
    }
}
