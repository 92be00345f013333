//! Requests and answers as JSON. Bytes are base64 and 64-bit numbers are text, as in all of the gateway.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::error::EtcdFault;

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The first key behind all that begin with `prefix`.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// Answer to a write.
#[derive(Debug, Deserialize)]
pub(crate) struct WriteAnswer {
    #[serde(rename = "header")]
    _header: Header,
}

/// Tells an answer of etcd from one of another server.
type Header = std::collections::BTreeMap<String, Value>;

/// Answer to a lease's grant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Granted {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(rename = "TTL")]
    pub(crate) ttl: String,
}

/// Answer to a lease's renewal: the first message of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Renewed {
    pub(crate) result: Granted,
}

/// Answer to a user and password.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    pub(crate) token: String,
}

/// A refusal. Versions differ in which of the two texts they give.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: Value,
    message: String,
    code: i64,
}

/// gRPC's codes, as far as they tell what to do.
mod code {
    pub(super) const DEADLINE_EXCEEDED: i64 = 4;
    pub(super) const PERMISSION_DENIED: i64 = 7;
    pub(super) const UNAVAILABLE: i64 = 14;
    pub(super) const UNAUTHENTICATED: i64 = 16;
}

/// The fault that an answer with a failed HTTP status describes.
pub(crate) fn refusal(status: u16, body: &[u8]) -> EtcdFault {
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return EtcdFault::NotUnderstood(format!("HTTP status {status}"));
    };
    let text = match (&refusal.error, refusal.message) {
        (_, message) if !message.is_empty() => message,
        (Value::String(error), _) => error.clone(),
        // Of a stream, whose messages are wrapped once more.
        (error, _) => error["message"].as_str().unwrap_or("unknown").to_owned(),
    };
    let text = text.strip_prefix("etcdserver: ").unwrap_or(&text).to_owned();
    let has = |part: &str| text.contains(part);
    match refusal.code {
        _ if has("requested lease not found") => EtcdFault::NoLease,
        _ if has("invalid auth token") || has("revision of auth store is old") => {
            EtcdFault::Token(text)
        }
        code::UNAUTHENTICATED => EtcdFault::Token(text),
        _ if has("user name is empty") => {
            EtcdFault::Denied("asks for a user: add user and password_file".to_owned())
        }
        _ if has("authentication failed") => {
            EtcdFault::Denied("refuses the user or the password".to_owned())
        }
        code::PERMISSION_DENIED => EtcdFault::Denied(format!("refuses the user: {text}")),
        code::UNAVAILABLE | code::DEADLINE_EXCEEDED => EtcdFault::Unavailable(text),
        _ if has("no leader") || has("request timed out") => EtcdFault::Unavailable(text),
        _ => EtcdFault::Refused(text),
    }
}

/// Whether a refusal says that this etcd has no users.
pub(crate) fn has_no_users(fault: &EtcdFault) -> bool {
    matches!(fault, EtcdFault::Refused(text) if text.contains("authentication is not enabled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(after(b"/a/"), b"/a0");
        assert_eq!(after(b"a\xff"), b"b");
        assert_eq!(after(b"\xff\xff"), [0]);
        assert_eq!(after(b""), [0]);
    }

    #[test]
    fn refusals_are_told_apart_however_a_version_words_them() {
        let of = |body: &str| refusal(500, body.as_bytes());
        let old = r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
        assert!(matches!(of(old), EtcdFault::NoLease));
        assert!(matches!(
            of(r#"{"code":5,"message":"etcdserver: requested lease not found","details":[]}"#),
            EtcdFault::NoLease
        ));
        assert!(matches!(
            of(r#"{"error":"etcdserver: invalid auth token","code":16}"#),
            EtcdFault::Token(_)
        ));
        assert!(matches!(
            of(r#"{"error":"etcdserver: no leader","code":14}"#),
            EtcdFault::Unavailable(_)
        ));
        assert!(matches!(
            of(r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#),
            EtcdFault::Unavailable(text) if text == "no leader"
        ));
        assert!(matches!(
            of(r#"{"error":"etcdserver: permission denied","code":7}"#),
            EtcdFault::Denied(_)
        ));
        assert!(matches!(of("404 page not found"), EtcdFault::NotUnderstood(_)));
        assert!(matches!(of(r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#),
            EtcdFault::Refused(text) if text.contains("space exceeded")));
        assert!(has_no_users(&of(
            r#"{"error":"etcdserver: authentication is not enabled","code":9}"#
        )));
    }
}
