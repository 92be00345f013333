//! A guest as hardware: what it has, and how QEMU is told so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::iscsi::TARGET;
use super::kit::Kit;

/// The program that plays the machines.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Where a guest with a network finds what listens on this machine's loopback.
pub const HOST: &str = "10.0.2.2";

/// A guest that is to be.
#[derive(Clone, Debug)]
pub struct GuestConfig {
    /// Its name, for people.
    pub name: String,
    /// MiB of memory.
    pub memory: u32,
    /// Processors.
    pub cpus: u32,
    /// Its disks, in the order in which the kernel meets those of each bus.
    pub disks: Vec<Disk>,
    /// The disks that it connects to by itself, over its network.
    pub remotes: Vec<Remote>,
    /// A program that it shall have as `parda`. It must run with the libraries that this machine has.
    pub program: Option<PathBuf>,
}

impl GuestConfig {
    /// A guest without disks: one processor, 256 MiB.
    #[must_use]
    pub fn new(name: &str) -> GuestConfig {
        GuestConfig {
            name: name.to_owned(),
            memory: 256,
            cpus: 1,
            disks: Vec::new(),
            remotes: Vec::new(),
            program: None,
        }
    }

    /// With one more disk.
    #[must_use]
    pub fn disk(mut self, name: &str, bus: Bus, source: Source) -> GuestConfig {
        self.disks.push(Disk { name: name.to_owned(), bus, source, wwn: None });
        self
    }

    /// With one more disk, over its network.
    #[must_use]
    pub fn remote(mut self, name: &str, server: Server) -> GuestConfig {
        self.remotes.push(Remote { name: name.to_owned(), server });
        self
    }

    /// With this program as `parda`.
    #[must_use]
    pub fn program(mut self, program: &Path) -> GuestConfig {
        self.program = Some(program.to_owned());
        self
    }
}

/// A disk of a guest.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its name and serial number: 1 to 20 letters, digits and dashes. The guest has it as
    /// `/dev/lab/NAME`.
    pub name: String,
    /// How it is connected.
    pub bus: Bus,
    /// What is behind it.
    pub source: Source,
    /// Disks with the same are paths to one LUN (SCSI only).
    pub wwn: Option<u64>,
}

/// A disk that a guest connects to by itself: no emulator knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name, as a [`Disk`]'s.
    pub name: String,
    /// Who serves it.
    pub server: Server,
}

/// A server on this machine's loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// An [`IscsiTarget`](super::IscsiTarget), whose LUN has the disk's name as its serial number.
    Iscsi {
        /// Where it listens.
        port: u16,
    },
    /// An NBD server.
    Nbd {
        /// Where it listens.
        port: u16,
        /// The export.
        export: String,
    },
}

/// How a disk is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// virtio-scsi: a LUN of this controller, 0 or 1.
    Scsi(u8),
    /// virtio-blk.
    Virtio,
}

/// What is behind a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An NBD export at a unix socket, by QEMU's own client: good where it does not matter how many
    /// IOs are under way ([`export_file`](super::export_file) says why).
    Nbd {
        /// The server's socket.
        socket: PathBuf,
        /// The export.
        export: String,
        /// How many seconds its IOs wait for a server that is away (`reconnect-delay`). 0: they fail at once.
        reconnect: u32,
    },
    /// A raw file, past the page cache: an [`ExportFile`](super::ExportFile) too. Several guests may
    /// have the same.
    File(PathBuf),
    /// Nothing: reads give zeros, writes are forgotten, and each takes this long, however many
    /// there are at a time.
    Null {
        /// Its size in bytes.
        size: u64,
        /// In nanoseconds.
        latency: u64,
    },
    /// As [`Source::Null`], but reads of one sector are answered TASK SET FULL, each time (SCSI only).
    Full {
        /// Its size in bytes.
        size: u64,
        /// In nanoseconds.
        latency: u64,
        /// Which sector of 512 bytes.
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
            Source::File(path) => json!({
                "driver": "raw",
                // Of this kind, writes of one file are under way side by side on FUSE as well.
                "file": { "driver": "file", "filename": path, "locking": "off", "aio": "native",
                          "cache": { "direct": true } },
                "cache": { "direct": true },
            }),
            Source::Null { size, latency } => json!({
                "driver": "null-co", "size": size, "latency-ns": latency, "read-zeroes": true,
            }),
            // QEMU's disks say TASK SET FULL for EDOM (33).
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

/// A machine before it has anything of its own: what all guests of its kind begin as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Base {
    memory: u32,
    cpus: u32,
}

/// Every base has so many virtio-scsi controllers: with modules and all, they take a second to come up.
const CONTROLLERS: u8 = 2;

impl Base {
    /// What its kind is called.
    pub(super) fn name(self) -> String {
        format!("up-{}m-{}", self.memory, self.cpus)
    }

    /// The command that boots it, or begins with the state that one had that was saved. `port` and
    /// `monitor` are sockets that listen; the console goes to standard output.
    pub(super) fn command(
        self,
        kit: &Kit,
        (port, monitor): (&Path, &Path),
        state: Option<&Path>,
    ) -> Command {
        let mut qemu = Command::new(QEMU);
        // Nothing but what is named here.
        qemu.arg("-nodefaults");
        let mut set = |key: &str, value: String| {
            qemu.arg(format!("-{key}")).arg(value);
        };
        set("accel", "tcg,thread=multi".to_owned());
        set("machine", "pc".to_owned());
        // A processor of few features is emulated at half the cost of one of all.
        set("cpu", "Nehalem".to_owned());
        set("smp", self.cpus.to_string());
        set("m", format!("{}M", self.memory));
        set("display", "none".to_owned());
        set("kernel", kit.kernel().display().to_string());
        set("initrd", kit.initramfs().display().to_string());
        // A kernel that panics ends with QEMU: neither waits, nor begins again. The rest is of what
        // takes time at boot.
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

impl GuestConfig {
    pub(super) fn base(&self) -> Base {
        Base { memory: self.memory, cpus: self.cpus }
    }

    /// What makes of its base what it is: what QEMU's monitor is asked, with arguments.
    pub(super) fn additions(&self, program: Option<&Path>) -> Vec<(&'static str, Value)> {
        let mut asked = Vec::new();
        let mut add = |blockdev: Value, mut device: Value| {
            let node = blockdev["node-name"].clone();
            // Only a name for QEMU; another than the node's.
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
        for (i, disk) in self.disks.iter().enumerate() {
            let name = &disk.name;
            let mut device = match disk.bus {
                Bus::Scsi(controller) => json!({
                    "driver": "scsi-hd", "bus": format!("scsi{controller}.0"), "lun": i,
                    "device_id": name,
                }),
                Bus::Virtio => json!({ "driver": "virtio-blk-pci" }),
            };
            device["serial"] = json!(name);
            // What another guest writes there is that guest's affair.
            device["share-rw"] = json!(true);
            if let (Bus::Scsi(_), Some(wwn)) = (disk.bus, disk.wwn) {
                device["wwn"] = json!(wwn);
            }
            add(disk.source.blockdev(&format!("disk{i}")), device);
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

    /// What is done in it before anything else: the time, its program and disks by name, its network.
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
    /// The command by which a guest of this name connects to it.
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
