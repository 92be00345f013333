//! `parda policy`.

mod cluster;
mod shown;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use parda_config::Document;
use parda_policy::{
    Applied, Author, PolicyChange, PolicySnapshot, Scope, Store, StoreError, changes, check, set,
};
use parda_terminal::{Failure, output};
use serde::Serialize;
use toml::Value;

use crate::set::different;
use cluster::Cluster;

#[derive(Subcommand)]
pub(crate) enum Policy {
    /// Show the policy, and the values that each host has in force
    Get(Get),
    /// Change one or a few settings of the policy
    Set(Set),
    /// Compare a policy file with the policy in etcd: exit status 1 if they differ
    Diff(Diff),
    /// Replace the policy in etcd with a policy file
    Apply(Apply),
    /// Show who changed the policy, when, and which settings; or a whole revision
    History(History),
}

impl Policy {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Policy::Get(get) => get.run(),
            Policy::Set(set) => set.run(),
            // As of diff(1): 1 is a difference, 2 is trouble.
            Policy::Diff(diff) => match diff.run() {
                Ok(true) => Err(Failure::silent()),
                Ok(false) => Ok(()),
                Err(failure) => Err(Failure { code: 2, ..failure }),
            },
            Policy::Apply(apply) => apply.run(),
            Policy::History(history) => history.run(),
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda policy get                         the policy, and hosts that have something else in force
  parda policy get --json | jq '.hosts[] | select(.presence != \"live\") | .host'
  parda policy get --toml > policy.toml    to begin with, for git")]
pub(crate) struct Get {
    #[command(flatten)]
    cluster: Cluster,
    /// Write the policy and the hosts' reports as JSON
    #[arg(long, conflicts_with = "toml")]
    json: bool,
    /// Write the policy as a policy file
    #[arg(long)]
    toml: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda policy set --volume array-a latency_threshold=15ms --comment 'the new shelf'
  parda policy set --volume array-a --vm db shares=6000 latency_target=10ms
  parda policy set --volume array-a --group gold 'vms=db-*,erp' shares=4000
  parda policy set --volume array-a --vm db --unset shares

If the policy comes from a file in git, change it there and apply it: the next apply undoes what is set here.")]
pub(crate) struct Set {
    /// New values of settings
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Name of the volume
    #[arg(long, value_name = "NAME")]
    volume: String,
    /// Name of a group of VMs; with vms=PATTERN,PATTERN its VMs
    #[arg(long, value_name = "NAME", conflicts_with = "vm")]
    group: Option<String>,
    /// Name of a VM
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    /// Name of a tenant
    #[arg(long, value_name = "NAME", conflicts_with_all = ["vm", "group"])]
    tenant: Option<String>,
    /// Remove a setting from the policy
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Reason of the change, for the history
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Write the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Args)]
#[command(after_help = "\
Exit status: 0 no difference; 1 a difference; 2 the file is wrong, or etcd cannot be read.

Examples:
  parda policy diff policy.toml
  parda policy diff policy.toml --json | jq .revision    for apply --if-revision")]
pub(crate) struct Diff {
    /// Policy file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the differences as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Args)]
#[command(after_help = "\
The whole file is checked before anything is written, and written at once, unless somebody else has changed
the policy meanwhile. Settings that the file does not have are removed. Hosts follow within their period, 10 s.

Examples:
  parda policy apply policy.toml --comment \"$(git log -1 --format='%h %s')\"
  parda policy apply policy.toml --if-revision 7     what was reviewed against revision 7
  parda policy history 5 > policy.toml && parda policy apply policy.toml")]
pub(crate) struct Apply {
    /// Policy file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Reason of the change, for the history
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Apply it only if this is the revision in etcd; 0 for none
    #[arg(long, value_name = "REVISION")]
    if_revision: Option<u64>,
    /// Write the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda policy history
  parda policy history 5 > policy.toml    the whole policy of revision 5")]
pub(crate) struct History {
    /// Revision to write as a policy file
    #[arg(value_name = "REVISION")]
    revision: Option<u64>,
    /// Write it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// Differences, or changes made, as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    /// Revision read, or revision written.
    revision: u64,
    changes: &'a [PolicyChange],
}

fn failed(error: StoreError) -> Failure {
    match error {
        StoreError::Conflict(_) | StoreError::Etcd(_) | StoreError::Unanswered(_) => {
            Failure::new(error.to_string())
        }
        _ => Failure::usage(error.to_string()),
    }
}

impl Get {
    fn run(&self) -> Result<(), Failure> {
        let mut store = self.cluster.store()?;
        let read = store.read_all().map_err(failed)?;
        if self.toml {
            return output::print(&file(&read.policy().map_err(failed)?)?);
        }
        let hosts = store.hosts().map_err(failed)?;
        match self.json {
            true => output::json("-".as_ref(), &shown::Whole::new(&read, hosts)),
            false => output::print(&shown::text(&read, &hosts)),
        }
    }
}

impl Set {
    fn run(&self) -> Result<(), Failure> {
        if self.settings.is_empty() && self.unset.is_empty() {
            return Err(Failure::usage(
                "nothing to set: parda policy set --volume V --vm VM shares=2000",
            ));
        }
        let all: Vec<&str> = self.settings.iter().chain(&self.unset).map(String::as_str).collect();
        different(&all)?;
        let of = match (&self.group, &self.vm) {
            (Some(group), _) => Scope::Group(group.clone()),
            (None, Some(vm)) => Scope::Vm(vm.clone()),
            (None, None) => self.tenant.clone().map_or(Scope::Control, Scope::Tenant),
        };
        let mut store = self.cluster.store()?;
        let read = store.read_all().map_err(failed)?;
        let mut policy = read.policy().map_err(failed)?;
        for text in &self.settings {
            let (key, value) = setting(text)?;
            set(&mut policy, &self.volume, &of, &key, Some(value));
        }
        for key in &self.unset {
            set(&mut policy, &self.volume, &of, key, None);
        }
        let policy = check(&Document::new("policy", file(&policy)?));
        let policy = policy.map_err(|error| {
            Failure::usage(parda_config::Error { place: None, ..error }.to_string())
        })?;
        let author = self.cluster.author(self.comment.clone())?;
        apply(&mut store, &read, &policy, author, self.json)
    }
}

impl Diff {
    /// Whether there is a difference.
    fn run(&self) -> Result<bool, Failure> {
        let policy = check(&Document::read(&self.file)?)?;
        let read = self.cluster.store()?.read_all().map_err(failed)?;
        let all = changes(&read.policy().map_err(failed)?, &policy);
        let answer = Answer { revision: read.revision(), changes: &all };
        output::tell_as(self.json, &answer, |_| {
            let file = self.file.display();
            let against = match &read.head {
                Some(head) => format!("{file} against {}", shown::headline(head)),
                None => format!("{file}: etcd has no policy yet"),
            };
            let none = if all.is_empty() { "no difference\n" } else { "" };
            format!("{against}\n{}{none}", shown::lines(&all))
        })?;
        Ok(!all.is_empty())
    }
}

impl Apply {
    fn run(&self) -> Result<(), Failure> {
        let policy = check(&Document::read(&self.file)?)?;
        let mut store = self.cluster.store()?;
        let read = store.read_all().map_err(failed)?;
        if let Some(expected) = self.if_revision.filter(|expected| *expected != read.revision()) {
            let is = read.head.as_ref().map_or("etcd has no policy".to_owned(), |head| {
                format!("etcd has {}", shown::headline(head))
            });
            return Err(Failure::new(format!(
                "--if-revision {expected}: {is}; nothing was changed. Look at the difference again (parda policy diff)"
            )));
        }
        let author = self.cluster.author(self.comment.clone())?;
        apply(&mut store, &read, &policy, author, self.json)
    }
}

impl History {
    fn run(&self) -> Result<(), Failure> {
        let mut store = self.cluster.store()?;
        if let Some(revision) = self.revision {
            let found = store.revision(revision).map_err(failed)?;
            let entry = found.ok_or_else(|| {
                Failure::usage(format!(
                    "revision {revision}: the history does not have it; it keeps {}",
                    parda_policy::store::MOST_HISTORY
                ))
            })?;
            return output::tell_as(self.json, &entry, |entry| entry.policy.clone());
        }
        let (entries, faults) = store.history().map_err(failed)?;
        for fault in faults {
            eprintln!("parda: {}", output::line(&fault.to_string()));
        }
        output::tell_as(self.json, &entries, |entries| match &entries[..] {
            [] => "etcd has no policy yet".to_owned(),
            entries => entries.iter().map(shown::entry).collect(),
        })
    }
}

/// Replaces the policy that was read, and prints the changes.
fn apply(
    store: &mut Store,
    read: &PolicySnapshot,
    policy: &parda_policy::Policy,
    author: Author,
    json: bool,
) -> Result<(), Failure> {
    let Applied { head, changes } = store.apply(read, policy, author).map_err(failed)?;
    let revision = head.as_ref().map_or(read.revision(), |head| head.revision);
    let answer = Answer { revision, changes: &changes };
    output::tell_as(json, &answer, |_| match head {
        None => format!("no difference from revision {revision}: nothing was written"),
        Some(_) => format!("revision {revision}\n{}", shown::lines(&changes)),
    })
}

/// A policy as a policy file.
fn file(policy: &parda_policy::Policy) -> Result<String, Failure> {
    policy.text().map_err(|error| Failure::new(format!("cannot write the policy: {error}")))
}

/// A setting as TOML. `vms` is an array of names.
fn setting(text: &str) -> Result<(String, Value), Failure> {
    let (key, value) = crate::set::setting(text)?;
    if let Some(vms) = text.strip_prefix("vms=") {
        let vms = vms.split(',').map(|vm| Value::String(vm.trim().to_owned()));
        return Ok((key, Value::Array(vms.collect())));
    }
    let wrong = |error| Failure::usage(format!("{text}: {error}"));
    Ok((key, Value::try_from(value).map_err(wrong)?))
}

/// Now, in milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_toml_has_them() {
        let value =
            |text: &str| setting(text).map(|(_, value)| value).unwrap_or(Value::Boolean(false));
        assert_eq!(value("shares=2000"), Value::Integer(2000));
        assert_eq!(value("burst=1.5"), Value::Float(1.5));
        assert_eq!(value("latency_threshold=20ms"), Value::from("20ms"));
        assert_eq!(value("vms=db-*, erp"), Value::Array(vec!["db-*".into(), "erp".into()]));
        assert_eq!(value("x=true"), Value::Boolean(true));
        assert!(value("limit={ iops = 500 }").is_table());
        assert!(setting("shares").is_err());
    }
}
