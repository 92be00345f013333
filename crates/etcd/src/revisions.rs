//! Reads with revisions, and transactions that depend on a revision: of several writers at once, one makes its change.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::EtcdClient;
use crate::error::{EtcdError, EtcdFault};
use crate::wire;

/// A key, its value, and the revision in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name under which etcd has the value.
    pub key: Vec<u8>,
    /// Bytes that were written last.
    pub value: Vec<u8>,
    /// Revision of the cluster in which it was written last.
    pub revision: i64,
    /// Identity of the lease that the key is attached to, if there is one.
    pub lease: Option<String>,
}

/// Result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResult {
    /// Latest revision of the cluster at the member that answered.
    pub revision: i64,
    /// Keys that were found, in their order.
    pub entries: Vec<Entry>,
}

/// Keys that one read or deletion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdKeys<'a> {
    /// One key, by its whole name.
    One(&'a [u8]),
    /// All keys that begin with this prefix.
    Prefix(&'a [u8]),
    /// All keys from the first to the second, without the second.
    Between(&'a [u8], &'a [u8]),
}

impl EtcdKeys<'_> {
    fn json(self) -> Value {
        match self {
            EtcdKeys::One(key) => json!({ "key": wire::base64(key) }),
            EtcdKeys::Prefix(prefix) => EtcdKeys::Between(prefix, &wire::after(prefix)).json(),
            EtcdKeys::Between(from, to) => {
                json!({ "key": wire::base64(from), "range_end": wire::base64(to) })
            }
        }
    }
}

/// A write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Writes a key without a lease, which stays.
    Put(&'a [u8], &'a [u8]),
    /// Removes keys and their values.
    Delete(EtcdKeys<'a>),
}

/// Most operations of a transaction, by etcd's default (`--max-txn-ops`).
pub const MOST_WRITES: usize = 128;

#[derive(Debug, Deserialize)]
struct Header {
    #[serde(default)]
    revision: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pair {
    key: String,
    value: String,
    #[serde(alias = "modRevision")]
    mod_revision: String,
    lease: String,
}

#[derive(Debug, Default, Deserialize)]
struct RangeAnswer {
    #[serde(default)]
    kvs: Vec<Pair>,
    #[serde(default)]
    more: bool,
}

#[derive(Debug, Deserialize)]
struct OneRange {
    header: Header,
    #[serde(flatten)]
    range: RangeAnswer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    #[serde(alias = "responseRange")]
    response_range: RangeAnswer,
}

#[derive(Debug, Deserialize)]
struct Transaction {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct TimeToLive {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default, rename = "TTL")]
    ttl: String,
    #[serde(default, rename = "grantedTTL")]
    granted: String,
}

/// Time of a lease, as granted and as left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTime {
    /// Whole time of the lease, without renewal.
    pub granted: Duration,
    /// Time until the lease ends, without renewal.
    pub left: Duration,
}

impl EtcdClient {
    /// A key, if it was written in revision `since` of the cluster or later. The member that answers may lag behind the others. An answer
    /// without the key takes some hundred bytes, and no round between members.
    pub fn changed_since(
        &mut self,
        key: &[u8],
        since: i64,
        limit: Duration,
    ) -> Result<ReadResult, EtcdError> {
        let mut body = EtcdKeys::One(key).json();
        body["serializable"] = true.into();
        body["min_mod_revision"] = since.to_string().into();
        let found: OneRange = self.call("kv/range", &body, limit)?;
        self.found(&found.header, vec![found.range])
    }

    /// Keys as they are at one revision that a majority of the members has.
    pub fn read(
        &mut self,
        keys: &[EtcdKeys<'_>],
        limit: Duration,
    ) -> Result<ReadResult, EtcdError> {
        let reads: Vec<_> =
            keys.iter().map(|keys| json!({ "request_range": keys.json() })).collect();
        let answer: Transaction = self.call("kv/txn", &json!({ "success": reads }), limit)?;
        let ranges = answer.responses.into_iter().map(|response| response.response_range);
        self.found(&answer.header, ranges.collect())
    }

    /// All keys that begin with `prefix`, from the member that answers, which may lag behind the others. Refused if there are more
    /// than `most`. Waits at most `limit` for each endpoint.
    pub fn range(
        &mut self,
        prefix: &[u8],
        most: usize,
        limit: Duration,
    ) -> Result<Vec<Entry>, EtcdError> {
        let mut body = EtcdKeys::Prefix(prefix).json();
        body["serializable"] = true.into();
        body["limit"] = most.to_string().into();
        let found: OneRange = self.call("kv/range", &body, limit)?;
        if found.range.more {
            let what = format!("more than {most} keys with one prefix");
            return Err(self.error(EtcdFault::Refused(what)));
        }
        self.found(&found.header, vec![found.range]).map(|found| found.entries)
    }

    /// All keys that begin with `prefix`, so many in one call. Their values may exceed the size of one answer.
    pub fn list(
        &mut self,
        prefix: &[u8],
        page: usize,
        limit: Duration,
    ) -> Result<Vec<Entry>, EtcdError> {
        let mut body = EtcdKeys::Prefix(prefix).json();
        body["limit"] = page.to_string().into();
        let mut all = Vec::new();
        loop {
            let found: OneRange = self.call("kv/range", &body, limit)?;
            let more = found.range.more;
            let entries = self.found(&found.header, vec![found.range])?.entries;
            let last = entries.last().map(|entry| [&entry.key[..], &[0]].concat());
            all.extend(entries);
            match last {
                Some(next) if more => body["key"] = wire::base64(&next).into(),
                _ => return Ok(all),
            }
        }
    }

    /// Makes all writes at once, or none. Condition: `key` was written last in `revision` (0: the key does not exist). Returns whether
    /// they were made. A call whose answer was lost may have made them. The repeated call then returns false.
    pub fn write_if(
        &mut self,
        (key, revision): (&[u8], i64),
        writes: &[Write<'_>],
        limit: Duration,
    ) -> Result<bool, EtcdError> {
        let writes = writes.iter().map(|write| match write {
            Write::Put(key, value) => {
                json!({ "request_put": { "key": wire::base64(key), "value": wire::base64(value) } })
            }
            Write::Delete(keys) => json!({ "request_delete_range": keys.json() }),
        });
        let body = json!({
            "compare": [{
                "key": wire::base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string(),
            }],
            "success": writes.collect::<Vec<_>>(),
        });
        let answer: Transaction = self.call("kv/txn", &body, limit)?;
        Ok(answer.succeeded)
    }

    /// Time of the lease of an entry; `None` if it has ended.
    pub fn time_of(
        &mut self,
        lease: &str,
        limit: Duration,
    ) -> Result<Option<LeaseTime>, EtcdError> {
        let left: TimeToLive = self.call("lease/timetolive", &json!({ "ID": lease }), limit)?;
        let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
        Ok(seconds(&left.granted)
            .zip(seconds(&left.ttl))
            .map(|(granted, left)| LeaseTime { granted, left }))
    }

    fn found(&self, header: &Header, ranges: Vec<RangeAnswer>) -> Result<ReadResult, EtcdError> {
        let entry = |pair: Pair| {
            Some(Entry {
                key: wire::bytes(&pair.key)?,
                value: wire::bytes(&pair.value)?,
                revision: pair.mod_revision.parse().ok()?,
                lease: Some(pair.lease).filter(|lease| !matches!(lease.as_str(), "" | "0")),
            })
        };
        let entries = ranges.into_iter().flat_map(|range| range.kvs).map(entry).collect();
        let found = Some(header.revision.parse().unwrap_or(0)).zip(entries);
        let found = found.map(|(revision, entries)| ReadResult { revision, entries });
        found.ok_or_else(|| self.error(EtcdFault::NotUnderstood("no entries of etcd".to_owned())))
    }
}
