//! Hardware of a guest, and the QEMU command for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::iscsi::TARGET;
use super::kit::Kit;
use super::names::QEMU;

/// Address at which a guest with a network reaches the loopback interface of this machine.
pub(crate) const HOST: &str = "10.0.2.2";

/// Configuration of a guest.
#[derive(Clone, Debug)]
pub(crate) struct GuestConfig {
    /// Name of the guest, for people.
    pub(crate) name: String,
    /// Size of the memory, in MiB.
    pub(crate) memory: u32,
    /// Number of virtual processors.
    pub(crate) cpus: u32,
    /// Its memory is a file that servers of disks can map.
    pub(crate) shared: bool,
    /// Disks, in the order in which the kernel finds those of each bus.
    pub(crate) disks: Vec<Disk>,
    /// Disks that the guest connects to itself, over its network.
    pub(crate) remotes: Vec<Remote>,
    /// Program to install as `parda`. It must run with this machine's libraries.
    pub(crate) program: Option<PathBuf>,
}

impl GuestConfig {
    /// A guest with one processor, 256 MiB and no disks.
    #[must_use]
    pub(crate) fn new(name: &str) -> GuestConfig {
        GuestConfig {
            name: name.to_owned(),
            memory: 256,
            cpus: 1,
            shared: false,
            disks: Vec::new(),
            remotes: Vec::new(),
            program: None,
        }
    }

    /// Adds a disk that the emulator provides.
    #[must_use]
    pub(crate) fn disk(mut self, name: &str, bus: Bus, source: Source) -> GuestConfig {
        self.shared |= matches!(source, Source::Vhost { .. });
        self.disks.push(Disk { name: name.to_owned(), bus, source, wwn: None });
        self
    }

    /// Adds a disk that the guest connects to over its network.
    #[must_use]
    pub(crate) fn remote(mut self, name: &str, server: Server) -> GuestConfig {
        self.remotes.push(Remote { name: name.to_owned(), server });
        self
    }

    /// Installs this program as `parda`.
    #[must_use]
    pub(crate) fn program(mut self, program: &Path) -> GuestConfig {
        self.program = Some(program.to_owned());
        self
    }
}

/// A disk that the emulator provides.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Name and serial number: 1 to 20 letters, digits and dashes. The disk is `/dev/lab/NAME` in the
    /// guest.
    pub(crate) name: String,
    /// Bus that connects the disk.
    pub(crate) bus: Bus,
    /// Storage behind the disk.
    pub(crate) source: Source,
    /// World-wide name. Disks with the same one are paths to one LUN (SCSI only).
    pub(crate) wwn: Option<u64>,
}

/// A disk that a guest connects to itself. The emulator does not know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Name, with the rules for that of a [`Disk`].
    pub(crate) name: String,
    /// Server of the disk.
    pub(crate) server: Server,
}

/// A server on the loopback interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// An [`IscsiTarget`](super::IscsiTarget) whose LUN has the disk's name as its serial number.
    Iscsi {
        /// Port of the target.
        port: u16,
    },
    /// An NBD server for the guest's own client.
    Nbd {
        /// Port of the server.
        port: u16,
        /// Name of the export.
        export: String,
    },
}

/// Bus that connects a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    /// virtio-scsi: a LUN of this controller, 0 or 1.
    Scsi(u8),
    /// virtio-blk: a disk without a SCSI layer.
    Virtio,
}

/// Storage behind a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An NBD export at a unix socket, by QEMU's own client. Suited where the number of outstanding IOs
    /// does not matter; [`export_file`](super::export_file) says why.
    Nbd {
        /// Path of the server's socket.
        socket: PathBuf,
        /// Name of the export.
        export: String,
        /// Time in seconds for which IOs wait for a server that is away (`reconnect-delay`). 0: they
        /// fail at once.
        reconnect: u32,
    },
    /// A disk by vhost-user: its server has the guest's memory (virtio only). The serial number is the server's.
    Vhost {
        /// Path of the server's socket.
        socket: PathBuf,
    },
    /// A raw file opened with O_DIRECT, such as an [`ExportFile`](super::ExportFile). Several guests
    /// may share one.
    File(PathBuf),
    /// A null device: reads return zeros, writes are discarded, and each IO takes the same time,
    /// however many are outstanding.
    Null {
        /// Size of the disk in bytes.
        size: u64,
        /// Time of each IO, in nanoseconds.
        latency: u64,
    },
    /// As [`Source::Null`], except that each read of one sector is answered TASK SET FULL (SCSI only).
    Full {
        /// Size of the disk in bytes.
        size: u64,
        /// Time of each IO, in nanoseconds.
        latency: u64,
        /// Number of the sector of 512 bytes.
        sector: u64,
    },
}

impl Source {
    fn blockdev(&self, node: &str) -> Value {
        let mut dev = match self {
            Source::Nbd { socket, export, reconnect } => json!({
                "driver": "nbd", "export": export, "reconnect-delay": reconnect,
                "server": { "type": "unix", "path": socket },
            }),
            // It has no node; see `vhost`.
            Source::Vhost { .. } => json!({}),
            Source::File(path) => json!({
                "driver": "raw",
                // With native AIO, writes to one file run side by side, on FUSE as well.
                "file": { "driver": "file", "filename": path, "locking": "off", "aio": "native",
                          "cache": { "direct": true } },
                "cache": { "direct": true },
            }),
            Source::Null { size, latency } => json!({
                "driver": "null-co", "size": size, "latency-ns": latency, "read-zeroes": true,
            }),
            // QEMU's disks answer TASK SET FULL for EDOM (33).
            Source::Full { size, latency, sector } => json!({
                "driver": "blkdebug",
                "image": { "driver": "null-co", "size": size, "latency-ns": latency,
                           "read-zeroes": true },
                "inject-error": [{ "event": "none", "iotype": "read", "errno": 33,
                                   "sector": sector, "once": false }],
            }),
        };
        dev["node-name"] = json!(node);
        dev
    }
}

/// A machine without anything of its own, from which all guests of its kind start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Base {
    memory: u32,
    cpus: u32,
    /// The memory is a file that others can map.
    shared: bool,
}

/// Number of virtio-scsi controllers of every base. Together with their modules, they take a second
/// to come up.
const CONTROLLERS: u8 = 2;

impl Base {
    /// Name of this kind of machine.
    pub(super) fn name(self) -> String {
        let shared = if self.shared { "-shared" } else { "" };
        format!("up-{}m-{}{shared}", self.memory, self.cpus)
    }

    /// Command that boots the machine, or restores a saved state. `port` and `monitor` are listening
    /// sockets; the console goes to standard output.
    pub(super) fn command(
        self,
        kit: &Kit,
        (port, monitor): (&Path, &Path),
        state: Option<&Path>,
    ) -> Command {
        let mut qemu = Command::new(QEMU);
        // No devices except those named here.
        qemu.arg("-nodefaults");
        let mut set = |key: &str, value: String| {
            qemu.arg(format!("-{key}")).arg(value);
        };
        set("accel", "tcg,thread=multi".to_owned());
        if self.shared {
            let memory = format!("memory-backend-memfd,id=ram,share=on,size={}M", self.memory);
            set("object", memory);
            set("machine", "pc,memory-backend=ram".to_owned());
        } else {
            set("machine", "pc".to_owned());
        }
        // Emulating a processor with few features costs half as much as one with all.
        set("cpu", "Nehalem".to_owned());
        set("smp", self.cpus.to_string());
        set("m", format!("{}M", self.memory));
        set("display", "none".to_owned());
        set("kernel", kit.kernel().display().to_string());
        set("initrd", kit.initramfs().display().to_string());
        // A kernel panic ends QEMU, without a wait or reboot. The other options shorten the boot.
        let append = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr cryptomgr.notests \
                      no_timer_check";
        set("append", append.to_owned());
        set("action", "reboot=shutdown".to_owned());
        set("chardev", "stdio,id=console,signal=off".to_owned());
        set("serial", "chardev:console".to_owned());
        set("chardev", format!("socket,id=monitor,path={}", monitor.display()));
        set("mon", "chardev=monitor,mode=control".to_owned());
        set("device", "virtio-serial-pci".to_owned());
        set("chardev", format!("socket,id=port,path={}", port.display()));
        set("device", "virtserialport,chardev=port".to_owned());
        set("blockdev", read_only("tools", &kit.tools()).to_string());
        set("device", "virtio-blk-pci,drive=tools,serial=tools".to_owned());
        for controller in 0..CONTROLLERS {
            set("device", format!("virtio-scsi-pci,id=scsi{controller}"));
        }
        if let Some(state) = state {
            set("incoming", format!("exec:cat '{}'", state.display()));
        }
        qemu
    }
}

fn read_only(node: &str, image: &Path) -> Value {
    json!({
        "driver": "file", "filename": image, "node-name": node, "read-only": true,
        "locking": "off",
    })
}

/// Commands that connect a disk to its server, and again when that is gone.
fn vhost(i: usize, source: &Source) -> Vec<(&'static str, Value)> {
    let Source::Vhost { socket } = source else { return Vec::new() };
    let (server, address) = (format!("server{i}"), json!({ "path": socket }));
    let data = json!({
        "addr": { "type": "unix", "data": address }, "server": false, "reconnect": 1,
    });
    let chardev = json!({ "id": server, "backend": { "type": "socket", "data": data } });
    let device =
        json!({ "driver": "vhost-user-blk-pci", "id": format!("v{i}"), "chardev": server });
    vec![("chardev-add", chardev), ("device_add", device)]
}

impl GuestConfig {
    pub(super) fn base(&self) -> Base {
        Base { memory: self.memory, cpus: self.cpus, shared: self.shared }
    }

    /// Commands for QEMU's monitor, with arguments, that turn the base into this machine.
    pub(super) fn additions(&self, program: Option<&Path>) -> Vec<(&'static str, Value)> {
        let mut asked = Vec::new();
        let mut add = |blockdev: Value, mut device: Value| {
            let node = blockdev["node-name"].clone();
            // A name for QEMU alone, which differs from the node's.
            device["id"] = json!(format!("a-{}", node.as_str().unwrap_or_default()));
            device["drive"] = node;
            asked.extend([("blockdev-add", blockdev), ("device_add", device)]);
        };
        if let Some(image) = program {
            add(
                read_only("parda", image),
                json!({ "driver": "virtio-blk-pci", "serial": "parda" }),
            );
        }
        let (ours, nodes): (Vec<_>, Vec<_>) = self
            .disks
            .iter()
            .enumerate()
            .partition(|(_, disk)| matches!(disk.source, Source::Vhost { .. }));
        for (i, disk) in nodes {
            let name = &disk.name;
            let mut device = match disk.bus {
                Bus::Scsi(controller) => json!({
                    "driver": "scsi-hd", "bus": format!("scsi{controller}.0"), "lun": i,
                    "device_id": name,
                }),
                Bus::Virtio => json!({ "driver": "virtio-blk-pci" }),
            };
            device["serial"] = json!(name);
            // Guests that share the disk are responsible for each other's writes.
            device["share-rw"] = json!(true);
            if let (Bus::Scsi(_), Some(wwn)) = (disk.bus, disk.wwn) {
                device["wwn"] = json!(wwn);
            }
            add(disk.source.blockdev(&format!("disk{i}")), device);
        }
        for (i, disk) in ours {
            asked.extend(vhost(i, &disk.source));
        }
        if self.has_network() {
            let card = json!({
                "driver": "virtio-net-pci", "netdev": "net", "id": "card", "romfile": "",
            });
            asked.push(("netdev_add", json!({ "type": "user", "id": "net" })));
            asked.push(("device_add", card));
        }
        asked
    }

    fn has_network(&self) -> bool {
        !self.remotes.is_empty()
    }

    /// Script that runs in the guest before anything else: sets the time, finds program and disks by
    /// name, configures the network.
    pub(super) fn setup(&self, has_program: bool) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut script = format!("set -e\ndate -s @{now} >/dev/null\nmkdir -p /dev/lab\n");
        if self.has_network() {
            script += "modprobe virtio_net\n\
                until [ -e /sys/class/net/eth0 ]; do usleep 20000; done\n\
                ip addr add 10.0.2.15/24 dev eth0\nip link set eth0 up\n";
        }
        self.remotes.iter().for_each(|remote| script += &remote.connect(&self.name));
        let of_remotes = self.remotes.iter().filter(|r| matches!(r.server, Server::Iscsi { .. }));
        let disks = self.disks.iter().map(|disk| disk.name.as_str());
        let disks = disks.chain(of_remotes.map(|remote| remote.name.as_str()));
        let names: Vec<&str> = has_program.then_some("parda").into_iter().chain(disks).collect();
        if !names.is_empty() {
            script += &format!("for name in {}; do\n", names.join(" "));
            script += "until [ -e /dev/lab/$name ]; do\n\
                for block in /sys/block/[sv]d*; do\n\
                serial=$(cat $block/serial 2>/dev/null ||\n\
                  dd if=$block/device/vpd_pg80 bs=1 skip=4 2>/dev/null) || continue\n\
                [ \"${serial##* }\" != \"$name\" ] || ln -s ../${block##*/} /dev/lab/$name\n\
                done\n\
                [ -e /dev/lab/$name ] || usleep 20000\n\
                done\ndone\n";
        }
        if has_program {
            script += "mount -t ext4 -o ro /dev/lab/parda /parda\n";
        }
        script
    }
}

impl Remote {
    /// Command by which a guest of this name connects to the disk.
    fn connect(&self, guest: &str) -> String {
        match &self.server {
            Server::Iscsi { port } => format!(
                "modprobe -a sd_mod iscsi_tcp\n\
                 iscsistart -i iqn.2009-02.lab.parda:{guest} -t {TARGET} -g 1 -a {HOST} -p {port} \
                 >/dev/null\n"
            ),
            Server::Nbd { port, export } => format!(
                "modprobe nbd nbds_max=1\n\
                 nbd-client {HOST} {port} /dev/nbd0 -N '{export}' >/dev/null\n\
                 ln -s ../nbd0 /dev/lab/{}\n",
                self.name
            ),
        }
    }
}
