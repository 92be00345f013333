//! `parda kubernetes`: settings of this node's pods in the agent's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use parda_agent::config::Config;
use parda_config::{Document, Error, replace};
use parda_kubernetes::{Node, NodeSettings, PREFIX, PodSettings, follow};
use parda_terminal::Failure;
use toml::{Table, Value};

use crate::input::is_there;

/// The lines of the agent's configuration between which the tables of pods are written.
const BEGIN: &str = "# parda kubernetes: begin";
const END: &str = "# parda kubernetes: end";

/// The setting whose values are names of the configuration.
const TENANT: &str = "tenant";

#[derive(Args)]
#[command(after_help = "\
Within [volume.steer] of the configuration stand two lines, and after them what all other pods have:

  # parda kubernetes: begin
  # parda kubernetes: end
  [[volume.steer.vm]]
  name = \"pods\"
  cgroup = \"kubernetes:*\"

What is between the two lines is written by this command, checked, and taken over by a reload of the agent, which must have a status
socket and run in the same namespace of processes. The API server is found as kubectl does, or by the pod's service account.

Examples:
  parda kubernetes --node node-1
  parda kubernetes -c /etc/parda/parda.toml --storage-class san --storage-class san-fast
  kubectl annotate pvc data-db-0 parda/shares=4000

See docs/kubernetes.md")]
pub(crate) struct Kubernetes {
    /// The agent's configuration file
    #[arg(short, long, value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    config: PathBuf,
    /// Name of this node
    #[arg(long, value_name = "NODE", env = "NODE", value_parser = NonEmptyStringValueParser::new())]
    node: String,
    /// Only claims of this StorageClass count; may be repeated
    #[arg(long, value_name = "NAME")]
    storage_class: Vec<String>,
}

impl Kubernetes {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        is_there(&self.config)?;
        let file = Document::read(&self.config)?;
        with_tables(file.text(), &[])
            .map_err(|why| Failure::usage(format!("{}: {why}", self.config.display())))?;
        let node = Node { name: self.node.clone(), storage_classes: self.storage_class.clone() };
        let (fault, told) = (None, BTreeSet::new());
        let mut section = Section { file: &self.config, is_reload_due: true, fault, told };
        match follow(&node, |answer| section.take(answer)) {
            Ok(never) => match never {},
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }
}

/// The section of the agent's configuration that has the tables of pods.
struct Section<'a> {
    file: &'a Path,
    /// Whether the agent may not have read the file as it is.
    is_reload_due: bool,
    /// Fault as it was last logged.
    fault: Option<String>,
    /// Tenants that are not used, each with its pod and the reason, as they were last logged.
    told: BTreeSet<String>,
}

impl Section<'_> {
    /// Puts settings in force. Returns whether they are.
    fn take(&mut self, answer: &NodeSettings) -> bool {
        let fault = self.put(&answer.vms).err();
        if let Some(fault) = fault.as_ref().filter(|fault| self.fault.as_ref() != Some(*fault)) {
            tracing::error!(event = "kubernetes_not_applied", "{fault}; it is tried again");
        }
        self.fault = fault;
        self.fault.is_none()
    }

    fn put(&mut self, vms: &[PodSettings]) -> Result<(), String> {
        let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", self.file.display());
        let before = Document::read_regular(self.file).map_err(|error| error.to_string())?;
        let (mut vms, notes) = with_good_tenants(&before, vms);
        for note in notes.difference(&self.told) {
            tracing::warn!(event = "kubernetes_setting", "{note}; it is not used");
        }
        self.told = notes;
        for (key, value) in of_all_pods(before.text()).unwrap_or_default() {
            for vm in &mut vms {
                vm.settings.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let (after, config) =
            checked(&before, &vms).map_err(|error| format!("{error}; the file is as it was"))?;
        if after.text() != before.text() {
            // Another may write the file as well: nothing of theirs is lost but in the moment of the replacement.
            let about = fs::metadata(self.file).map_err(|error| wrong(&error))?;
            let owner = Some((about.uid(), about.gid()));
            replace(self.file, after.text(), about.mode(), owner).map_err(|error| wrong(&error))?;
            self.is_reload_due = true;
            let names: Vec<_> = vms.iter().map(line).collect();
            tracing::info!(pods = vms.len(), "settings of pods: {}", names.join(", "));
        }
        if self.is_reload_due {
            let socket = config
                .status
                .ok_or_else(|| wrong(&"status: is missing: the agent is found by it"))?;
            reload(&socket)?;
            self.is_reload_due = false;
        }
        Ok(())
    }
}

/// The configuration with the tables of these pods.
fn checked(before: &Document, vms: &[PodSettings]) -> Result<(Document, Config), Error> {
    let file = before.name().to_owned();
    let text = with_tables(before.text(), vms);
    let text = text.map_err(|message| Error { file, place: None, value: None, message })?;
    let after = Document::new(before.name(), text);
    let config = Config::check(&after)?;
    Ok((after, config))
}

/// These pods without the tenants that the configuration refuses: one of them would block the settings of all pods. A note names each pod
/// left out, and the reason.
fn with_good_tenants(
    before: &Document,
    vms: &[PodSettings],
) -> (Vec<PodSettings>, BTreeSet<String>) {
    let (mut vms, mut notes) = (vms.to_vec(), BTreeSet::new());
    // Other errors of the configuration have no tenant as their cause.
    if checked(before, &vms).is_ok() || checked(before, &[]).is_err() {
        return (vms, notes);
    }
    // One pod of each good tenant: a host can have some tenants, and not more.
    let (mut good, mut wrong) = (Vec::<PodSettings>::new(), BTreeMap::new());
    for vm in &mut vms {
        let Some(tenant) = vm.settings.get(TENANT) else { continue };
        if good.iter().any(|other| other.settings.get(TENANT) == Some(tenant)) {
            continue;
        }
        let name = tenant.to_string();
        if !wrong.contains_key(&name) {
            good.push(vm.clone());
            let Err(Error { value, message, .. }) = checked(before, &good) else { continue };
            good.pop();
            wrong.insert(name.clone(), format!("{}: {message}", value.unwrap_or_default()));
        }
        notes.insert(format!("pod {}: {PREFIX}{}", vm.name, wrong[&name]));
        vm.settings.remove(TENANT);
    }
    (vms, notes)
}

/// Default settings of pods: those of the table of all pods, in the volume with the two marker lines.
fn of_all_pods(text: &str) -> Option<Table> {
    // No pod has this name.
    let probe =
        PodSettings { name: "all pods".to_owned(), uid: "0".to_owned(), settings: Table::new() };
    let text = with_tables(text, std::slice::from_ref(&probe)).ok()?;
    let document = text.parse::<Table>().ok()?;
    let mut volumes = document.get("volume")?.as_array()?.iter();
    let has = |vm: &Value, key: &str, text: &str| vm.get(key).and_then(Value::as_str) == Some(text);
    let vms = volumes.find_map(|volume| {
        let vms = volume.get("steer")?.get("vm")?.as_array()?;
        vms.iter().any(|vm| has(vm, "name", &probe.name)).then_some(vms)
    })?;
    let all = vms.iter().find(|vm| has(vm, "cgroup", "kubernetes:*"))?.as_table()?;
    let settings = all.iter().filter(|(key, _)| !["name", "cgroup"].contains(&key.as_str()));
    Some(settings.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// A pod's settings in a line.
fn line(vm: &PodSettings) -> String {
    let each = vm.settings.iter().map(|(key, value)| format!("{key} = {value}"));
    format!("{} {{ {} }}", vm.name, each.collect::<Vec<_>>().join(", "))
}

/// A configuration with the tables of these pods between the two lines, in place of those that were there.
fn with_tables(text: &str, vms: &[PodSettings]) -> Result<String, String> {
    let at = |mark: &str| {
        let mut found = text.split_inclusive('\n').scan(0, |end, line| {
            let begin = *end;
            *end += line.len();
            Some((begin, *end, line))
        });
        let (begin, end, _) = found.find(|(_, _, line)| line.trim() == mark)?;
        found.all(|(_, _, line)| line.trim() != mark).then_some((begin, end))
    };
    let (Some((_, begin)), Some((end, _))) = (at(BEGIN), at(END)) else {
        return Err(format!(
            "the lines {BEGIN:?} and {END:?} must stand there once each, within [volume.steer]"
        ));
    };
    if begin > end {
        return Err(format!("the line {END:?} must stand behind {BEGIN:?}"));
    }
    let mut tables = String::new();
    for PodSettings { name, uid, settings } in vms {
        // A value is written within quotes.
        let (name, cgroup) = (Value::from(&**name), Value::from(format!("kubernetes:{uid}")));
        tables += &format!("[[volume.steer.vm]]\nname = {name}\ncgroup = {cgroup}\n");
        settings.iter().for_each(|(key, value)| tables += &format!("{key} = {value}\n"));
    }
    Ok([&text[..begin], &tables, &text[end..]].concat())
}

/// Has the agent that listens at this socket read its configuration again.
fn reload(socket: &Path) -> Result<(), String> {
    let name = socket.display();
    let agent = UnixStream::connect(socket).map_err(|error| {
        format!("{name}: the agent does not run, and is not told to reload: {error}")
    })?;
    let peer = getsockopt(&agent, PeerCredentials)
        .map_err(|error| format!("{name}: its process is not known: {error}"))?;
    // The socket of a unit is systemd's, and a process of another namespace has no number here.
    let program = fs::read_to_string(format!("/proc/{}/comm", peer.pid())).unwrap_or_default();
    if program.trim() != "parda" {
        return Err(format!(
            "{name}: process {} is not the agent's, so it cannot be told to reload: within pods it takes \
             shareProcessNamespace: true, for an agent of the node hostPID: true",
            peer.pid()
        ));
    }
    kill(Pid::from_raw(peer.pid()), Signal::SIGHUP).map_err(|error| {
        format!("{name}: process {} cannot be told to reload: {error}", peer.pid())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(name: &str, shares: i64) -> PodSettings {
        let settings = Table::from_iter([("shares".to_owned(), shares.into())]);
        PodSettings { name: name.to_owned(), uid: "1b-2c".to_owned(), settings }
    }

    #[test]
    fn tables_of_pods_are_all_that_changes() {
        let (head, tail) =
            ("host = \"h\"\n  # parda kubernetes: begin\n", "# parda kubernetes: end\n# é");
        let empty = format!("{head}{tail}");
        let one = with_tables(&empty, &[vm("shop.db-0", 5)]).unwrap();
        let table = "[[volume.steer.vm]]\nname = \"shop.db-0\"\ncgroup = \"kubernetes:1b-2c\"\nshares = 5\n";
        assert_eq!(one, format!("{head}{table}{tail}"));
        assert_eq!(with_tables(&one, &[]).unwrap(), empty);
    }

    #[test]
    fn a_wrong_tenant_is_taken_from_its_pod_alone_and_what_is_not_set_is_as_for_all_pods() {
        let text = format!(
            "host = \"h\"\n[[volume]]\nname = \"v\"\n[volume.exchange]\nfile = \"/nowhere/x\"\n[volume.control]\nlatency_threshold = \"9ms\"\n\
             [[volume.tenant]]\nname = \"gold\"\n[[volume.tenant]]\nname = \"kept\"\nreservation = 9\n\
             [volume.steer]\ndevice = \"/dev/none\"\n{BEGIN}\n{END}\n\
             [[volume.steer.vm]]\nname = \"pods\"\ncgroup = \"kubernetes:*\"\nshares = 100\ntenant = \"gold\"\n"
        );
        let before = Document::new("h.toml", &*text);
        let of = |name: &str, tenant: &str| {
            let mut vm = vm(name, 5);
            vm.settings.insert(TENANT.to_owned(), tenant.into());
            vm
        };
        let all = [of("s.a", "gold"), of("s.b", "silver"), of("s.c", "silver"), of("s.d", "kept")];
        let (vms, notes) = with_good_tenants(&before, &all);
        assert_eq!(vms, [of("s.a", "gold"), vm("s.b", 5), vm("s.c", 5), vm("s.d", 5)]);
        let notes: Vec<_> = notes.into_iter().collect();
        let said = "pod s.b: parda/tenant = \"silver\": is no [[volume.tenant]] of this volume";
        assert_eq!(notes[0], said);
        assert!(notes[1].starts_with("pod s.c: ") && notes[2].contains("reservation"), "{notes:?}");
        assert!(checked(&before, &vms).is_ok());
        let wanted = "shares = 100\ntenant = \"gold\"\n".parse::<Table>().unwrap();
        assert_eq!(of_all_pods(&text), Some(wanted));
    }

    #[test]
    fn lines_that_are_missing_or_stand_twice_are_refused() {
        for text in [
            "host = \"h\"\n".to_owned(),
            format!("{BEGIN}\n"),
            format!("{END}\n{BEGIN}\n"),
            format!("{BEGIN}\n{END}\n{BEGIN}\n"),
            format!("{BEGIN} \"x\"\n{END}\n"),
        ] {
            assert!(with_tables(&text, &[]).is_err(), "{text}");
        }
    }
}
