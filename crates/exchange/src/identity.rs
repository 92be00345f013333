//! Identity of a sender: host names, incarnations, sequence numbers, volumes.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of a host, unique among the hosts of a volume. UTF-8 of 1 to 64 bytes, without control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName {
    name: Arc<str>,
    id: HostId,
}

/// Why a text is no host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostNameError(String);

impl HostName {
    /// The longest name that fits a slot, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// A host's name, checked.
    pub fn new(name: &str) -> Result<HostName, HostNameError> {
        let wrong = |why: String| Err(HostNameError(why));
        if name.is_empty() {
            wrong("a host name must not be empty".to_owned())
        } else if name.len() > Self::MAX_BYTES {
            let (bytes, most) = (name.len(), Self::MAX_BYTES);
            wrong(format!("host name '{name}' has {bytes} bytes; at most {most} fit a slot"))
        } else if name.chars().any(char::is_control) {
            // A newline or an escape would forge log lines.
            wrong(format!("host name {name:?} contains a control character"))
        } else {
            Ok(HostName { name: name.into(), id: HostId(fnv1a(name.as_bytes())) })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The number that stands for this name.
    #[must_use]
    pub fn id(&self) -> HostId {
        self.id
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A host as a number: the FNV-1a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl HostId {
    /// Phase of the host's visits within its period, from 0 to below 1. Hosts that were started
    /// together should not all visit the exchange at once.
    #[must_use]
    pub fn phase(self) -> f64 {
        (self.0 % 1000) as f64 / 1000.0
    }
}

/// A volume as a number: the FNV-1a hash of its name. A file of another volume is told by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl VolumeId {
    /// The number that stands for the volume called `name`.
    #[must_use]
    pub fn of(name: &str) -> VolumeId {
        VolumeId(fnv1a(name.as_bytes()))
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One run of a host's agent. A later start has a larger number, unless the host's clock goes
/// backwards between two starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The random low bits: two hosts that start at the same moment still differ. Their range, 2²⁰
    /// ns, is about a millisecond, far less than any restart takes.
    const RANDOM_BITS: u64 = (1 << 20) - 1;

    /// A run that started `started_ns` nanoseconds after the Unix epoch.
    #[must_use]
    pub fn new(started_ns: u64, random: u64) -> Incarnation {
        Incarnation((started_ns & !Self::RANDOM_BITS) | (random & Self::RANDOM_BITS))
    }

    /// A run that starts now.
    #[must_use]
    pub fn starting_now() -> Incarnation {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Incarnation::new(started_ns, RandomState::new().build_hasher().finish())
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of a publication within its incarnation. The number may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0.wrapping_add(1))
    }

    /// Whether this is the later of two, as long as they are not 2⁶³ apart.
    #[must_use]
    pub fn is_after(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i64) > 0
    }
}

/// A host and the run of it that speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the host.
    pub host: HostName,
    /// Which run of its agent.
    pub incarnation: Incarnation,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host '{}' (run {})", self.host, self.incarnation)
    }
}

/// FNV-1a, 64 bits: part of the slot format, so it must never change (draft-eastlake-fnv).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn names_are_checked() {
        assert!(HostName::new("kvm-01").is_ok());
        assert!(HostName::new(&"x".repeat(64)).is_ok());
        let long = "é".repeat(33);
        for (name, why) in [("", "empty"), (&long, "66 bytes"), ("a\nb", "control character")] {
            let error = HostName::new(name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_later_start_is_a_larger_incarnation_whatever_the_random_bits() {
        let second = 1_000_000_000;
        assert!(Incarnation::new(7 * second, u64::MAX) < Incarnation::new(8 * second, 0));
        assert_ne!(Incarnation::new(7 * second, 1), Incarnation::new(7 * second, 2));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let last = Sequence(u64::MAX);
        assert_eq!(last.next(), Sequence(0));
        assert!(last.next().is_after(last) && !last.is_after(last.next()));
        assert!(!last.is_after(last));
    }
}
