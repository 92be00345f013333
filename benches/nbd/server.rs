//! The servers: how each is started, at its best.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use parda_address::Uri;
use parda_bench::{BenchPlan, Operation};

use crate::cell::{Cache, Cell, Transport};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Parda,
    /// `parda serve` with control off; on a copy of the file
    PardaOff,
    QemuNbd,
    Nbdkit,
    StorageDaemon,
    Bare,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Parda, Self::PardaOff, Self::QemuNbd, Self::Nbdkit, Self::StorageDaemon, Self::Bare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parda => "parda",
            Self::PardaOff => "parda, control off",
            Self::QemuNbd => "qemu-nbd",
            Self::Nbdkit => "nbdkit",
            Self::StorageDaemon => "qemu-storage-daemon",
            Self::Bare => "bare ring",
        }
    }

    /// nbdkit's file plugin cannot open a file with O_DIRECT.
    pub(crate) fn serves(self, cache: Cache) -> bool {
        self != Self::Nbdkit || cache == Cache::PageCache
    }
}

/// Those that are not found on the PATH.
pub(crate) struct Programs {
    pub(crate) parda: PathBuf,
    pub(crate) bare: PathBuf,
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) uri: Uri,
    child: Child,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which a measurement would have shown.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All servers of a cell.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
}

impl Fleet {
    /// Starts servers of `data`, which have their sockets and logs in `dir`.
    pub(crate) fn start(
        kinds: &[Kind],
        cell: &Cell,
        programs: &Programs,
        dir: &Path,
        data: &Path,
    ) -> io::Result<Self> {
        let servers: io::Result<Vec<Server>> =
            kinds.iter().map(|kind| start(*kind, cell, programs, dir, data)).collect();
        Ok(Self { servers: servers? })
    }
}

/// Where a server listens.
enum Endpoint {
    Unix(PathBuf),
    Tcp(u16),
}

impl Endpoint {
    fn new(kind: Kind, transport: Transport, dir: &Path) -> io::Result<Self> {
        match transport {
            Transport::Unix => {
                let path = dir.join(format!("{}.sock", kind as u32));
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    _ => Ok(Self::Unix(path)),
                }
            }
            Transport::Tcp => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
                Ok(Self::Tcp(listener.local_addr()?.port()))
            }
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Unix(path) => format!("unix:{}", path.display()),
            Self::Tcp(port) => format!("tcp:127.0.0.1:{port}"),
        }
    }

    fn uri(&self) -> io::Result<Uri> {
        let text = match self {
            Self::Unix(path) => format!("nbd+unix:///disk?socket={}", path.display()),
            Self::Tcp(port) => format!("nbd://127.0.0.1:{port}/disk"),
        };
        text.parse().map_err(io::Error::other)
    }
}

/// Whether a server answers a request.
fn answers(uri: &Uri) -> bool {
    let plan = BenchPlan {
        warmup: Duration::ZERO,
        time: Duration::from_millis(1),
        ..BenchPlan::new(vec![uri.clone()], Operation::RandomRead)
    };
    parda_bench::run(&plan).is_ok()
}

fn start(
    kind: Kind,
    cell: &Cell,
    programs: &Programs,
    dir: &Path,
    data: &Path,
) -> io::Result<Server> {
    let endpoint = Endpoint::new(kind, cell.transport, dir)?;
    let direct = cell.cache == Cache::Direct;
    let mut command = match kind {
        Kind::Parda | Kind::PardaOff => parda(kind, &endpoint, direct, programs, dir, data)?,
        Kind::QemuNbd => qemu_nbd(&endpoint, direct, data),
        Kind::Nbdkit => nbdkit(&endpoint, data),
        Kind::StorageDaemon => storage_daemon(&endpoint, direct, data),
        Kind::Bare => bare(&endpoint, direct, cell, programs, data),
    };
    let log = dir.join(format!("{}.log", kind as u32));
    let output = File::create(&log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{command:?}: {e}")))?;
    let server = Server { kind, uri: endpoint.uri()?, child };
    let until = Instant::now() + Duration::from_secs(10);
    // The bare ring takes as many connections as it was told and none to see whether it is there.
    let ready = || match (&endpoint, kind) {
        (Endpoint::Unix(path), Kind::Bare) => path.exists(),
        (Endpoint::Tcp(_), Kind::Bare) => {
            std::fs::read_to_string(&log).is_ok_and(|said| said.contains("listening"))
        }
        _ => answers(&server.uri),
    };
    while !ready() {
        if Instant::now() > until {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(io::Error::other(format!("{command:?} does not start: {said}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}

fn parda(
    kind: Kind,
    endpoint: &Endpoint,
    direct: bool,
    programs: &Programs,
    dir: &Path,
    data: &Path,
) -> io::Result<Command> {
    // Its locks keep a second agent away from the file.
    let (mode, path) =
        if kind == Kind::Parda { ("parda", data.to_owned()) } else { ("off", dir.join("copy")) };
    // A window that never binds: what is measured is what control costs, not what it holds back.
    let text = format!(
        "host = \"bench\"\n[[volume]]\nname = \"bench\"\n[volume.control]\nmode = \"{mode}\"\n\
         latency_threshold = \"30ms\"\nwindow_start = 1024\nwindow_max = 1024\n[[volume.disk]]\n\
         name = \"disk\"\npath = \"{}\"\nlisten = \"{}\"\ndirect = \"{}\"\n",
        path.display(),
        endpoint.address(),
        if direct { "on" } else { "off" }
    );
    let file = dir.join(format!("{}.toml", kind as u32));
    std::fs::write(&file, text)?;
    let mut command = Command::new(&programs.parda);
    command.arg("serve").arg("-c").arg(file);
    Ok(command)
}

/// Its locks are off, because it shares the file with the other servers.
fn qemu_nbd(endpoint: &Endpoint, direct: bool, data: &Path) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--shared=0", "--export-name=disk"]);
    match endpoint {
        Endpoint::Unix(path) => command.arg(format!("--socket={}", path.display())),
        Endpoint::Tcp(port) => command.arg("--bind=127.0.0.1").arg(format!("--port={port}")),
    };
    command.arg("--image-opts").arg(format!(
        "driver=raw,file.driver=file,file.filename={},file.locking=off,file.aio=io_uring,\
         file.cache.direct={}",
        data.display(),
        if direct { "on" } else { "off" }
    ));
    command
}

/// Without an IO thread of its own: with one, version 7.2 ends (an assertion of blockdev-nbd.c) when
/// a client disconnects.
fn storage_daemon(endpoint: &Endpoint, direct: bool, data: &Path) -> Command {
    let mut command = Command::new("qemu-storage-daemon");
    command.arg("--blockdev").arg(format!(
        "driver=file,node-name=data,filename={},locking=off,aio=io_uring,cache.direct={}",
        data.display(),
        if direct { "on" } else { "off" }
    ));
    let address = match endpoint {
        Endpoint::Unix(path) => format!("addr.type=unix,addr.path={}", path.display()),
        Endpoint::Tcp(port) => format!("addr.type=inet,addr.host=127.0.0.1,addr.port={port}"),
    };
    command.arg("--nbd-server").arg(format!("{address},max-connections=0"));
    command.arg("--export").arg("type=nbd,id=export,node-name=data,name=disk,writable=on");
    command
}

fn nbdkit(endpoint: &Endpoint, data: &Path) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exportname=disk"]);
    match endpoint {
        Endpoint::Unix(path) => command.arg("--unix").arg(path),
        Endpoint::Tcp(port) => command.arg("--ipaddr=127.0.0.1").arg(format!("--port={port}")),
    };
    command.arg("file").arg(data);
    command
}

fn bare(
    endpoint: &Endpoint,
    direct: bool,
    cell: &Cell,
    programs: &Programs,
    data: &Path,
) -> Command {
    let mut command = Command::new(&programs.bare);
    command.arg(endpoint.address()).arg(data);
    command.arg("--connections").arg(cell.connections.to_string());
    command.arg("--depth").arg(cell.depth.to_string());
    command.arg("--block").arg(cell.block.to_string());
    if direct {
        command.arg("--direct");
    }
    command
}
