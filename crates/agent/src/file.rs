//! The configuration file as it is written: `parda.toml`. [`crate::config`] checks its meaning;

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use parda_block::{Direct, Lock};
use parda_config::{ControlSettings, LimitSetting, TenantName, TenantSettings};
use parda_tls::ServerFiles;
use serde::{Deserialize, Serialize};

pub use crate::config::limits::{AgentLimits, VolumeLimits};

/// Configuration file of an agent as it is written, unchecked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// This host's name in the cluster.
    pub host: String,
    /// Socket that `parda status` connects to: `unix:PATH`.
    pub status: Option<String>,
    /// File in which settings are kept that are changed while the agent runs.
    pub state: Option<PathBuf>,
    /// HTTP server of metrics, health and the API.
    pub http: Option<HttpTable>,
    /// Takes settings from a policy in etcd.
    pub policy: Option<PolicyTable>,
    /// Listeners whose settings are not the defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listener: Vec<ListenerTable>,
    /// Limits for the clients of all volumes together.
    #[serde(default)]
    pub limits: AgentLimits,
    /// The volumes that this host shares with others.
    #[serde(default)]
    pub volume: Vec<VolumeTable>,
}

/// `[http]`: the HTTP server of the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTable {
    /// Address of the server: `tcp:ADDRESS:PORT` or `unix:PATH`.
    pub address: String,
    /// Serves an address that other hosts can reach, without TLS.
    #[serde(default)]
    pub plain: bool,
    /// TLS at a TCP address.
    pub tls: Option<ServerFiles>,
    /// URL of the dashboards of all hosts, with `{host}` for the host's name.
    pub pages: Option<String>,
    /// File of tokens: a name, a role and a secret on each line.
    pub tokens: Option<PathBuf>,
}

/// `[policy]`: settings of volumes and VMs that live in etcd, for all hosts. Without `etcd` in the cluster of `[volume.exchange]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyTable {
    /// Interval of looks for a changed policy.
    #[serde(with = "parda_config::quantity")]
    pub period: Option<Duration>,
    /// URLs of members of an etcd cluster.
    pub etcd: Option<Vec<String>>,
    /// Beginning of all keys in etcd.
    pub prefix: Option<String>,
    /// Certificates for endpoints of etcd with TLS.
    pub tls: Option<EtcdTls>,
    /// Uses endpoints on other hosts without TLS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Name of the user that logs in to etcd.
    pub user: Option<String>,
    /// File that holds the user's password.
    pub password_file: Option<PathBuf>,
}

/// `[[listener]]`: the clients that may connect at an address of disks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerTable {
    /// As it stands in the disks' `listen`.
    pub address: String,
    /// Permission bits of a unix socket, in octal: `"0660"`.
    pub mode: Option<String>,
    /// Owner of a unix socket, by name or number.
    pub owner: Option<String>,
    /// Group of a unix socket, by name or number.
    pub group: Option<String>,
    /// Serves clients without TLS at a TCP address that other hosts can reach.
    #[serde(default)]
    pub plain: bool,
    /// TLS for its clients.
    pub tls: Option<ListenerTlsTable>,
}

/// `tls` of a `[[listener]]`: PEM files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerTlsTable {
    /// The listener's certificate, with the intermediate ones after it.
    pub certificate: PathBuf,
    /// Private key of the certificate, in PEM.
    pub key: PathBuf,
    /// The CAs of clients. Without, any client that speaks TLS is served.
    pub clients: Option<PathBuf>,
    /// Whether clients without TLS are turned away.
    #[serde(default = "default_required")]
    pub required: bool,
}

impl ListenerTlsTable {
    /// The paths that a TLS acceptor reads: all but `required`.
    pub(crate) fn files(&self) -> ServerFiles {
        let ListenerTlsTable { certificate, key, clients, .. } = self.clone();
        ServerFiles { certificate, key, clients }
    }
}

fn default_required() -> bool {
    true
}

/// `[[volume]]`: storage shared with other hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeTable {
    /// Its name, the same on every host.
    pub name: String,
    /// Name of the pool that the volume belongs to: volumes on the same drives.
    pub pool: Option<String>,
    /// Settings of the control law; each has a default.
    #[serde(default)]
    pub control: ControlSettings,
    /// Limits for the clients of the volume.
    pub limits: Option<VolumeLimits>,
    /// Meeting place of the hosts.
    pub exchange: Option<ExchangeTable>,
    /// Tenants: disks on any number of hosts that have shares, a limit or a reservation together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenant: Vec<TenantSettings>,
    /// The virtual disks that live on it, to be served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disk: Vec<DiskTable>,
    /// The block device that it is on this host, to be steered in place of serving disks.
    pub steer: Option<SteerTable>,
    /// The QEMUs of this host that open it themselves, to be throttled in place of serving disks.
    pub qemu: Option<QemuTable>,
}

impl VolumeTable {
    /// Whether its disks are served, not steered nor throttled.
    pub(crate) fn is_served(&self) -> bool {
        self.steer.is_none() && self.qemu.is_none()
    }
}

/// `[volume.qemu]`: VMs whose disks QEMU opens itself, and whose throttles are held to the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QemuTable {
    /// Their QMP sockets: a path whose last name may contain `*` and `?`.
    pub sockets: PathBuf,
    /// Which of their disks are on the volume: patterns of their names, nodes or files.
    pub disks: Vec<String>,
    /// A file, a device or an NBD URI on the array that is read to measure it.
    pub probe: Option<String>,
    /// Shares of VMs by their names. The first that matches counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<QemuVm>,
}

/// `[[volume.qemu.vm]]`: shares of VMs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QemuVm {
    /// Name of the VM, or a pattern. A VM has the name given to its QEMU, or that of its socket's file without the ending.
    pub name: String,
    /// The weight of each against all other VMs and disks of the volume, on any host.
    pub shares: Option<u32>,
    /// Tenant whose VMs they are.
    pub tenant: Option<TenantName>,
}

/// `[volume.steer]`: a block device that VMs open directly, and whose queue is held to the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerTable {
    /// The device, or anything that lies on it: a disk, a multipath device, an LV, a partition.
    pub device: PathBuf,
    /// Means by which its queue keeps the window: `auto`, or one of the methods that `parda steer show` names. `auto`, or one of what
    /// `parda steer show` names.
    pub method: Option<String>,
    /// Means by which its device latency is measured: `auto`, `ebpf` or `little`.
    pub measure: Option<String>,
    /// The host's weight against all disks and VMs of the volume, where it is one VM.
    pub shares: Option<u32>,
    /// Means by which its VMs are held to their shares: `auto`, `caps` or `bfq`.
    pub sharing: Option<String>,
    /// Its VMs, where each has its own shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<SteeredVmTable>,
}

/// `[[volume.steer.vm]]`: VMs of the host, each a cgroup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeredVmTable {
    /// Name of the VM. Each of several matching cgroups has its own name after this one.
    pub name: String,
    /// Its cgroups: a path below the root of the hierarchy, a pattern, or the name of a platform.
    pub cgroup: String,
    /// The weight of each against all other VMs and disks of the volume, on any host.
    pub shares: Option<u32>,
    /// The most IOs and bytes per second that each does.
    pub limit: Option<LimitSetting>,
    /// Tenant whose VMs they are.
    pub tenant: Option<TenantName>,
}

/// `[volume.exchange]`: where the hosts of a volume tell each other how loaded it looks. One of `file`, `udp` and
/// `etcd`, with the keys that belong to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExchangeTable {
    /// A file on the volume, a block device, or an NBD URI, made by `parda exchange init`.
    pub file: Option<String>,
    /// Number of slots, at least the most hosts that will ever use it. As it was made.
    pub slots: Option<u32>,
    /// This host's slot; chosen automatically if left out.
    pub slot: Option<u32>,
    /// Start of the slots, for a region of a larger device.
    #[serde(with = "parda_config::quantity")]
    pub offset: Option<ByteSize>,
    /// `ADDRESS:PORT` of this host, or of a multicast group.
    pub udp: Option<String>,
    /// The other hosts, for `udp` without a group. This host may be among them.
    pub peers: Option<Vec<String>>,
    /// Name of the interface where a multicast group is.
    pub interface: Option<String>,
    /// Keys that datagrams are signed with, one a line.
    pub key_file: Option<PathBuf>,
    /// URLs of members of an etcd cluster.
    pub etcd: Option<Vec<String>>,
    /// Beginning of all keys in etcd.
    pub prefix: Option<String>,
    /// Certificates for endpoints of etcd with TLS.
    pub tls: Option<EtcdTls>,
    /// Uses endpoints on other hosts without TLS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Name of the user that logs in to etcd.
    pub user: Option<String>,
    /// File that holds the user's password.
    pub password_file: Option<PathBuf>,
    /// Data directory of a member of etcd on this host.
    pub data_dir: Option<PathBuf>,
    /// Slots where the hosts meet while `udp` or `etcd` fails.
    pub fallback: Option<Fallback>,
}

impl ExchangeTable {
    /// Keys that belong to `etcd`, and whether each is there.
    pub(crate) fn keys_of_etcd(&self) -> [(&'static str, bool); 6] {
        [
            ("prefix", self.prefix.is_some()),
            ("tls", self.tls.is_some()),
            ("plain", self.plain),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
            ("data_dir", self.data_dir.is_some()),
        ]
    }
}

/// `[volume.exchange.fallback]`: slots where the hosts meet while `udp` or `etcd` fails.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// A file on the volume, a block device, or an NBD URI, made by `parda exchange init`.
    pub file: String,
    /// Number of slots, as the exchange was made.
    pub slots: Option<u32>,
    /// This host's slot; chosen automatically if left out.
    pub slot: Option<u32>,
    /// Start of the slots, for a region of a larger device.
    #[serde(default, with = "parda_config::quantity")]
    pub offset: Option<ByteSize>,
}

/// `tls` of an exchange over etcd: PEM files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdTls {
    /// The CAs that the members' certificates must come from.
    pub ca: PathBuf,
    /// Our certificate, if the members ask for one.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate.
    pub key: Option<PathBuf>,
}

/// Number of slots of an exchange, unless the file sets it.
pub(crate) const SLOTS: u32 = 64;

parda_config::with_vm_settings! {
    /// `[[volume.disk]]`: a virtual disk served over NBD.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct DiskTable {
        /// Name of the NBD export.
        pub name: String,
        /// Its data: a file, a block device, or an NBD URI.
        pub path: String,
        /// Address at which clients find the disk: `unix:PATH` or `tcp:ADDRESS:PORT`.
        pub listen: String,
        /// Description for people who list the exports.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub description: String,
        /// Whether the export refuses writes. Default: false.
        #[serde(default)]
        pub read_only: bool,
        /// Whether it takes no new connections, while those that exist go on. Default: false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub drain: bool,
        /// Whether to bypass the page cache.
        #[serde(default)]
        pub direct: Direct,
        /// Lock that keeps other programs from its data.
        #[serde(default)]
        pub lock: Lock,
        /// `raw`: all of it is data, also what looks like the header of another format.
        pub format: Option<Format>,
        /// Start of the disk in `path`, for a region of a larger device.
        #[serde(default, with = "parda_config::quantity")]
        pub offset: Option<ByteSize>,
        /// The disk's size, if less than all of `path`. An `offset` needs it.
        #[serde(default, with = "parda_config::quantity")]
        pub size: Option<ByteSize>,
        /// Settings of the connection to the NBD server behind it, if `path` is an NBD URI.
        pub nbd: Option<Nbd>,
    }
}

/// `[volume.disk.nbd]`: how the NBD server behind a disk is used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nbd {
    /// Number of connections to the server, if it announces that they share their data.
    pub connections: Option<u32>,
    /// Longest wait of IOs for a lost server before they fail.
    #[serde(with = "parda_config::quantity")]
    pub hold: Option<Duration>,
    /// Longest time of a request before its connection is given up.
    #[serde(with = "parda_config::quantity")]
    pub timeout: Option<Duration>,
    /// Its certificates, if its URI begins with `nbds`.
    pub tls: Option<ServerTls>,
}

/// TLS with an NBD server: trusted certificates, and the agent's own identity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTls {
    /// The CAs that the server's certificate must come from.
    pub ca: Option<PathBuf>,
    /// Our certificate, if the server asks for one.
    pub certificate: Option<PathBuf>,
    /// Private key of the client certificate, in PEM.
    pub key: Option<PathBuf>,
    /// The name or address that the server's certificate must be for, if not the URI's.
    pub name: Option<String>,
}

/// Format of a disk's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Raw data: all bytes belong to the disk.
    Raw,
}

#[cfg(test)]
mod tests {
    use parda_config::{DISK_SETTINGS, Holder};

    use super::*;

    #[test]
    fn vms_and_tenants_have_the_settings_of_their_kind() {
        fn keys<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> String {
            toml::from_str::<T>("no_such_key = 1").unwrap_err().to_string()
        }
        for (holder, keys) in [
            (Holder::Steered, keys::<SteeredVmTable>()),
            (Holder::Throttled, keys::<QemuVm>()),
            (Holder::Tenant, keys::<TenantSettings>()),
        ] {
            for setting in DISK_SETTINGS {
                let has = keys.contains(&format!("`{}`", setting.key));
                assert_eq!(has, setting.also.contains(&holder), "{holder:?}: {}", setting.key);
            }
        }
    }
}
