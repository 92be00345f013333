//! The check of a policy file, by the code that checks `parda.toml`.

use std::collections::BTreeSet;

use parda_config::{
    ControlSettings, Document, Error, NAMES_FILES, TablePart, TenantSettings, VmSettings,
    with_vm_settings, wrong_tenants,
};
use serde::Deserialize;

use crate::document::{Policy, PolicyVolume};

/// Most bytes of a policy: with its history entry it fits into one call to etcd.
pub const MOST_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    volume: Vec<VolumeFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeFile {
    name: String,
    #[serde(default)]
    control: ControlSettings,
    #[serde(default)]
    tenant: Vec<TenantSettings>,
    #[serde(default)]
    group: Vec<GroupFile>,
    #[serde(default)]
    vm: Vec<VmFile>,
}

with_vm_settings! {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GroupFile {
        name: String,
        vms: Vec<String>,
    }
}

with_vm_settings! {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct VmFile {
        name: String,
    }
}

/// Checks a policy file, each volume by itself. Settings that are left out are checked with their defaults.
///
/// # Errors
/// The first thing that is wrong with it, with its place.
pub fn check(doc: &Document) -> Result<Policy, Error> {
    let too_large = |what: &str| {
        let message = format!(
            "is larger than {} KiB{what}, the most that a policy may have",
            MOST_BYTES >> 10
        );
        Error { file: doc.name().to_owned(), place: None, value: None, message }
    };
    if doc.text().len() > MOST_BYTES {
        return Err(too_large(""));
    }
    let file: File = doc.parse()?;
    // The second reading keeps values as the operator wrote them, for etcd.
    let policy: Policy = doc.parse()?;
    let mut names = BTreeSet::new();
    for (i, (volume, written)) in file.volume.iter().zip(&policy.volume).enumerate() {
        let at = doc.part(format!("volume.{i}"));
        check_name(&at, &volume.name, &mut names)?;
        check_control(&at.part("control"), &volume.control, written)?;
        if let Some((i, key, fault)) = wrong_tenants(&volume.tenant) {
            return Err(at.error(&format!("tenant.{i}.{key}"), fault));
        }
        check_vms(&at, volume)?;
    }
    // A file with inline tables is shorter than the same policy in etcd.
    if policy.text().is_ok_and(|text| text.len() > MOST_BYTES) {
        return Err(too_large(" with a line for each setting"));
    }
    Ok(policy)
}

/// Checks the policy of a volume that was read from etcd.
///
/// # Errors
/// The first thing that is wrong with it, without a place.
pub fn check_volume(volume: &PolicyVolume) -> Result<(), String> {
    let policy = Policy { volume: vec![volume.clone()] };
    let text = policy.text().map_err(|error| error.to_string())?;
    check(&Document::new("policy", text)).map(drop).map_err(|error| error.without_place())
}

fn check_name(at: &TablePart<'_>, name: &str, others: &mut BTreeSet<String>) -> Result<(), Error> {
    let good = (1..=256).contains(&name.len()) && !name.chars().any(char::is_control);
    at.refuse_if(!good, "name", "must be 1 to 256 bytes without control characters")?;
    let is_new = others.insert(name.to_owned());
    at.refuse_if(!is_new, "name", "is there already: names must differ")
}

fn check_control(
    at: &TablePart<'_>,
    control: &ControlSettings,
    written: &PolicyVolume,
) -> Result<(), Error> {
    let names_file = written.control.get(NAMES_FILES).is_some_and(toml::Value::is_table);
    let message = "is a table, which may name a file: only parda.toml may have it";
    at.refuse_if(names_file, NAMES_FILES, message)?;
    let checked = control.resolve().map(drop);
    checked.map_err(|error| at.error(error.parameter, format!("must be {}", error.must_be)))
}

fn check_vms(at: &TablePart<'_>, volume: &VolumeFile) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for (i, group) in volume.group.iter().enumerate() {
        let at = at.part(&format!("group.{i}"));
        check_name(&at, &group.name, &mut names)?;
        let none = group.vms.is_empty() || group.vms.iter().any(String::is_empty);
        at.refuse_if(none, "vms", "must be names of VMs, with * for any text")?;
        check_settings(&at, &group.settings())?;
    }
    let mut names = BTreeSet::new();
    for (i, vm) in volume.vm.iter().enumerate() {
        let at = at.part(&format!("vm.{i}"));
        check_name(&at, &vm.name, &mut names)?;
        check_settings(&at, &vm.settings())?;
    }
    Ok(())
}

fn check_settings(at: &TablePart<'_>, settings: &VmSettings) -> Result<(), Error> {
    settings.fault().map_or(Ok(()), |(key, message)| Err(at.error(key, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        let text = format!("[[volume]]\nname = \"array\"\n{text}");
        check(&Document::new("p.toml", text)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, said) in [
            ("[volume.control]\nwarp = 9", "p.toml:4:1: warp = 9: unknown field `warp`"),
            (
                "[volume.control]\nwindow_max = 0",
                "p.toml:4:14: window_max = 0: must be at least window_min",
            ),
            (
                "[volume.control]\nfairness = \"beauty\"",
                "p.toml:4:12: fairness = \"beauty\": must be \"outstanding\"",
            ),
            ("[volume.control]\nlatency_threshold = { start = \"1ms\" }", "is a table"),
            ("[volume.control]\nlatency_threshold = \"11s\"", "must be at most 10s"),
            (
                "[[volume.vm]]\nname = \"a\"\nshares = 0",
                "p.toml:5:10: shares = 0: must be from 1 to 1000000",
            ),
            ("[[volume.vm]]\nname = \"a\"\nburst = -1", "must be from 0 to 1000000 IOs"),
            ("[[volume.vm]]\nname = \"a\"\nlatency_target = \"0s\"", "must be above zero"),
            ("[[volume.vm]]\nname = \"a\"\npath = \"/etc/passwd\"", "unknown field `path`"),
            (
                "[[volume.vm]]\nname = \"a\"\n[[volume.vm]]\nname = \"a\"",
                "p.toml:6:8: name = \"a\": is there already",
            ),
            (
                "[[volume.vm]]\nname = \"a\"\nshares = 2026-11-23",
                "p.toml:5:10: shares = 2026-11-23: must be a whole number from 1 to 1000000, not the date 2026-11-23",
            ),
            (
                "[volume.control]\nlatency_threshold = 2026-11-23",
                "must not be the date 2026-11-23: write a text in quotes, or a table",
            ),
            (
                "[[volume.tenant]]\nname = \"t\"\nshares = 0",
                "shares = 0: must be from 1 to 1000000",
            ),
            (
                "[[volume.tenant]]\nname = \"t\"\n[[volume.tenant]]\nname = \"t\"",
                "is the name of another",
            ),
            ("[[volume.group]]\nname = \"g\"\nvms = []", "must be names of VMs"),
            ("[[volume.group]]\nname = \"g\"\nshares = 1", "missing field `vms`"),
            ("[[volume]]\nname = \"array\"", "is there already"),
        ] {
            let is = wrong(text);
            assert!(is.contains(said), "{text}: {is}");
        }
    }

    #[test]
    fn an_empty_policy_and_one_with_every_kind_of_setting_are_good() {
        assert_eq!(check(&Document::new("p", "")).unwrap(), Policy::default());
        let text = "[[volume]]\nname = \"a\"\n[volume.control]\nmode = \"observe\"\nlatency_threshold = \"auto\"\n\
            fairness = { iops_reads = 1461, bandwidth_reads = \"63MiB\", iops_writes = 562, bandwidth_writes = \"176MiB\" }\n\
            [[volume.group]]\nname = \"g\"\nvms = [\"*\"]\nshares = 1\nburst = 2\nlatency_target = \"5ms\"\n\
            [[volume.vm]]\nname = \"g\"\nburst = 2.5\n";
        let policy = check(&Document::new("p", text)).unwrap();
        assert_eq!(check_volume(&policy.volume[0]), Ok(()));
        assert!(check(&Document::new("p", "#".repeat(MOST_BYTES + 1))).is_err());
    }

    #[test]
    fn a_policy_that_is_good_is_also_good_as_etcd_has_it() {
        let vms = |n: u32| -> String {
            let each = (0..n).map(|i| format!("{{name=\"vm{i:05}\",shares=1}}"));
            format!("volume=[{{name=\"a\",vm=[{}]}}]", each.collect::<Vec<_>>().join(","))
        };
        let good = check(&Document::new("p", vms(5000))).unwrap();
        assert_eq!(check_volume(&good.volume[0]), Ok(()));
        let text = vms(9000);
        assert!(text.len() < MOST_BYTES);
        let error = check(&Document::new("p", text)).unwrap_err().to_string();
        assert!(error.contains("larger than 256 KiB with a line for each setting"), "{error}");
    }
}
