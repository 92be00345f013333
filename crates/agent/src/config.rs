//! What the configuration file means, checked: everything that can be found wrong without opening
//! a device is found here, and pointed at by file, line and value.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parda_address::{Address, AddressError, ExportName};
use parda_block::AgentMemory;
use parda_config::{Document, Error, TenantSettings, wrong_tenants};
use parda_control::law::Mode;
use parda_control::{Costs, Span};
use parda_exchange::HostName;
use parda_exchange::slot::MOST_TENANTS;

use crate::file;
use crate::threshold::Probed;
use listener::Listeners;
use place::{REGION_ALIGNMENT, place};
use places::Places;

pub(crate) mod apart;
mod etcd;
mod etcd_data;
mod exchange;
mod files;
mod http;
mod idle_probe;
pub(crate) mod limits;
mod listener;
mod meeting;
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
pub use exchange::{Exchange, Slots};
pub use http::Http;
pub use idle_probe::IdleProbe;
pub(crate) use idle_probe::Target;
pub use listener::{Listener, Tls};
pub use own::api_beside;
pub use place::Place;
pub use policy::{Policy, named_cluster};
pub use pool::Pool;
pub use qemu::{Qemu, Rules};
pub use steer::{Steer, SteeredVm, Vms};
pub use udp::Udp;
pub use volume::{Disk, Volume, Work};

/// Configuration of a host, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name in the cluster.
    pub host: HostName,
    /// Where `parda status` asks.
    pub status: Option<PathBuf>,
    /// File in which live changes are kept.
    pub state: Option<PathBuf>,
    /// Where metrics, health and the API are, in HTTP.
    pub http: Option<Http>,
    /// URL of the dashboards of all hosts, with `{host}` for the host's name.
    pub pages: Option<String>,
    /// File of the API's tokens.
    pub tokens: Option<PathBuf>,
    /// Where settings come from that live in one place for all hosts.
    pub policy: Option<Policy>,
    /// Memory for the buffers of all volumes, in bytes.
    pub memory: usize,
    /// Its volumes, at least one.
    pub volumes: Vec<Volume>,
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path) -> Result<Config, Error> {
        Config::check(&Document::read(path)?)
    }

    /// Reads and checks a configuration file that was read before, which a pipe cannot be.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read_again(path: &Path) -> Result<Config, Error> {
        Config::check(&Document::read_regular(path)?)
    }

    /// Reads and checks a configuration file and looks into the disks that it names and the
    /// certificates for their servers, and the keys of its exchanges.
    ///
    /// # Errors
    /// The first thing that is wrong with it or with those certificates or keys, or a disk that is an
    /// image of another format or no data at all.
    pub fn look(path: &Path) -> Result<Config, Error> {
        Config::look_into(&Document::read(path)?)
    }

    /// The same with a file that was read before, which a pipe can be once.
    ///
    /// # Errors
    /// As with [`Config::look`].
    pub fn look_into(doc: &Document) -> Result<Config, Error> {
        let config = Config::check(doc)?;
        apart::kinds(doc, &config.volumes)?;
        apart::images(doc, &config.volumes)?;
        apart::own_files(doc, &config.volumes)?;
        files::certificates(doc, &config.volumes)?;
        files::keys(doc, &config.volumes)?;
        files::shown(doc, config.http.as_ref())?;
        files::tokens(doc, config.tokens.as_deref())?;
        // That of an exchange was read with the exchange.
        if let Some(policy) = config.policy.as_ref().filter(|policy| policy.is_apart) {
            files::policy(doc, &policy.etcd)?;
        }
        Ok(config)
    }

    /// Checks a configuration, and where its disks, exchanges and sockets are.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(doc: &Document) -> Result<Config, Error> {
        let config = Config::settings(doc)?;
        config.places_are_apart(doc)?;
        Ok(config)
    }

    /// Checks that no two places are one. Asks the file systems, and waits for a bounded time for those that do not answer.
    fn places_are_apart(&self, doc: &Document) -> Result<(), Error> {
        let places = Places::look(&self.volumes);
        apart::exchanges(doc, &self.volumes, &places)?;
        apart::disks(doc, &self.volumes, &places)?;
        apart::own_sockets(doc, self.status.as_deref(), &self.volumes)?;
        let http = self.http.as_ref();
        http.map_or(Ok(()), |http| {
            http::is_its_own(doc, &http.address, self.status.as_deref(), &self.volumes)
        })
    }

    /// Checks the settings of a configuration, wherever its places are. Reads stored probes.
    pub(crate) fn settings(doc: &Document) -> Result<Config, Error> {
        let file: file::File = doc.parse()?;
        let host = HostName::new(&file.host).map_err(|e| doc.error("host", e.to_string()))?;
        let status = file.status.as_deref().map(|text| match text.parse() {
            Ok(Address::Unix(path)) => Ok(path),
            _ => Err(doc.error("status", "must be unix:PATH")),
        });
        let http = file.http.as_ref().map(|http| http::check(doc, http)).transpose()?;
        if file.volume.is_empty() {
            return Err(doc.error("volume", "is missing: at least one [[volume]] is needed"));
        }
        let listeners = Listeners::check(doc, &file.listener)?;
        let served = file.volume.iter().filter(|volume| volume.is_served()).count();
        let memory = limits::check_agent(doc, &file.limits, served)?;
        let mut unique = Unique::new(listeners, AgentMemory::new(memory, served));
        let mut volumes = file
            .volume
            .iter()
            .enumerate()
            .map(|(i, volume)| {
                check_volume(doc, &host, &format!("volume.{i}"), volume, &mut unique)
            })
            .collect::<Result<Vec<_>, _>>()?;
        apart::addresses(doc, &volumes)?;
        meeting::pools(doc, &volumes)?;
        // Disks that are added later may listen there.
        if !volumes.iter().any(|volume| volume.is_served() && volume.disks().is_empty()) {
            unique.described.all_are_used(doc)?;
        }
        let status = status.transpose()?;
        let disks = volumes.iter().flat_map(Volume::disks);
        let places = disks.map(|disk| (&disk.place, &disk.listen));
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
        Ok(Config { host, status, state, http, pages, tokens, policy, memory, volumes })
    }

    /// Places of the HTTP server: that of the file, and a unix socket beside the status socket, at which the agent's own user may
    /// change settings.
    #[must_use]
    pub fn http_places(&self) -> Vec<Http> {
        let beside =
            |status: &PathBuf| Http { address: Address::Unix(api_beside(status)), tls: None };
        self.http.iter().cloned().chain(self.status.as_ref().map(beside)).collect()
    }

    /// Notes on data that is not there, or does not answer. No error: a volume may be mounted after the agent has started.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        places::missing(&self.volumes)
    }

    /// Warnings about settings that are allowed.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let listeners = self.volumes.iter().flat_map(listener::warnings);
        let objectives = self.volumes.iter().flat_map(objective_warnings);
        let guarantees = self.volumes.iter().flat_map(guarantee_warnings);
        listeners
            .chain(objectives)
            .chain(guarantees)
            .chain(etcd_data::warnings(&self.volumes))
            .collect()
    }
}

/// Warnings about reservations and tenants that have no effect, or cannot be met.
fn guarantee_warnings(volume: &Volume) -> impl Iterator<Item = String> {
    let acts = volume.law.control.law.mode == Mode::Parda;
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
    let control = &volume.law.control;
    let floor = control.objective_floor;
    let follows = matches!(control.law.mode, Mode::Parda | Mode::Observe);
    volume.disks().iter().filter_map(move |disk| {
        let target = disk.vm().target?;
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

/// Names and places that must not appear twice in a file.
struct Unique {
    memory: AgentMemory,
    volumes: BTreeSet<String>,
    exports: BTreeSet<(String, String)>,
    /// Listeners that disks name, with the number of their volume.
    listeners: Vec<(Listener, usize)>,
    /// Numbers of their volumes by their addresses.
    volume_at: HashMap<Address, usize>,
    /// Addresses by the paths of their sockets.
    sockets: HashMap<PathBuf, Address>,
    /// The `[[listener]]` tables, of which each must be used by a disk.
    described: Listeners,
}

impl Unique {
    /// Notes the socket of an address. An address that has it by another name or for another protocol is answered.
    fn socket(&mut self, address: &Address) -> Option<Address> {
        let (Address::Unix(path) | Address::Vhost(path)) = address else { return None };
        self.sockets.insert(std::path::absolute(path).ok()?, address.clone())
    }

    fn new(described: Listeners, memory: AgentMemory) -> Unique {
        let (volumes, exports) = (BTreeSet::new(), BTreeSet::new());
        let (listeners, volume_at, sockets) = (Vec::new(), HashMap::new(), HashMap::new());
        Unique { memory, volumes, exports, listeners, volume_at, sockets, described }
    }

    /// The listeners of the volume that was checked last.
    fn listeners_of_last(&self) -> Vec<Listener> {
        let last = self.volumes.len();
        self.listeners.iter().filter(|(_, v)| *v == last).map(|(l, _)| l.clone()).collect()
    }
}

fn check_volume(
    doc: &Document,
    host: &HostName,
    at: &str,
    volume: &file::Volume,
    unique: &mut Unique,
) -> Result<Volume, Error> {
    let wrong = |key: &str, message: String| doc.error(&format!("{at}.{key}"), message);
    if volume.name.is_empty() {
        return Err(wrong("name", "must not be empty".into()));
    }
    if !unique.volumes.insert(volume.name.clone()) {
        return Err(wrong("name", "is also the name of another volume: names must differ".into()));
    }
    let probed = volume.control.probe().map(Probed::read).transpose();
    let probed = probed.map_err(|e| wrong("control.latency_threshold.probe", e))?;
    let recommended = probed.as_ref().and_then(|p| p.threshold);
    let law = volume.control.resolve_probed(recommended).map_err(|e| {
        wrong(&format!("control.{}", e.parameter), format!("must be {}", e.must_be))
    })?;
    let pool = pool::check(&wrong, host, volume)?;
    let meets_as = pool.as_ref().map_or(&volume.name, |pool| &pool.name);
    let exchange = volume.exchange.as_ref().map(|e| exchange::check(&wrong, meets_as, e));
    let exchange = exchange.transpose()?;
    if !volume.is_served() {
        let key = if volume.steer.is_some() { "steer" } else { "qemu" };
        if !volume.disk.is_empty() || (volume.steer.is_some() && volume.qemu.is_some()) {
            let message = "a volume is either steered or served, and this one has disks, or [volume.qemu] as well";
            return Err(wrong(key, message.into()));
        }
        if law.control.costs.is_some_and(|costs| costs != Costs::IOPS) {
            let message = "must be \"outstanding\" or \"iops\" on a steered volume: a queue or a throttle counts IOs";
            return Err(wrong("control.fairness", message.into()));
        }
    }
    let work = match (&volume.steer, &volume.qemu) {
        (Some(steer), _) => Work::Steer(steer::check(
            &|key, message| wrong(&format!("steer.{key}"), message),
            steer,
        )?),
        (None, Some(qemu)) => Work::Qemu(qemu::check(
            &|key, message| wrong(&format!("qemu.{key}"), message),
            qemu,
            law.control.law.mode,
        )?),
        (None, None) => Work::Serve(check_disks(doc, at, &volume.disk, unique)?),
    };
    check_tenants(&wrong, &volume.tenant, &work)?;
    let limits = match (&volume.limits, &work) {
        (Some(_), Work::Steer(_) | Work::Qemu(_)) => {
            return Err(wrong("limits", "are only for disks that are served".into()));
        }
        (written, _) => {
            let written = written.clone().unwrap_or_default();
            limits::check_volume(&wrong, &written, &unique.memory)?
        }
    };
    let asked = volume.control.probes_when_idle();
    let idle_probe = asked.then(|| check_idle_probe(probed.as_ref(), &work)).transpose();
    let idle_probe =
        idle_probe.map_err(|e| wrong("control.latency_threshold.idle_probe", e.to_owned()))?;
    let listeners = unique.listeners_of_last();
    let name = volume.name.clone();
    let control = volume.control.clone();
    let own = Arc::default();
    Ok(Volume {
        name,
        pool,
        control,
        law,
        probed,
        idle_probe,
        exchange,
        listeners,
        limits,
        tenants: volume.tenant.clone(),
        work,
        own,
    })
}

fn check_tenants(
    wrong: &dyn Fn(&str, String) -> Error,
    tenants: &[TenantSettings],
    work: &Work,
) -> Result<(), Error> {
    if let Some((at, key, fault)) = wrong_tenants(tenants) {
        return Err(wrong(&format!("tenant.{at}.{key}"), fault));
    }
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
    for (at, tenant) in vms.into_iter().enumerate() {
        let Some(tenant) = tenant else { continue };
        let wrong_vm = |fault| Err(wrong(&format!("{key}.{at}.tenant"), fault));
        here.insert(tenant);
        let Some(known) = tenants.iter().position(|known| known.name == tenant) else {
            return wrong_vm("is no [[volume.tenant]] of this volume".to_owned());
        };
        if here.len() > MOST_TENANTS {
            return wrong_vm(format!(
                "is one tenant too many: a host can have disks of {MOST_TENANTS} at a volume"
            ));
        }
        if let Some((setting, fault)) = not_held(&tenants[known], work) {
            return Err(wrong(&format!("tenant.{known}.{setting}"), fault));
        }
    }
    Ok(())
}

/// The setting of a tenant with VMs here that this host cannot hold, and what is wrong with it. A tenant without VMs here may have any.
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
        Work::Qemu(_) => limit.fault_throttled(),
        _ => limit.fault_steered(),
    };
    Some(("limit", fault?))
}

/// Target of the idle probe of a volume: its first disk that is a file or a device.
fn check_idle_probe(probed: Option<&Probed>, work: &Work) -> Result<IdleProbe, &'static str> {
    let probe = probed.ok_or("needs probe, the file that it writes")?.file.clone();
    let Work::Serve(disks) = work else {
        return Err("is only for disks that are served: who else opens a device is not known");
    };
    let target = disks.iter().find_map(|disk| match &disk.place {
        Place::Path(path) => Some(Target { path: path.clone(), region: disk.region.clone() }),
        Place::Nbd(_) => None,
    });
    let target = target.ok_or("needs a disk that is a file or a block device")?;
    Ok(IdleProbe { target, probe })
}

fn check_disks(
    doc: &Document,
    at: &str,
    files: &[file::Disk],
    unique: &mut Unique,
) -> Result<Vec<Disk>, Error> {
    // An empty list is written on purpose: its disks are added while the agent runs.
    if files.is_empty() && !doc.has(&format!("{at}.disk")) {
        let message = "is missing: a [[volume.disk]] to serve is needed, or [volume.steer]; disk = [] waits for parda disk add";
        return Err(doc.error(&format!("{at}.disk"), message));
    }
    let mut disks: Vec<Disk> = Vec::new();
    for (i, disk) in files.iter().enumerate() {
        let wrong =
            |key: &str, message: String| doc.error(&format!("{at}.disk.{i}.{key}"), message);
        let disk = check_disk(&wrong, disk)?;
        let export = (disk.listen.to_string(), disk.name.to_string());
        if !unique.exports.insert(export) {
            return Err(wrong("name", format!("is served at {} already", disk.listen)));
        }
        let ours = unique.volumes.len();
        match unique.volume_at.get(&disk.listen) {
            Some(volume) if *volume != ours => {
                let message = "belongs to another volume: each volume needs listeners of its own";
                return Err(wrong("listen", message.into()));
            }
            Some(_) if matches!(disk.listen, Address::Vhost(_)) => {
                let message = "is another disk's already: a socket of vhost-user is for one disk";
                return Err(wrong("listen", message.into()));
            }
            Some(_) => {}
            None => {
                if let Some(other) = unique.socket(&disk.listen) {
                    let message = format!("is the socket of {other}: write it the same way");
                    return Err(wrong("listen", message));
                }
                let listener = unique.described.at(&disk.listen).map_err(|e| wrong("listen", e))?;
                unique.listeners.push((listener, ours));
                unique.volume_at.insert(disk.listen.clone(), ours);
            }
        }
        disks.push(disk);
    }
    Ok(disks)
}

fn check_disk(wrong: &dyn Fn(&str, String) -> Error, disk: &file::Disk) -> Result<Disk, Error> {
    let name = ExportName::new(&disk.name).map_err(|e| wrong("name", e.to_string()))?;
    if disk.name.is_empty() {
        return Err(wrong("name", "must not be empty".into()));
    }
    if disk.description.len() > ExportName::MAX_LEN || disk.description.contains('\0') {
        let message = format!("must be at most {} bytes, without a NUL", ExportName::MAX_LEN);
        return Err(wrong("description", message));
    }
    for (key, bytes) in [("offset", disk.offset), ("size", disk.size)] {
        if bytes.is_some_and(|b| !b.as_u64().is_multiple_of(REGION_ALIGNMENT)) {
            return Err(wrong(key, "must be a multiple of 4KiB".into()));
        }
    }
    let region = match (disk.offset, disk.size) {
        (None, None) => None,
        (Some(_), None) => {
            return Err(wrong("size", "is missing: a disk with an offset needs one".into()));
        }
        (offset, Some(size)) => {
            let from = offset.map_or(0, |b| b.as_u64());
            match from.checked_add(size.as_u64()) {
                Some(to) if to > from && to <= MOST_BYTES => Some(from..to),
                _ => return Err(wrong("size", "must be above zero, and end below 8EiB".into())),
            }
        }
    };
    if let Some((key, message)) = disk.settings().fault() {
        return Err(wrong(key, message));
    }
    let mut place = place(&disk.path).map_err(|e| wrong("path", e))?;
    let nbd = nbd::check(wrong, &place, disk.nbd.as_ref())?;
    let tls = disk.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref());
    server_tls::check(wrong, &mut place, "path", tls)?;
    Ok(Disk {
        name,
        description: disk.description.clone(),
        nbd,
        place,
        region,
        listen: disk.listen.parse().map_err(|e: AddressError| wrong("listen", e.to_string()))?,
        settings: disk.settings().or_defaults(),
        read_only: disk.read_only,
        drain: disk.drain,
        direct: disk.direct,
        lock: disk.lock,
        raw: disk.format == Some(file::Format::Raw),
    })
}
