//! `parda libvirt attach` and `detach`: definitions of domains, changed and kept.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use parda_address::Address;
use parda_agent::config::{Config, Listener};
use parda_terminal::{Failure, output};

use super::domain::{Disk, Domain, Source};
use super::edit::{forgotten, noted, unlike, with_shared_memory, without_shared_memory};
use super::place::{below, same_file, same_server};
use super::qos::{BEFORE, Qos};
use super::virsh::{Listed, Virsh};
use crate::input::configuration;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda libvirt attach vm1                   shows what would change
  parda libvirt attach vm1 --apply           changes it, and keeps the definition from before
  parda libvirt attach vm1 --listen unix:/run/parda/array-a.sock --below /mnt/array-a          with libvirt's hook
  virsh define vm1-1790000000.xml            puts the definition from before back

Disks that /etc/parda.toml serves become NBD disks with a reconnect delay, or vhost-user disks where their `listen` says so; others stay.
The metadata notes where the data was. For vhost-user the memory of the domain is shared. Nothing else of the definition changes.
The domain must be shut off: one that runs has its image open, which the agent does not serve.")]
pub(crate) struct Attach {
    #[command(flatten)]
    change: Change,
    /// Seconds that IOs of a guest wait for an agent that is restarted; 0 leaves the setting out. With vhost-user they always wait
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    reconnect_delay: u64,
    /// Attach disks without a table in parda.toml as well, at this address: libvirt's hook has the agent serve them
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Only those below this directory; links and .. are followed
    #[arg(long, value_name = "DIR", requires = "listen")]
    below: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda libvirt detach vm1                   shows what would change
  parda libvirt detach vm1 --apply           changes it, and keeps the definition from before

Disks become what they were before attach. NBD disks without a note of that in the metadata become the files and devices that
/etc/parda.toml names for them.
Take a disk out of parda.toml before its domain starts: QEMU does not open an image that the agent serves.")]
pub(crate) struct Detach {
    #[command(flatten)]
    change: Change,
}

#[derive(Args)]
struct Change {
    /// Names of the domains to change
    #[arg(value_name = "DOMAIN", required = true)]
    domains: Vec<String>,
    /// libvirt's connection URI
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    connect: String,
    /// The agent's configuration, which names the disks
    #[arg(short, long, value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    config: PathBuf,
    /// Make the change. Without this option nothing is changed
    #[arg(long)]
    apply: bool,
    /// Change domains that run as well: the change counts from their next start
    #[arg(long)]
    running: bool,
    /// Directory for copies of the definitions before the change. Whoever may write to it can replace them
    #[arg(long, value_name = "DIR", default_value = ".")]
    backup: PathBuf,
}

/// A disk of the configuration, as a domain may have it.
struct Served {
    path: PathBuf,
    client: Source,
    read_only: bool,
    has_limit: bool,
    /// Reason why no domain can be made a client of it.
    refused: Option<&'static str>,
}

impl Served {
    /// Whether a domain's disk leads here, by a path, that in a note of `attach` too, or as a client. A client that names no export may be
    /// given this one.
    fn is_of(&self, disk: &Disk) -> Result<bool, String> {
        let noted = disk.qos.as_ref().ok().and_then(|qos| qos.path.as_deref());
        if let Some(path) = noted
            && same_file(&self.path, Path::new(path))?
        {
            return Ok(true);
        }
        match (&disk.source, &self.client) {
            (Source::Path { path, .. }, _) => same_file(&self.path, path),
            (Source::Nbd { address, export }, Source::Nbd { address: listen, export: own })
                if export == own || export.is_empty() =>
            {
                same_server(listen, address)
            }
            (Source::Vhost(socket), Source::Vhost(own)) => same_file(own, socket),
            _ => Ok(false),
        }
    }
}

/// A domain with another definition.
struct Changed<'a> {
    name: &'a str,
    uuid: String,
    before: String,
    after: String,
}

/// A change of a domain's disk, from its definition and the configuration's disks to a new definition. `None` if the disk stays.
type Edit<'a> = dyn Fn(&Domain, &Disk, &str, &[Served]) -> Result<Option<String>, String> + 'a;

impl Attach {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let delay = self.reconnect_delay;
        match &self.listen {
            Some(Address::Vhost(_)) => return Err(Failure::usage(format!("--listen: {VHOST}"))),
            Some(Address::Unix(path)) if path.is_relative() => {
                return Err(Failure::usage(format!(
                    "--listen {}: write the whole path",
                    path.display()
                )));
            }
            _ => {}
        }
        let virsh = Virsh { uri: &self.change.connect };
        let listed = virsh.domains()?;
        let everybody = virsh.read_all(&listed)?;
        self.change.run(&listed, &|domain, disk, xml, served| {
            let Source::Path { path, .. } = &disk.source else { return Ok(None) };
            let found = served.iter().find_map(|served| {
                same_file(&served.path, path).map(|same| same.then_some(served)).transpose()
            });
            let (found, own) = (found.transpose()?, self.for_hook(domain, disk, path)?);
            let Some(found) = found.or(own.as_ref()) else { return Ok(None) };
            let is_vhost = matches!(found.client, Source::Vhost(_));
            let is_unlimited = is_vhost && !found.has_limit && disk.is_limited(xml);
            let reasons =
                [(found.read_only && !disk.read_only, READ_ONLY), (is_unlimited, UNLIMITED)];
            let refused = reasons.into_iter().find_map(|(is, why)| is.then_some(why));
            let metadata = disk.qos.as_ref().err().map(String::as_str);
            if let Some(why) = disk.refused.as_deref().or(metadata).or(found.refused).or(refused) {
                return Err(why.to_owned());
            }
            is_there(path)?;
            alone(found, &everybody)?;
            let changed = disk.with(xml, &found.client, delay)?;
            let place = path.to_str().ok_or("a path of it is no text")?;
            let mut notes = vec![("path", place)];
            if !is_vhost {
                return noted(&changed, &disk.target, &notes).map(Some);
            }
            notes.push((BEFORE, disk.text(xml)));
            with_shared_memory(&noted(&changed, &disk.target, &notes)?).map(Some)
        })
    }

    /// A disk that libvirt's hook is to have served, if `--listen` means it.
    fn for_hook(
        &self,
        domain: &Domain,
        disk: &Disk,
        path: &Path,
    ) -> Result<Option<Served>, String> {
        let Some(listen) = &self.listen else { return Ok(None) };
        if self.below.as_ref().is_some_and(|directory| !below(path, directory)) {
            return Ok(None);
        }
        if let Some(why) = &disk.refused {
            let Domain { name, .. } = domain;
            let stays = format!("domain {name}, disk {}: stays as it is: {why}", disk.target);
            return output::print(&stays).map(|()| None).map_err(|failure| failure.message);
        }
        let (address, export) = (listen.clone(), format!("{}-{}", domain.name, disk.target));
        let (path, client) = (path.to_owned(), Source::Nbd { address, export });
        let read_only = disk.read_only;
        Ok(Some(Served { path, client, read_only, has_limit: false, refused: None }))
    }
}

const VHOST: &str = "a socket of vhost-user needs a table in parda.toml, with its [[listener]]: parda libvirt toml writes both";

const TLS: &str = "its listener takes TLS alone, which libvirt has to be told of by hand";
const DRAINED: &str = "it has drain = true, and takes no new client";
const RELATIVE: &str = "its listen is a relative path, and nothing says where the agent was started: write the whole path";
const READ_ONLY: &str = "the agent serves it with read_only, and the domain writes to it: take read_only out, or give the domain's disk <readonly/>";

const UNLIMITED: &str = "has an <iotune>, which QEMU cannot hold it to by vhost-user: give the disk a limit in parda.toml (parda libvirt toml writes it)";

/// Checks that the agent can serve an image, and that `detach` can tell a file from a device.
fn is_there(path: &Path) -> Result<(), String> {
    let about = std::fs::metadata(path);
    let kind = about.map_err(|error| format!("{}: {error}", path.display()))?.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(()),
        false => Err(format!("{}: is neither a file nor a block device", path.display())),
    }
}

/// Checks that no second disk, of any domain, writes to the image that the agent serves. QEMU's lock would keep two writers of an image
/// apart, but an export admits any number of clients.
fn alone(served: &Served, domains: &[Domain]) -> Result<(), String> {
    let mut users = Vec::new();
    for (domain, disk) in domains.iter().flat_map(|d| d.disks.iter().map(move |disk| (d, disk))) {
        let name = format!("{} of domain {}", disk.target, domain.name);
        let uses = served.is_of(disk).map_err(|why| {
            format!("whether {name} has the same image is not known, and the agent would let both write at once: {why}")
        })?;
        if uses {
            users.push((name, disk.read_only));
        }
    }
    if users.len() < 2 || users.iter().all(|(_, read_only)| *read_only) {
        return Ok(());
    }
    let names: Vec<_> = users.into_iter().map(|(name, _)| name).collect();
    Err(format!(
        "{} have one image, which the agent would let all of them write at once",
        names.join(" and ")
    ))
}

impl Detach {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let listed = Virsh { uri: &self.change.connect }.domains()?;
        self.change.run(&listed, &|_, disk, xml, served| {
            let Qos { before, path, .. } = disk.qos.as_ref().map_err(Clone::clone)?;
            let found = served.iter().find(|served| served.client == disk.source);
            let place = match (&disk.source, before, path, found) {
                (Source::Vhost(_), Some(before), ..) => {
                    let xml = without_shared_memory(&disk.replaced(xml, before))?;
                    return forgotten(&xml, &disk.target).map(Some);
                }
                (Source::Nbd { .. }, _, Some(path), _) => Path::new(path),
                (Source::Nbd { .. }, _, None, Some(found)) => &found.path,
                (Source::Vhost(_), None, _, Some(_)) => return Err(UNKNOWN.to_owned()),
                _ => return Ok(None),
            };
            if let Some(why) = &disk.refused {
                return Err(why.clone());
            }
            let about = std::fs::metadata(place)
                .map_err(|error| format!("{}: {error}", place.display()))?;
            let path = std::path::absolute(place).map_err(|error| error.to_string())?;
            let source = Source::Path { path, block: about.file_type().is_block_device() };
            forgotten(&disk.with(xml, &source, 0)?, &disk.target).map(Some)
        })
    }
}

const UNKNOWN: &str = "the metadata of the domain does not say what it was before vhost-user: change it by virsh edit";

impl Change {
    /// Changes disks of all domains by `edit`, which returns the definition with another disk, or `None` if that stays. All is checked before
    /// anything is changed.
    fn run(&self, listed: &[Listed], edit: &Edit<'_>) -> Result<(), Failure> {
        let served = served(&configuration(&self.config)?);
        let virsh = Virsh { uri: &self.connect };
        let (persistent, saved) = (virsh.persistent()?, virsh.saved()?);
        let mut all: Vec<Changed> = Vec::new();
        for name in &self.domains {
            let refused = |why: &str| Err(Failure::usage(format!("domain {name}: {why}")));
            let (Domain { uuid, .. }, before) = virsh.named(name, listed)?;
            if all.iter().any(|other| other.uuid == uuid) {
                return refused("is named twice");
            }
            let after = self.changed(name, &before, &served, edit)?;
            if !persistent.contains(&uuid) {
                return refused("only runs, and has no definition for its next start");
            }
            if saved.contains(&uuid) {
                return refused(
                    "has a saved state, which has its disks as they were: start it and shut it down first",
                );
            }
            if !self.running && !virsh.is_off(&uuid)? {
                return refused(
                    "is not shut off: shut it down, or --running changes its next start",
                );
            }
            all.push(Changed { name, uuid, before, after });
        }
        for domain in &all {
            let name = domain.name;
            output::print(&difference(name, &domain.before, &domain.after))?;
            if domain.needs_memory() {
                output::print(&format!("domain {name}: {VHOST_NEEDS}"))?;
            }
            if self.apply && domain.before != domain.after {
                let kept = domain.apply(&virsh, &self.backup)?;
                output::print(&format!("domain {name}: changed; before: {}", kept.display()))?;
            }
        }
        if !self.apply && all.iter().any(|domain| domain.before != domain.after) {
            output::print("nothing was changed: --apply does")?;
        }
        Ok(())
    }

    /// The definition with other disks.
    fn changed(
        &self,
        name: &str,
        before: &str,
        served: &[Served],
        edit: &Edit<'_>,
    ) -> Result<String, Failure> {
        let mut xml = before.to_owned();
        let parse = |xml: &str| {
            Domain::parse(xml).map_err(|why| Failure::new(format!("domain {name}: {why}")))
        };
        let count = parse(before)?.disks.len();
        let mut changed = 0;
        for at in 0..count {
            // Ranges of the text are those of the text as it is now.
            let domain = parse(&xml)?;
            let disk = &domain.disks[at];
            let wrong =
                |why: String| Failure::usage(format!("domain {name}, disk {}: {why}", disk.target));
            if let Some(new) = edit(&domain, disk, &xml, served).map_err(wrong)? {
                xml = new;
                changed += 1;
            }
        }
        if changed == 0 {
            let config = self.config.display();
            return Err(Failure::usage(format!(
                "domain {name}: none of its disks is to be changed by {config}: see parda libvirt list {name}"
            )));
        }
        Ok(xml)
    }
}

/// Consequences of vhost-user for a guest.
const VHOST_NEEDS: &str = "by vhost-user its memory is a memfd that the agent maps, it cannot be migrated while it runs, and QEMU's \
    user needs read and write permission on the socket ([[listener]]): /usr/share/doc/parda/docs/libvirt.md";

impl Changed<'_> {
    /// Whether a disk becomes one of vhost-user.
    fn needs_memory(&self) -> bool {
        let count = |xml: &str| {
            let disks = Domain::parse(xml).map(|domain| domain.disks).unwrap_or_default();
            disks.iter().filter(|disk| matches!(disk.source, Source::Vhost(_))).count()
        };
        count(&self.after) > count(&self.before)
    }

    /// Keeps the definition from before, defines the new one, and looks whether libvirt has it.
    fn apply(&self, virsh: &Virsh<'_>, backup: &Path) -> Result<PathBuf, Failure> {
        let Changed { name, uuid, before, after } = self;
        let kept = keep(backup, name, before)?;
        // Between this look and the definition is no more than the start of virsh.
        if virsh.definition(uuid)? != *before {
            let _ = std::fs::remove_file(&kept);
            return Err(Failure::new(format!(
                "domain {name}: something else changed its definition since it was read, so it was left alone: try again"
            )));
        }
        let failed = |failure: Failure| Failure {
            message: format!(
                "{}; the definition from before is in {}",
                failure.message,
                kept.display()
            ),
            ..failure
        };
        virsh.define(after).map_err(failed)?;
        let has = virsh.definition(uuid).map_err(failed)?;
        if let Some(other) = unlike(after, &has) {
            virsh.define(before).map_err(failed)?;
            let back = match virsh.definition(uuid).map_err(failed)? == *before {
                true => "the definition from before is back",
                false => {
                    "the definition from before was defined again, and libvirt writes it in another way now: look at it, and try again"
                }
            };
            return Err(failed(Failure::new(format!(
                "domain {name}: libvirt did not take the change as it was given: what it has differs at {other}; {back}"
            ))));
        }
        if after.contains("<reconnect delay=") && !has.contains("<reconnect delay=") {
            output::print(&format!(
                "domain {name}: this libvirt has no reconnect delay for NBD: a restart of the agent is an IO error in the guest \
                 (/usr/share/doc/parda/docs/restarts.md)"
            ))?;
        }
        Ok(kept)
    }
}

/// Disks of a configuration that are files or devices.
fn served(config: &Config) -> Vec<Served> {
    let with_tls = |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.required);
    let disks = config.volumes.iter().flat_map(|volume| {
        volume.disks().iter().filter_map(move |disk| {
            // A domain has no part of a device.
            let (Some(path), None) = (disk.backend.path(), disk.region) else { return None };
            let export = disk.name.to_string();
            let listener = volume.listeners.iter().find(|listener| listener.address == disk.listen);
            let relative = disk.listen.path().is_some_and(Path::is_relative);
            let reasons = [
                (listener.is_some_and(with_tls), TLS),
                (disk.drain, DRAINED),
                (relative, RELATIVE),
            ];
            Some(Served {
                path: path.to_owned(),
                client: match &disk.listen {
                    Address::Vhost(socket) => Source::Vhost(socket.clone()),
                    address => Source::Nbd { address: address.clone(), export },
                },
                read_only: disk.read_only,
                has_limit: disk.settings.limit.is_some(),
                refused: reasons.into_iter().find_map(|(is, why)| is.then_some(why)),
            })
        })
    });
    disks.collect()
}

/// Writes a definition to a file that is not there yet, for its owner alone: it may have passwords.
fn keep(directory: &Path, name: &str, xml: &str) -> Result<PathBuf, Failure> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let usual = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    // A file's name has at most 255 bytes.
    let plain: String = name.chars().map(usual).take(50).collect();
    let mut path = directory.join(format!("{plain}-{seconds}.xml"));
    for next in 2_u32.. {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        if file.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
            path = directory.join(format!("{plain}-{seconds}-{next}.xml"));
            continue;
        }
        let written = file.and_then(|mut file| {
            file.write_all(xml.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        break;
    }
    Ok(path)
}

/// Disks that change, as lines that go and come.
fn difference(name: &str, before: &str, after: &str) -> String {
    let (Ok(old), Ok(new)) = (Domain::parse(before), Domain::parse(after)) else {
        return String::new();
    };
    let mut text = String::new();
    for (old, new) in old.disks.iter().zip(&new.disks).filter(|(old, new)| old.source != new.source)
    {
        text += &format!("domain {name}, disk {}\n", old.target);
        let (gone, came): (Vec<_>, Vec<_>) =
            (old.text(before).lines().collect(), new.text(after).lines().collect());
        let alike = gone.iter().rev().zip(came.iter().rev()).take_while(|(a, b)| a == b).count();
        let part = |mark, lines: &[&str]| {
            let changed = &lines[..lines.len() - alike];
            let lines = changed.iter().map(|line| format!("{mark} {}\n", output::line(line)));
            lines.collect::<String>()
        };
        text += &part('-', &gone);
        text += &part('+', &came);
    }
    text
}
