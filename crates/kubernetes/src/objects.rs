//! Objects of the API, reduced to the needed fields: a node keeps those of the whole cluster in memory.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use kube::api::ObjectMeta;

use crate::settings::{BLOCK_IO, Claim, Class, Pod, Texts};

/// An object of the API that is reduced to a `Kept`.
pub(crate) trait Reduced {
    type Kept: PartialEq;

    /// Reduced form; `None` for an object that does not count.
    fn kept(self) -> Option<Self::Kept>;
}

/// An object's name, with its namespace if it has one.
pub(crate) fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The keys of this project alone: other annotations can be long.
fn own(texts: Option<BTreeMap<String, String>>) -> Texts {
    let own = |key: &String| key.starts_with(crate::settings::PREFIX);
    texts.unwrap_or_default().into_iter().filter(|(key, _)| own(key)).collect()
}

impl Reduced for core::Pod {
    type Kept = Pod;

    fn kept(self) -> Option<Pod> {
        let phase = self.status.and_then(|status| status.phase);
        if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let ObjectMeta { name, namespace, uid, annotations, owner_references, .. } = self.metadata;
        let (name, uid) = (name?, uid?);
        // The uid becomes a pattern of cgroups.
        if !uid.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
            return None;
        }
        let claim = |volume: core::Volume| match (volume.persistent_volume_claim, volume.ephemeral)
        {
            (Some(claim), _) => Some(claim.claim_name),
            (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
            (None, None) => None,
        };
        let mut owners = owner_references.unwrap_or_default().into_iter();
        let owner = owners.find(|owner| owner.kind == "Pod" && owner.api_version == "v1");
        let volumes = self.spec.and_then(|spec| spec.volumes).unwrap_or_default();
        Some(Pod {
            claims: volumes.into_iter().filter_map(claim).collect(),
            block_io: annotations.unwrap_or_default().into_keys().find(|k| k.starts_with(BLOCK_IO)),
            namespace: namespace.unwrap_or_default(),
            owner: owner.map(|owner| owner.uid),
            name,
            uid,
        })
    }
}

impl Reduced for core::PersistentVolumeClaim {
    type Kept = Claim;

    fn kept(self) -> Option<Claim> {
        let spec = self.spec.unwrap_or_default();
        let in_force = self.status.and_then(|status| status.current_volume_attributes_class_name);
        Some(Claim {
            annotations: own(self.metadata.annotations),
            storage: spec.storage_class_name,
            attributes: in_force.or(spec.volume_attributes_class_name),
        })
    }
}

impl Class {
    fn of(metadata: ObjectMeta, parameters: Option<Texts>) -> Class {
        Class { annotations: own(metadata.annotations), parameters: own(parameters) }
    }
}

impl Reduced for storage::StorageClass {
    type Kept = Class;

    fn kept(self) -> Option<Class> {
        Some(Class::of(self.metadata, self.parameters))
    }
}

impl Reduced for storage::VolumeAttributesClass {
    type Kept = Class;

    fn kept(self) -> Option<Class> {
        Some(Class::of(self.metadata, self.parameters))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn a_pods_owner_is_a_pod() {
        let owner_of = |kind: &str, api_version: &str| {
            let owner = OwnerReference {
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
                uid: "7".to_owned(),
                ..OwnerReference::default()
            };
            let metadata = ObjectMeta {
                name: Some("hp-volume-x".to_owned()),
                uid: Some("8".to_owned()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            };
            core::Pod { metadata, ..core::Pod::default() }.kept().unwrap().owner
        };
        assert_eq!(owner_of("Pod", "v1").as_deref(), Some("7"));
        assert_eq!(owner_of("ReplicaSet", "apps/v1"), None);
    }
}
