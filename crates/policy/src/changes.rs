//! Differences between two policies, and the change of one setting.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::document::{Named, Policy, PolicyGroup, PolicyVolume};

/// The part of a volume that a setting belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The law of the volume.
    Control,
    /// A tenant, by its name.
    Tenant(String),
    /// A group of VMs, by its name.
    Group(String),
    /// One VM, by its name.
    Vm(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Control => f.write_str("control"),
            Scope::Tenant(name) => write!(f, "tenant {name}"),
            Scope::Group(name) => write!(f, "group {name}"),
            Scope::Vm(name) => write!(f, "vm {name}"),
        }
    }
}

/// A setting that differs between two policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// Name of the volume.
    pub volume: String,
    /// Part of the volume that the setting belongs to.
    pub of: Scope,
    /// Key of the setting. A group also has `vms`, the list of its VMs, and `place`, its number among the groups, from 1. The number of
    /// a new group is among all groups. The number of an earlier one is among the groups that both policies have.
    pub setting: String,
    /// Value in the first policy, if it is there.
    pub before: Option<Value>,
    /// Value in the second policy, if it is there.
    pub after: Option<Value>,
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyChange { volume, of, setting, before, after } = self;
        // Groups have an order and no key for it.
        if let (Scope::Group(_), "place", Some(after)) = (of, setting.as_str(), after) {
            write!(f, "volume {volume}, {of}: number {after} of the groups")?;
            return before.as_ref().map_or(Ok(()), |before| write!(f, " (before: {before})"));
        }
        write!(f, "volume {volume}, {of}: ")?;
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "{setting} = {after} (before: {before})"),
            (None, Some(after)) => write!(f, "{setting} = {after} (before: not set)"),
            (Some(before), None) => write!(f, "{setting} not set (before: {before})"),
            (None, None) => write!(f, "{setting}"),
        }
    }
}

type Settings = BTreeMap<(String, Scope, String), Value>;

/// Settings of a policy. Groups that `other` has too are numbered among themselves: a group that comes or goes leaves them in order.
fn settings(policy: &Policy, other: &Policy) -> Settings {
    let mut all = Settings::new();
    for volume in &policy.volume {
        let mut add = |of: Scope, table: &Table| {
            let each = table
                .iter()
                .map(|(k, v)| ((volume.name.clone(), of.clone(), k.clone()), v.clone()));
            all.extend(each);
        };
        add(Scope::Control, &volume.control);
        add(Scope::Control, &volume.other);
        for tenant in &volume.tenant {
            add(Scope::Tenant(tenant.name.clone()), &tenant.settings);
        }
        let others = other.of(&volume.name).map_or(&[][..], |other| &other.group);
        let known = |group: &PolicyGroup| others.iter().any(|other| other.name == group.name);
        for (index, group) in volume.group.iter().enumerate() {
            let before = volume.group[..index].iter();
            let place = match known(group) {
                true => before.filter(|group| known(group)).count(),
                false => index,
            };
            let mut table = group.settings.clone();
            let vms = group.vms.iter().map(|vm| Value::String(vm.clone()));
            table.insert("vms".to_owned(), Value::Array(vms.collect()));
            table.insert("place".to_owned(), Value::Integer(place as i64 + 1));
            add(Scope::Group(group.name.clone()), &table);
        }
        for vm in &volume.vm {
            add(Scope::Vm(vm.name.clone()), &vm.settings);
        }
    }
    all
}

/// Whether two values mean the same: 2 and 2.0 do.
fn alike(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    one == other || (number(one).is_some() && number(one) == number(other))
}

/// Settings that differ between two policies, sorted by volume and scope.
#[must_use]
pub fn changes(before: &Policy, after: &Policy) -> Vec<PolicyChange> {
    let (before, after) = (settings(before, after), settings(after, before));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let change = |key: &(String, Scope, String)| {
        let (volume, of, setting) = key.clone();
        let (before, after) = (before.get(key).cloned(), after.get(key).cloned());
        let is_same = before.as_ref().zip(after.as_ref()).is_some_and(|(was, is)| alike(was, is));
        // A removed group has no place.
        let is_gone = after.is_none() && setting == "place";
        (!is_same && !is_gone).then_some(PolicyChange { volume, of, setting, before, after })
    };
    keys.into_iter().filter_map(change).collect()
}

/// Sets a setting of a policy, or removes it if there is no value. Volumes, groups and VMs are added as needed, and removed when
/// they are empty. The value of a group's `vms` is an array of names. A new group has none, which [`check`](crate::check()) refuses.
pub fn set(policy: &mut Policy, volume: &str, of: &Scope, setting: &str, value: Option<Value>) {
    let volume = entry(
        &mut policy.volume,
        |v| v.name == volume,
        || PolicyVolume { name: volume.to_owned(), ..PolicyVolume::default() },
    );
    let is_tenant = matches!(of, Scope::Tenant(_));
    let table = match of {
        Scope::Control => &mut volume.control,
        Scope::Group(name) => {
            let new = || PolicyGroup { name: name.clone(), ..PolicyGroup::default() };
            let group = entry(&mut volume.group, |group| group.name == *name, new);
            if setting == "vms" {
                let names = value.as_ref().and_then(Value::as_array).into_iter().flatten();
                group.vms = names.filter_map(Value::as_str).map(str::to_owned).collect();
                return;
            }
            &mut group.settings
        }
        Scope::Tenant(name) | Scope::Vm(name) => {
            let list = if is_tenant { &mut volume.tenant } else { &mut volume.vm };
            let new = || Named { name: name.clone(), ..Named::default() };
            &mut entry(list, |named| named.name == *name, new).settings
        }
    };
    match value {
        Some(value) => drop(table.insert(setting.to_owned(), value)),
        None => drop(table.remove(setting)),
    }
    volume.tenant.retain(|tenant| !tenant.settings.is_empty());
    volume.vm.retain(|vm| !vm.settings.is_empty());
    volume.group.retain(|group| !group.settings.is_empty() || !group.vms.is_empty());
    let is_empty = |volume: &PolicyVolume| {
        *volume == PolicyVolume { name: volume.name.clone(), ..PolicyVolume::default() }
    };
    policy.volume.retain(|volume| !is_empty(volume));
}

/// The entry of a list that `is` finds, or a new entry at its end.
pub fn entry<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        toml::from_str(text).unwrap()
    }

    const BEFORE: &str = "[[volume]]\nname = \"a\"\n[volume.control]\nwindow_max = 4\nmode = \"parda\"\n\
        [[volume.group]]\nname = \"g\"\nvms = [\"*\"]\nshares = 1\n";

    #[test]
    fn each_setting_that_differs_is_named_with_both_values() {
        let after = policy(
            "[[volume]]\nname = \"a\"\n[volume.control]\nwindow_max = 4.0\n\
             [[volume.group]]\nname = \"g\"\nvms = [\"x\"]\nshares = 2\n[[volume.vm]]\nname = \"x\"\nburst = 3\n",
        );
        let all = changes(&policy(BEFORE), &after);
        let said: Vec<_> = all.iter().map(ToString::to_string).collect();
        let expected = [
            "volume a, control: mode not set (before: \"parda\")",
            "volume a, group g: shares = 2 (before: 1)",
            "volume a, group g: vms = [\"x\"] (before: [\"*\"])",
            "volume a, vm x: burst = 3 (before: not set)",
        ];
        assert_eq!(said, expected);
        assert_eq!(changes(&after, &after), []);
    }

    #[test]
    fn the_order_of_groups_is_a_setting() {
        let group = |name: &str| format!("[[volume.group]]\nname = \"{name}\"\nvms = [\"*\"]\n");
        let one = policy(&format!("[[volume]]\nname = \"a\"\n{}{}", group("g"), group("h")));
        let other = policy(&format!("[[volume]]\nname = \"a\"\n{}{}", group("h"), group("g")));
        let said: Vec<_> = changes(&one, &other).iter().map(ToString::to_string).collect();
        let expected = [
            "volume a, group g: number 2 of the groups (before: 1)",
            "volume a, group h: number 1 of the groups (before: 2)",
        ];
        assert_eq!(said, expected);
        // A group that comes or goes is no change of the others.
        let alone = policy(&format!("[[volume]]\nname = \"a\"\n{}", group("h")));
        let said: Vec<_> = changes(&one, &alone).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["volume a, group g: vms not set (before: [\"*\"])"]);
        let said: Vec<_> = changes(&alone, &one).iter().map(ToString::to_string).collect();
        let vms = "volume a, group g: vms = [\"*\"] (before: not set)";
        assert_eq!(said, ["volume a, group g: number 1 of the groups", vms]);
    }

    #[test]
    fn one_setting_is_set_and_taken_out_and_nothing_empty_stays() {
        let mut policy = policy(BEFORE);
        let before = policy.clone();
        let vm = Scope::Vm("x".to_owned());
        set(&mut policy, "b", &vm, "shares", Some(7.into()));
        assert_eq!(policy.of("b").unwrap().settings_of("x")["shares"].as_integer(), Some(7));
        set(&mut policy, "b", &vm, "shares", None);
        assert_eq!(policy, before);
        let vms = Value::Array(vec!["db".into()]);
        set(&mut policy, "a", &Scope::Group("g".to_owned()), "vms", Some(vms));
        assert_eq!(policy.of("a").unwrap().group[0].vms, ["db"]);
    }
}
