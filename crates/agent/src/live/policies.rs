//! Policies of this host's volumes, and the file that keeps them.

use std::collections::BTreeMap;
use std::path::Path;

use parda_config::short;
use parda_policy::check::check_volume;
use parda_policy::stored::FORMAT;
use parda_policy::{PolicyHead, Stored};
use serde::{Deserialize, Serialize};

use super::state_file::StateFile;

/// Volumes whose policy is not in force, with the reason.
pub(crate) type Refused = BTreeMap<String, String>;

/// Policies of volumes, without keys that this version does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Policies {
    /// The revision that was read last, if there is a policy.
    pub(crate) head: Option<PolicyHead>,
    /// Policy of each volume that has one.
    #[serde(default)]
    pub(crate) volumes: Vec<Stored>,
}

impl Policies {
    /// The policies that were in force last, from their file. A file that cannot be read is logged, and counts as empty.
    pub(super) fn read(path: &Path) -> Policies {
        let mut kept: Policies = StateFile::policy(path).read().unwrap_or_else(|error| {
            tracing::error!(
                event = "state_unreadable",
                "{error}; the policy that was last in force here is not in force until etcd has been read"
            );
            Policies::default()
        });
        kept.volumes = kept.volumes.into_iter().filter_map(|stored| known(path, stored)).collect();
        kept
    }

    /// Policy of a volume, if it has one.
    pub(crate) fn of(&self, volume: &str) -> Option<&Stored> {
        self.volumes.iter().find(|stored| stored.volume.name == volume)
    }

    /// Volumes whose policy is wrong by itself, on any host, with the reason.
    pub(super) fn check(&self) -> Refused {
        let wrong = |stored: &Stored| {
            let fault = check_volume(&stored.volume).err()?;
            Some((stored.volume.name.clone(), fault))
        };
        self.volumes.iter().filter_map(wrong).collect()
    }

    /// Puts a policy in the place of that of a volume; `None` takes it out.
    pub(super) fn replace(&mut self, volume: &str, policy: Option<Stored>) {
        self.volumes.retain(|stored| stored.volume.name != volume);
        self.volumes.extend(policy);
    }
}

/// The part of a kept policy that this version knows, as a newer version may have written the file.
fn known(path: &Path, stored: Stored) -> Option<Stored> {
    let Stored { format, revision, volume } = stored;
    if format != FORMAT {
        tracing::error!(
            volume = volume.name,
            event = "state_unreadable",
            "{}: revision {revision} is of format {format}, and this version knows format {FORMAT}; it is not in force until etcd has been read",
            path.display()
        );
        return None;
    }
    let (volume, unknown) = volume.known();
    if !unknown.is_empty() {
        tracing::warn!(
            volume = volume.name,
            event = "policy_unknown",
            "{}: {} is not known to this version, and has no effect; the rest is in force",
            path.display(),
            short(&unknown.join(", "))
        );
    }
    Some(Stored { format, revision, volume })
}
