//! Settings of pods, from annotations and parameters of their claims and of these claims' classes.
//!
//! A key is [`PREFIX`] and the key of a setting of a VM of a steered device: `parda/shares`. A claim's annotation comes before the
//! claim's VolumeAttributesClass, and that before its StorageClass. Annotations of a class come before its parameters: drivers may
//! refuse unknown parameters.

use std::collections::{BTreeMap, BTreeSet};

use parda_config::{DISK_SETTINGS, DiskSetting, Holder, VmSettings};
use toml::{Table, Value};

/// Prefix of the keys.
pub const PREFIX: &str = "parda/";

/// Prefix of pods' annotations that set a container runtime's own limits.
pub(crate) const BLOCK_IO: &str = "blockio.resources.beta.kubernetes.io/";

/// Annotations or parameters, by key.
pub(crate) type Texts = BTreeMap<String, String>;

/// A pod of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Name of the pod.
    pub(crate) name: String,
    /// The pod's uid, which its cgroup has in its name.
    pub(crate) uid: String,
    /// Names of its claims, in its namespace.
    pub(crate) claims: Vec<String>,
    /// The uid of the pod that owns it. KubeVirt has one for volumes that are plugged into a running VM, whose IOs are the VM's.
    pub(crate) owner: Option<String>,
    /// Annotation by which the container runtime limits its IO.
    pub(crate) block_io: Option<String>,
}

/// A PersistentVolumeClaim of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Annotations of the claim.
    pub(crate) annotations: Texts,
    /// Name of its StorageClass.
    pub(crate) storage: Option<String>,
    /// Name of its VolumeAttributesClass in force.
    pub(crate) attributes: Option<String>,
}

/// A StorageClass or a VolumeAttributesClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    /// Annotations of the class.
    pub(crate) annotations: Texts,
    /// Parameters of the class, which its driver gets too.
    pub(crate) parameters: Texts,
}

/// The objects of the API that matter, by name. Pods and claims: `NAMESPACE/NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects<'a> {
    /// Pods of the node.
    pub(crate) pods: &'a BTreeMap<String, Pod>,
    /// Claims of the cluster.
    pub(crate) claims: &'a BTreeMap<String, Claim>,
    /// VolumeAttributesClasses of the cluster.
    pub(crate) attributes: &'a BTreeMap<String, Class>,
    /// StorageClasses of the cluster.
    pub(crate) storage: &'a BTreeMap<String, Class>,
}

/// A pod with settings of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSettings {
    /// Name of the VM: `NAMESPACE.POD`.
    pub name: String,
    /// The pod's uid, which its cgroup has in its name.
    pub uid: String,
    /// Settings, by the keys of `[[volume.steer.vm]]`.
    pub settings: Table,
}

/// Settings of all pods of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    /// Pods that have settings of their own, by name.
    pub vms: Vec<PodSettings>,
    /// Keys and values that are not used, each with its object and the reason.
    pub notes: BTreeSet<String>,
}

impl NodeSettings {
    /// The settings of all pods. `only`: names of the StorageClasses whose claims count; empty: all claims count.
    pub(crate) fn of(objects: &Objects, only: &[String]) -> NodeSettings {
        let mut answer = NodeSettings::default();
        let mut uses = BTreeMap::<&str, Vec<&Pod>>::new();
        for pod in objects.pods.values() {
            let owner = pod.owner.as_deref().filter(|owner| {
                let is_owner =
                    |other: &Pod| other.uid == *owner && other.namespace == pod.namespace;
                objects.pods.values().any(is_owner)
            });
            uses.entry(owner.unwrap_or(&pod.uid)).or_default().push(pod);
        }
        for pod in objects.pods.values() {
            if let Some(annotation) = &pod.block_io {
                answer.notes.insert(format!(
                    "pod {}/{}: annotation {annotation}: is not read: the container runtime holds the pod to it beside parda",
                    pod.namespace, pod.name
                ));
            }
            let mut settings = Table::new();
            let claims = |own: bool| {
                let users = uses.get(&*pod.uid).into_iter().flatten();
                users.filter(move |user| (user.uid == pod.uid) == own).flat_map(|user| &user.claims)
            };
            for claim in claims(true).chain(claims(false)) {
                let key = format!("{}/{claim}", pod.namespace);
                let Some(claim) = objects.claims.get(&key) else { continue };
                let counts = |class: &String| only.contains(class);
                if only.is_empty() || claim.storage.as_ref().is_some_and(counts) {
                    let of_claim = answer.of_claim(&key, claim, objects);
                    of_claim.into_iter().for_each(|(key, value)| add(&mut settings, key, value));
                }
            }
            if !settings.is_empty() {
                let name = format!("{}.{}", pod.namespace, pod.name);
                answer.vms.push(PodSettings { name, uid: pod.uid.clone(), settings });
            }
        }
        answer
    }

    /// Settings of a claim, the first of its places counting that has a good value.
    fn of_claim(&mut self, name: &str, claim: &Claim, objects: &Objects) -> Table {
        let mut places =
            vec![(format!("PersistentVolumeClaim {name}: annotation"), &claim.annotations)];
        for (kind, class, classes) in [
            ("VolumeAttributesClass", &claim.attributes, objects.attributes),
            ("StorageClass", &claim.storage, objects.storage),
        ] {
            let found = class.as_deref().and_then(|name| Some((name, classes.get(name)?)));
            if let Some((name, class)) = found {
                places.push((format!("{kind} {name}: annotation"), &class.annotations));
                places.push((format!("{kind} {name}: parameter"), &class.parameters));
            }
        }
        let mut settings = Table::new();
        for (place, texts) in places {
            for (key, text) in texts {
                let Some(bare) = key.strip_prefix(PREFIX) else { continue };
                match read(bare, text) {
                    Ok(value) if settings.contains_key(bare) => drop(value),
                    Ok(value) => drop(settings.insert(bare.to_owned(), value)),
                    Err(why) => {
                        self.notes
                            .insert(format!("{place} {key} = {text:?}: {why}; it is not used"));
                    }
                }
            }
        }
        settings
    }
}

/// Adds a setting of one more claim to the settings of its pod. The higher number counts, or else the first value.
fn add(settings: &mut Table, key: String, value: Value) {
    let number = |value: &Value| value.as_integer();
    let higher = |before: &Value| number(&value) > number(before);
    if settings.get(&key).is_none_or(higher) {
        settings.insert(key, value);
    }
}

/// Settings that a pod may have. The existing tenants are not known here.
fn known() -> impl Iterator<Item = &'static DiskSetting> {
    DISK_SETTINGS.iter().filter(|setting| setting.also.contains(&Holder::Steered))
}

/// A value as TOML: a number, an inline table such as `{ iops = 500 }`, or text without quotes.
///
/// # Errors
/// The key is no setting of a VM of a steered device, or the value is out of bounds.
fn read(key: &str, text: &str) -> Result<Value, String> {
    if !known().any(|setting| setting.key == key) {
        let keys: Vec<_> = known().map(|setting| format!("{PREFIX}{}", setting.key)).collect();
        return Err(format!("is no setting of a pod: there is {}", keys.join(", ")));
    }
    // A name of digits is a name.
    let bare = (key != "tenant").then(|| format!("value = {text}"));
    let value = bare.and_then(|bare| toml::from_str::<Table>(&bare).ok());
    let value = value.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    let value = value.unwrap_or_else(|| text.into());
    let table = Table::from_iter([(key.to_owned(), value.clone())]);
    let settings: VmSettings = table.try_into().map_err(|error| error.message().to_owned())?;
    match settings.fault_steered() {
        Some((_, fault)) => Err(fault),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn claim(annotations: &[(&str, &str)]) -> Claim {
        let (storage, attributes) = (Some("san".to_owned()), Some("gold".to_owned()));
        Claim { annotations: texts(annotations), storage, attributes }
    }

    /// Answer for a pod with these claims, of the StorageClass `san` and the VolumeAttributesClass `gold`.
    fn answer(claims: &[Claim], gold: &Class, san: &Class, only: &[String]) -> NodeSettings {
        let names: Vec<String> = (0..claims.len()).map(|n| format!("data-{n}")).collect();
        let keys = names.iter().map(|name| format!("shop/{name}"));
        let claims = keys.zip(claims.iter().cloned()).collect();
        let pod = Pod {
            namespace: "shop".to_owned(),
            name: "db-0".to_owned(),
            uid: "1b-2c".to_owned(),
            claims: [names, vec!["not-there".to_owned()]].concat(),
            ..Pod::default()
        };
        let objects = Objects {
            pods: &BTreeMap::from([("shop/db-0".to_owned(), pod)]),
            claims: &claims,
            attributes: &BTreeMap::from([("gold".to_owned(), gold.clone())]),
            storage: &BTreeMap::from([("san".to_owned(), san.clone())]),
        };
        NodeSettings::of(&objects, only)
    }

    fn shares(answer: &NodeSettings) -> Option<i64> {
        answer.vms.first().map(|vm| vm.settings["shares"].as_integer().unwrap())
    }

    #[test]
    fn a_claims_annotation_comes_before_its_classes_and_annotations_before_parameters() {
        let class = |annotation: &str, parameter: &str| Class {
            annotations: texts(
                &[("parda/shares", annotation)][..usize::from(!annotation.is_empty())],
            ),
            parameters: texts(&[("iops", "4000"), ("parda/shares", parameter)]),
        };
        let (gold, san, none) = (class("", "4"), class("3", "2"), Class::default());
        let own = claim(&[("parda/shares", "5"), ("other/shares", "9")]);
        for (claim, gold, san, wanted) in [
            (&own, &gold, &san, Some(5)),
            (&claim(&[]), &gold, &san, Some(4)),
            (&claim(&[]), &none, &san, Some(3)),
            (&claim(&[]), &none, &class("", "2"), Some(2)),
            (&claim(&[]), &none, &none, None),
        ] {
            let answer = answer(std::slice::from_ref(claim), gold, san, &[]);
            assert_eq!((shares(&answer), answer.notes.len()), (wanted, 0), "{answer:?}");
        }
        let named = answer(&[own], &gold, &san, &[]).vms.remove(0);
        assert_eq!((named.name.as_str(), named.uid.as_str()), ("shop.db-0", "1b-2c"));
    }

    #[test]
    fn of_several_claims_the_highest_counts_and_other_storage_does_not() {
        let two = [claim(&[("parda/shares", "500")]), claim(&[("parda/shares", "3000")])];
        let none = Class::default();
        assert_eq!(shares(&answer(&two, &none, &none, &["san".to_owned()])), Some(3000));
        assert_eq!(shares(&answer(&two, &none, &none, &["local".to_owned()])), None);
    }

    #[test]
    fn a_volume_that_is_plugged_into_a_running_vm_counts_for_the_vm() {
        let pod = |name: &str, claims: &[&str], owner: Option<&str>| Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            claims: claims.iter().map(|claim| (*claim).to_owned()).collect(),
            owner: owner.map(str::to_owned),
            block_io: None,
        };
        let pods = [
            pod("hp-volume-x", &["plugged"], Some("uid-of-virt-launcher-db")),
            pod("virt-launcher-db", &["root"], None),
            pod("left-alone", &["orphan"], Some("uid-of-nobody")),
        ];
        let claims = [
            ("shop/root", claim(&[("parda/limit", "{ iops = 100 }")])),
            ("shop/plugged", claim(&[("parda/shares", "3000"), ("parda/limit", "{ iops = 9 }")])),
            ("shop/orphan", claim(&[("parda/shares", "7")])),
        ];
        let none = BTreeMap::new();
        let objects = Objects {
            pods: &pods.into_iter().map(|pod| (format!("shop/{}", pod.name), pod)).collect(),
            claims: &claims.into_iter().map(|(key, claim)| (key.to_owned(), claim)).collect(),
            attributes: &none,
            storage: &none,
        };
        let answer = NodeSettings::of(&objects, &[]);
        let shares = |name: &str| {
            let vm = answer.vms.iter().find(|vm| vm.name == name)?;
            vm.settings["shares"].as_integer()
        };
        assert_eq!(shares("shop.virt-launcher-db"), Some(3000), "{answer:?}");
        assert_eq!(shares("shop.hp-volume-x"), None);
        assert_eq!(shares("shop.left-alone"), Some(7));
        let vm = answer.vms.iter().find(|vm| vm.name == "shop.virt-launcher-db").unwrap();
        assert_eq!(vm.settings["limit"]["iops"].as_integer(), Some(100), "its own comes first");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_claim_and_the_next_place_counts() {
        let san = Class { parameters: texts(&[("parda/shares", "2000")]), ..Class::default() };
        for wrong in ["many", "0", "1000001", "-1", "1.5", "", "1\nshares = 9", "{ iops = 5 }"] {
            let answer = answer(&[claim(&[("parda/shares", wrong)])], &Class::default(), &san, &[]);
            assert_eq!(shares(&answer), Some(2000), "{wrong}");
            let note = answer.notes.first().unwrap();
            let named =
                format!("PersistentVolumeClaim shop/data-0: annotation parda/shares = {wrong:?}: ");
            assert!(note.starts_with(&named) && note.ends_with("; it is not used"), "{note}");
        }
        // A setting that the agent refuses for one pod would keep all others from their settings.
        for wrong in [
            "{ iops = 500, burst = 2, burst_for = \"1s\" }",
            "{ iops = 3 }",
            "{ iops_reads = 1 }",
            "{ iops = nan }",
            "{}",
            "500",
        ] {
            let answer = answer(&[claim(&[("parda/limit", wrong)])], &Class::default(), &san, &[]);
            assert!(answer.vms[0].settings.get("limit").is_none(), "{wrong}");
            assert!(answer.notes.first().unwrap().contains("annotation parda/limit = "), "{wrong}");
        }
        for wrong in ["", "two words", "gold\nshares = 9"] {
            let answer = answer(&[claim(&[("parda/tenant", wrong)])], &Class::default(), &san, &[]);
            assert!(answer.vms[0].settings.get("tenant").is_none(), "{wrong}");
        }
        let digits = answer(&[claim(&[("parda/tenant", "7")])], &Class::default(), &san, &[]);
        assert_eq!(digits.vms[0].settings["tenant"], "7".into());
        let typo = answer(&[claim(&[("parda/sharez", "9")])], &Class::default(), &san, &[]);
        let note = typo.notes.first().unwrap();
        assert!(note.contains("is no setting of a pod: there is parda/shares"), "{note}");
    }
}
