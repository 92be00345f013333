//! Values of the keys in etcd.

use parda_config::short;
use serde::{Deserialize, Serialize};

use crate::changes::PolicyChange;
use crate::check::MOST_BYTES;
use crate::document::PolicyVolume;

/// Format number of a volume's policy. A new setting does not raise it, as an older agent can ignore the setting. A key that changes
/// the meaning of other keys raises it. Example: a key that limits a group to some hosts.
pub const FORMAT: u32 = 1;

/// Most bytes of a value: a policy, and its format and revision.
const MOST_VALUE: usize = MOST_BYTES + 64;

/// The head: the latest revision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyHead {
    /// Number of the revision: one more with each change.
    pub revision: u64,
    /// Author of the revision: the user and host of the command, and the user of etcd.
    pub by: String,
    /// When, by that host's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// Comment of the author: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A revision as the history keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Number of the revision, and who made it.
    #[serde(flatten)]
    pub head: PolicyHead,
    /// Settings that changed, up to a bound.
    pub changes: Vec<PolicyChange>,
    /// Number of changes that are not in `changes`.
    #[serde(default)]
    pub more: usize,
    /// The whole policy of the revision, as TOML.
    pub policy: String,
}

/// Policy of a volume as it is stored, in a key of etcd and in the agent's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Format that a reader must support.
    pub format: u32,
    /// Revision in which the volume's policy changed last.
    pub revision: u64,
    /// Policy of the volume.
    pub volume: PolicyVolume,
}

/// Reason why a stored policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredFault {
    /// A newer version wrote the policy, in a format whose keys may have other meanings.
    #[error(
        "revision {revision} is of format {format}, and this version knows format {FORMAT}: upgrade parda on this host"
    )]
    Newer {
        /// Format that was found.
        format: u32,
        /// Revision in which it changed last.
        revision: u64,
    },
    /// The value is no policy.
    #[error("what etcd has is no policy: {0}")]
    Damaged(String),
}

impl StoredFault {
    /// Remedy before the policy can be replaced, beside the text of the fault.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            StoredFault::Newer { .. } => "",
            StoredFault::Damaged(_) => {
                ". Remove its key below policy/volume/ (etcdctl del), and apply a policy file"
            }
        }
    }
}

impl Stored {
    /// Policy of a volume as this version writes it.
    #[must_use]
    pub fn new(revision: u64, volume: PolicyVolume) -> Stored {
        Stored { format: FORMAT, revision, volume }
    }

    /// The value of its key.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Reads the value of a key.
    pub fn read(value: &[u8]) -> Result<Stored, StoredFault> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            revision: u64,
        }
        let damaged = |error: &dyn std::fmt::Display| {
            let message = error.to_string();
            StoredFault::Damaged(short(&message.trim().replace('\n', "; ")).into_owned())
        };
        if value.len() > MOST_VALUE {
            let most = MOST_BYTES >> 10;
            let message = format!("it has {} bytes, and a policy at most {most} KiB", value.len());
            return Err(damaged(&message));
        }
        let text = std::str::from_utf8(value).map_err(|error| damaged(&error))?;
        let Version { format, revision } = toml::from_str(text).map_err(|error| damaged(&error))?;
        if format == 0 {
            return Err(damaged(&"format = 0: there is no such format"));
        }
        if format > FORMAT {
            return Err(StoredFault::Newer { format, revision });
        }
        toml::from_str(text).map_err(|error| damaged(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_was_written_and_a_newer_format_by_nobody() {
        let volume: PolicyVolume = toml::from_str(
            "name = \"a\"\n[control]\nmode = \"off\"\n[[vm]]\nname = \"x\"\nshares = 3\n",
        )
        .unwrap();
        let stored = Stored::new(7, volume);
        let text = stored.text().unwrap();
        assert_eq!(Stored::read(text.as_bytes()), Ok(stored));
        let newer = text.replace("format = 1", "format = 2").replace("[volume]", "[volume_v2]");
        let fault = Stored::read(newer.as_bytes()).unwrap_err();
        assert_eq!(fault, StoredFault::Newer { format: 2, revision: 7 });
        let zero = text.replace("format = 1", "format = 0");
        for value in ["", "x", "format = 1\nrevision = 7", "format = -1\nrevision = 7", &zero] {
            assert!(
                matches!(Stored::read(value.as_bytes()), Err(StoredFault::Damaged(_))),
                "{value}"
            );
        }
        assert!(Stored::read(b"\xff").is_err());
    }

    #[test]
    fn a_value_is_read_up_to_the_bound_of_a_policy() {
        let volume =
            |bytes: usize| PolicyVolume { name: "x".repeat(bytes), ..PolicyVolume::default() };
        let policy = |bytes| crate::document::Policy { volume: vec![volume(bytes)] };
        let most = MOST_BYTES - policy(0).text().unwrap().len();
        assert_eq!(policy(most).text().unwrap().len(), MOST_BYTES);
        let stored = Stored::new(i64::MAX as u64, volume(most));
        assert_eq!(Stored::read(stored.text().unwrap().as_bytes()), Ok(stored));
        let large = Stored::new(1, volume(most + 64)).text().unwrap();
        let fault = Stored::read(large.as_bytes()).unwrap_err().to_string();
        assert!(fault.ends_with("bytes, and a policy at most 256 KiB"), "{fault}");
    }

    #[test]
    fn a_message_quotes_a_part_of_a_long_value() {
        let value = format!("format = \"{}\"", "x".repeat(100_000));
        let fault = Stored::read(value.as_bytes()).unwrap_err().to_string();
        assert!(fault.contains("format = ") && fault.ends_with('…'), "{fault}");
        assert!(fault.chars().count() < 400, "{fault}");
    }
}
