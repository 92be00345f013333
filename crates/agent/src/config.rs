//! Checked meaning of the configuration file. The check finds all errors that need no open device, and names file, line and value of each.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parda_address::{Address, ExportName, Protocol};
use parda_block::{AgentMemory, BackendConfig, DiskRegion};
use parda_config::{Document, Error, TablePart, TenantSettings, wrong_tenants};
use parda_control::law::Mode;
use parda_control::{Bytes, Costs, Span};
use parda_exchange::slot::MOST_TENANTS;
use parda_exchange::{HostName, HostNameError};

use crate::file;
use crate::threshold::Probed;
use names::check_name;
use place::{REGION_ALIGNMENT, place};
use places::Places;

pub(crate) mod apart;
mod etcd;
mod etcd_data;
mod exchange;
mod files;
mod http;
pub(crate) mod limits;
mod listener;
mod meeting;
pub(crate) mod misplaced;
mod names;
mod nbd;
pub(crate) mod own;
mod place;
mod places;
pub(crate) use places::refused;
mod policy;
mod pool;
mod qemu;
mod server_tls;
mod steer;
mod udp;
mod volume;

pub use etcd::Etcd;
pub use exchange::{Exchange, Slots, Transport};
pub use http::Http;
pub use listener::Listener;
pub use own::api_beside;
pub(crate) use own::is_of_this_host;
pub use parda_address::Place;
pub use parda_block::DiskConfig;
pub(crate) use places::directory_of;
pub use policy::{Policy, named_cluster};
pub use pool::Pool;
pub use qemu::{Qemu, Rules};
pub use steer::{Steer, SteeredVm, Vms};
pub use udp::Udp;
pub(crate) use volume::Target;
pub use volume::{IdleProbe, Volume, Work};

/// Configuration of a host, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name in the cluster.
    pub host: HostName,
    /// Socket that `parda status` connects to.
    pub status: Option<PathBuf>,
    /// File in which live changes are kept.
    pub state: Option<PathBuf>,
    /// HTTP server of metrics, health and the API.
    pub http: Option<Http>,
    /// URL of the dashboards of all hosts, with `{host}` for the host's name.
    pub pages: Option<String>,
    /// File of the API's tokens.
    pub tokens: Option<PathBuf>,
    /// Source in etcd of settings that are the same on all hosts.
    pub policy: Option<Policy>,
    /// Memory for the buffers of all volumes, in bytes.
    pub memory: usize,
    /// Its volumes, at least one.
    pub volumes: Vec<Volume>,
    /// Addresses of `[[listener]]` tables at which no disk listens.
    pub unused: Vec<Address>,
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path) -> Result<Config, Error> {
        Config::check(&Document::read(path)?)
    }

    /// Checks a configuration together with the data of its disks. Also reads the certificates for their servers and the keys of its
    /// exchanges.
    ///
    /// # Errors
    /// The first fault of the configuration, or of those certificates or keys. Also a disk that is an image of another format, or whose
    /// data is missing.
    pub fn look_into(doc: &Document) -> Result<Config, Error> {
        let config = Config::check(doc)?;
        apart::data(doc, &config.volumes)?;
        files::secrets(doc, &config.volumes)?;
        files::shown(doc, config.http.as_ref())?;
        files::tokens(doc, config.tokens.as_deref())?;
        // A certificate shared with an exchange was read with that exchange.
        if let Some(policy) = config.policy.as_ref().filter(|policy| policy.is_apart) {
            files::of_etcd(&doc.part("policy"), &policy.etcd)?;
        }
        Ok(config)
    }

    /// Checks a configuration, and that no two places of its disks, exchanges and sockets are one. Asks the file systems, and waits for a
    /// bounded time for those that do not answer.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(doc: &Document) -> Result<Config, Error> {
        let config = Config::settings(doc)?;
        let volumes = &config.volumes;
        let places = Places::look(volumes);
        apart::exchanges(doc, volumes, &places)?;
        apart::disks(doc, volumes, &places)?;
        apart::sockets(doc, config.status.as_deref(), config.http.as_ref(), volumes)?;
        Ok(config)
    }

    /// Checks the settings of a configuration without a look at the file systems of its disks and exchanges. Reads stored probes.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn settings(doc: &Document) -> Result<Config, Error> {
        let file: file::File = doc.parse().map_err(misplaced::explained)?;
        let host = HostName::new(&file.host).map_err(|e| doc.error("host", e.to_string()))?;
        let status = file.status.as_deref().map(|text| match text.parse() {
            Ok(Address::Unix(path)) => Ok(path),
            _ => Err(doc.error("status", "must be unix:PATH")),
        });
        let http = file.http.as_ref().map(|http| http::check(doc, http)).transpose()?;
        if file.volume.is_empty() {
            return Err(doc.error("volume", "is missing: at least one [[volume]] is needed"));
        }
        let listeners = listener::check_all(doc, &file.listener)?;
        let served = file.volume.iter().filter(|volume| volume.is_served()).count();
        let memory = limits::check_agent(&doc.part("limits"), &file.limits, served)?;
        let shared = AgentMemory::new(memory, served);
        let mut volumes = file
            .volume
            .iter()
            .enumerate()
            .map(|(i, volume)| {
                let at = doc.part(format!("volume.{i}"));
                check_volume(&at, &host, volume, &listeners, &shared)
            })
            .collect::<Result<Vec<_>, _>>()?;
        are_unique(doc, &volumes)?;
        apart::addresses(doc, &volumes)?;
        meeting::pools(doc, &volumes)?;
        // Where a volume waits for its disks, those may listen there.
        let waits = volumes.iter().any(|volume| volume.is_served() && volume.disks().is_empty());
        let unused = if waits { Vec::new() } else { listener::unused(&listeners, &volumes) };
        let status = status.transpose()?;
        let disks = volumes.iter().flat_map(Volume::disks);
        let places = disks.map(|disk| (disk.backend.place(), &disk.listen));
        let own = Arc::new(own::Own::new(doc, &file, &host, places));
        volumes.iter_mut().for_each(|volume| volume.own = Arc::clone(&own));
        if file.state.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(doc.error("state", "must be a path"));
        }
        let policy = file.policy.as_ref();
        let policy =
            policy.map(|written| policy::check(doc, written, file.state.as_deref(), &volumes));
        let policy = policy.transpose()?;
        let (pages, tokens) = file.http.map_or((None, None), |http| (http.pages, http.tokens));
        let state = file.state;
        Ok(Config { host, status, state, http, pages, tokens, policy, memory, volumes, unused })
    }

    /// Places of the HTTP server: the one that the file names, and a unix socket beside the status socket. At the latter the agent's own
    /// user may change settings.
    #[must_use]
    pub fn http_places(&self) -> Vec<Http> {
        let beside =
            |status: &PathBuf| Http { address: Address::Unix(api_beside(status)), tls: None };
        self.http.iter().cloned().chain(self.status.as_ref().map(beside)).collect()
    }

    /// The volume of a name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// Notes on data that is not there, or does not answer. No error: a volume may be mounted after the agent has started.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let missing = places::missing(&self.volumes);
        missing.into_iter().chain(places::thresholds(&self.volumes)).collect()
    }

    /// Warnings about settings that are allowed.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let listeners = self.volumes.iter().flat_map(listener::warnings);
        let objectives = self.volumes.iter().flat_map(objective_warnings);
        let guarantees = self.volumes.iter().flat_map(guarantee_warnings);
        let unused = self.unused.iter().map(|address| {
            format!(
                "{address}: a [[listener]] where no disk of the configuration listens: write it as `listen` does, unless it is for `parda disk add`"
            )
        });
        listeners
            .chain(unused)
            .chain(objectives)
            .chain(guarantees)
            .chain(etcd_data::warnings(&self.volumes))
            .collect()
    }
}

/// Warnings about reservations and tenants that have no effect, or cannot be met.
fn guarantee_warnings(volume: &Volume) -> impl Iterator<Item = String> {
    let acts = volume.law.law.mode == Mode::Parda;
    let reserves = move |reservation: Option<f64>| reservation.is_some() && !acts;
    let disks = volume.disks().iter().filter(move |disk| reserves(disk.settings.reservation));
    let disks = disks.map(|disk| format!("{}: reservation needs mode = \"parda\"", disk.name));
    let tenants = volume
        .tenants
        .iter()
        .filter(move |tenant| reserves(tenant.reservation) || (tenant.shares.is_some() && !acts));
    let tenants = tenants.map(|tenant| {
        format!("tenant {}: shares and reservation need mode = \"parda\"", tenant.name)
    });
    disks.chain(tenants).chain(volume.over_reserved().filter(|_| acts))
}

/// Warnings about latency objectives that cannot be met, or that have no effect.
fn objective_warnings(volume: &Volume) -> impl Iterator<Item = String> {
    let control = &volume.law;
    let floor = control.objective_floor;
    let follows = matches!(control.law.mode, Mode::Parda | Mode::Observe);
    volume.disks().iter().filter_map(move |disk| {
        let target = Span::from(disk.settings.latency_target?);
        if !follows {
            return Some(format!("{}: latency_target needs mode = \"parda\"", disk.name));
        }
        let ms = |span: Span| span.secs() * 1e3;
        (target.0 < floor.0).then(|| {
            format!(
                "{}: latency_target is {} ms, but no objective brings the threshold below \
                 latency_target_min, {} ms",
                disk.name,
                ms(target),
                ms(floor)
            )
        })
    })
}

/// Size of the largest file or device that Linux can have.
const MOST_BYTES: u64 = i64::MAX as u64;

/// Refuses volumes and disks that have one name, and addresses of two volumes or two guests.
fn are_unique(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let (mut names, mut exports) = (HashSet::new(), HashSet::new());
    let mut volume_at: HashMap<&Address, usize> = HashMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let is_new = names.insert(&volume.name);
        let message = "is also the name of another volume: names must differ";
        doc.part(format!("volume.{i}")).refuse_if(!is_new, "name", message)?;
        for (j, DiskConfig { name, listen, .. }) in volume.disks().iter().enumerate() {
            let wrong = |key: &str, message: &str| {
                Err(doc.error(&format!("volume.{i}.disk.{j}.{key}"), message))
            };
            if !exports.insert((listen, name)) {
                return wrong("name", &format!("is served at {listen} already"));
            }
            match volume_at.insert(listen, i) {
                Some(volume) if volume != i => {
                    let message =
                        "belongs to another volume: each volume needs listeners of its own";
                    return wrong("listen", message);
                }
                Some(_) if listen.protocol() == Protocol::Vhost => {
                    let message =
                        "is another disk's already: a socket of vhost-user is for one disk";
                    return wrong("listen", message);
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn check_volume(
    at: &TablePart<'_>,
    host: &HostName,
    volume: &file::VolumeTable,
    described: &[Listener],
    memory: &AgentMemory,
) -> Result<Volume, Error> {
    check_name(at, "name", &volume.name)?;
    let has_control = volume.name.contains(char::is_control);
    at.refuse_if(has_control, "name", "must not contain control characters")?;
    if let Some((i, key, fault)) = wrong_tenants(&volume.tenant) {
        return Err(at.error(&format!("tenant.{i}.{key}"), fault));
    }
    let probed = volume.control.probe().map(Probed::read).transpose();
    let probed = at.read("control.latency_threshold.probe", probed)?;
    let recommended = probed.as_ref().and_then(|p| p.threshold);
    let law = volume.control.resolve_probed(recommended).map_err(|e| {
        at.error(&format!("control.{}", e.parameter), format!("must be {}", e.must_be))
    })?;
    let ignored = volume.control.ignore.as_deref().map(names).transpose();
    at.read("control.ignore", ignored)?;
    let pool = pool::check(at, host, volume)?;
    let meets_as = pool.as_ref().map_or(&volume.name, |pool| &pool.name);
    let exchange = volume.exchange.as_ref().map(|e| exchange::check(at, meets_as, e));
    let exchange = exchange.transpose()?;
    if !volume.is_served() {
        let key = if volume.steer.is_some() { "steer" } else { "qemu" };
        let message = "a volume is either steered or served, and this one has disks, or [volume.qemu] as well";
        let both = volume.steer.is_some() && volume.qemu.is_some();
        at.refuse_if(!volume.disk.is_empty() || both, key, message)?;
        let message = "must be \"outstanding\" or \"iops\" on a steered volume: a queue or a throttle counts IOs";
        let counts_ios = law.costs.is_none_or(|costs| costs == Costs::IOPS);
        at.refuse_if(!counts_ios, "control.fairness", message)?;
    }
    let work = match (&volume.steer, &volume.qemu) {
        (Some(steer), _) => Work::Steer(steer::check(&at.part("steer"), steer)?),
        (None, Some(qemu)) => Work::Qemu(qemu::check(&at.part("qemu"), qemu, law.law.mode)?),
        (None, None) => Work::Serve(check_disks(at, &volume.disk)?),
    };
    check_tenants(at, &volume.tenant, &work)?;
    let message = "are only for disks that are served";
    at.refuse_if(volume.limits.is_some() && !volume.is_served(), "limits", message)?;
    let limits = volume.limits.clone().unwrap_or_default();
    let limits = limits::check_volume(at, &limits, memory)?;
    let asked = volume.control.probes_when_idle();
    let idle_probe = asked.then(|| check_idle_probe(probed.as_ref(), &work)).transpose();
    Ok(Volume {
        name: volume.name.clone(),
        pool,
        control: volume.control.clone(),
        law,
        probed,
        idle_probe: at.read("control.latency_threshold.idle_probe", idle_probe)?,
        exchange,
        listeners: listener::of_disks(at, &work, described)?,
        limits,
        tenants: volume.tenant.clone(),
        work,
        own: Arc::default(),
    })
}

/// Names of hosts in a setting that lists them.
pub(crate) fn names(text: &str) -> Result<Vec<HostName>, HostNameError> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(HostName::new).collect()
}

fn check_tenants(at: &TablePart<'_>, tenants: &[TenantSettings], work: &Work) -> Result<(), Error> {
    let (key, vms): (_, Vec<_>) = match work {
        Work::Serve(disks) => ("disk", disks.iter().map(|disk| disk.settings.tenant).collect()),
        Work::Steer(Steer { vms: Vms::Host(_), .. }) => return Ok(()),
        Work::Steer(Steer { vms: Vms::Groups(vms), .. }) => {
            ("steer.vm", vms.iter().map(|vm| vm.settings.tenant).collect())
        }
        Work::Qemu(qemu) => {
            ("qemu.vm", qemu.vms.0.iter().map(|(_, settings)| settings.tenant).collect())
        }
    };
    let mut here = BTreeSet::new();
    for (i, tenant) in vms.into_iter().enumerate() {
        let (Some(tenant), key) = (tenant, format!("{key}.{i}.tenant")) else { continue };
        here.insert(tenant);
        let known = tenants.iter().position(|known| known.name == tenant);
        let known = at.read(&key, known.ok_or("is no [[volume.tenant]] of this volume"))?;
        let message =
            format!("is one tenant too many: a host can have disks of {MOST_TENANTS} at a volume");
        at.refuse_if(here.len() > MOST_TENANTS, &key, message)?;
        if let Some((setting, fault)) = not_held(&tenants[known], work) {
            return Err(at.error(&format!("tenant.{known}.{setting}"), fault));
        }
    }
    Ok(())
}

/// The setting of a tenant with VMs here that this host cannot hold, and its fault. A tenant without VMs here may have any.
fn not_held(tenant: &TenantSettings, work: &Work) -> Option<(&'static str, String)> {
    let who = match work {
        Work::Serve(_) => return None,
        Work::Steer(_) => "the kernel",
        Work::Qemu(_) => "QEMU",
    };
    if tenant.reservation.is_some() {
        let fault = format!(
            "cannot be kept for VMs whose IOs {who} orders: leave it out, or serve the disks of tenant {}",
            tenant.name
        );
        return Some(("reservation", fault));
    }
    let limit = tenant.limit?;
    let fault = match work {
        Work::Serve(_) => None,
        Work::Steer(_) => limit.fault_steered(),
        Work::Qemu(_) => limit.fault_throttled(),
    };
    Some(("limit", fault?))
}

/// Target of the idle probe of a volume: its first disk that is a file or a device.
fn check_idle_probe(probed: Option<&Probed>, work: &Work) -> Result<IdleProbe, &'static str> {
    let probe = probed.ok_or("needs probe, the file that it writes")?.file.clone();
    let Work::Serve(disks) = work else {
        return Err("is only for disks that are served: who else opens a device is not known");
    };
    let target = disks.iter().find_map(|disk| {
        Some(Target { path: disk.backend.path()?.to_owned(), region: disk.bytes() })
    });
    let target = target.ok_or("needs a disk that is a file or a block device")?;
    Ok(IdleProbe { target, probe })
}

fn check_disks(at: &TablePart<'_>, files: &[file::DiskTable]) -> Result<Vec<DiskConfig>, Error> {
    // An empty list is written on purpose: its disks are added while the agent runs.
    let message = "is missing: a [[volume.disk]] to serve is needed, or [volume.steer]; disk = [] waits for parda disk add";
    at.refuse_if(files.is_empty() && !at.has("disk"), "disk", message)?;
    let disks = files.iter().enumerate();
    disks.map(|(i, disk)| check_disk(&at.part(&format!("disk.{i}")), disk)).collect()
}

fn check_disk(at: &TablePart<'_>, disk: &file::DiskTable) -> Result<DiskConfig, Error> {
    let name = at.read("name", ExportName::new(&disk.name))?;
    check_name(at, "name", &disk.name)?;
    let most = ExportName::MAX_LEN;
    let is_long = disk.description.len() > most || disk.description.contains('\0');
    let message = format!("must be at most {most} bytes, without a NUL");
    at.refuse_if(is_long, "description", message)?;
    for (key, bytes) in [("offset", disk.offset), ("size", disk.size)] {
        let aligned = bytes.is_none_or(|b| b.as_u64().is_multiple_of(REGION_ALIGNMENT));
        at.refuse_if(!aligned, key, "must be a multiple of 4KiB")?;
    }
    let message = "needs a size as well, the bytes of the region from there on: size = \"8GiB\"";
    at.refuse_if(disk.offset.is_some() && disk.size.is_none(), "offset", message)?;
    let from = disk.offset.map_or(0, |b| b.as_u64());
    let region = disk.size.map(|size| from..from.saturating_add(size.as_u64()));
    let good = region.as_ref().is_none_or(|r| r.end > r.start && r.end <= MOST_BYTES);
    at.refuse_if(!good, "size", "must be above zero, and end below 8EiB")?;
    if let Some((key, message)) = disk.settings().fault() {
        return Err(at.error(key, message));
    }
    let mut place = at.read("path", place(&disk.path))?;
    let nbd = nbd::check(at, &place, disk.nbd.as_ref())?;
    let tls = disk.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref());
    server_tls::check(at, &mut place, "path", tls)?;
    let raw = disk.format == Some(file::Format::Raw);
    let backend = match place {
        Place::Path(path) => {
            BackendConfig::File { path, direct: disk.direct, lock: disk.lock, raw }
        }
        Place::Nbd(uri) => BackendConfig::Nbd { uri, options: nbd },
    };
    let listen = at.read("listen", disk.listen.parse())?;
    Ok(DiskConfig {
        description: disk.description.clone(),
        region: region.map(|r| DiskRegion { offset: Bytes(r.start), len: Bytes(r.end - r.start) }),
        read_only: disk.read_only,
        settings: disk.settings().or_defaults(),
        drain: disk.drain,
        ..DiskConfig::new(name, backend, listen)
    })
}
