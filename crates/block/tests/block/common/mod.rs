//! Volumes to try things on, and servers that misbehave.

pub(crate) mod hostile;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use parda_address::{Address, ExportName};
use parda_block::{
    AgentMemory, BackendConfig, Direct, DiskConfig, Handle, Limits, Lock, Timed, Volume,
    VolumeConfig,
};
use parda_control::law::{LawConfig, Mode};
use parda_control::{Decision, Measurement, Period, Report, Totals, View, Window};
use parda_disk::{BlockSizes, Geometry};
#[allow(unused_imports, reason = "no test file uses all of it")]
pub(crate) use parda_testkit::{Answer, Client, at, read, write};

pub(crate) fn name(name: &str) -> ExportName {
    ExportName::new(name).unwrap()
}

pub(crate) fn disk(export: &str, backend: BackendConfig, socket: &Path) -> DiskConfig {
    DiskConfig::new(name(export), backend, Address::Unix(socket.into()))
}

pub(crate) fn file(path: &Path) -> BackendConfig {
    file_as(path, Direct::Auto, Lock::On)
}

pub(crate) fn file_as(path: &Path, direct: Direct, lock: Lock) -> BackendConfig {
    BackendConfig::File { path: path.into(), direct, lock, raw: false }
}

/// Decision of a law whose window stays at this.
fn held_at(window: Window) -> Decision {
    let mut control = parda_control::Config::default();
    control.law.mode = Mode::Static;
    (control.law.window_max, control.law.window_start) = (window, window);
    Period::new(control).unwrap().decision().clone()
}

pub(crate) fn config(disks: Vec<DiskConfig>) -> VolumeConfig {
    VolumeConfig {
        name: "test".into(),
        decision: held_at(LawConfig::default().window_max),
        disks,
        listeners: Vec::new(),
        model: None,
        limits: Limits::default(),
        memory: AgentMemory::default(),
    }
}

/// Ends a period of a law at a volume.
pub(crate) fn tick(volume: &Handle, period: &mut Period) -> Report {
    let mut measured = volume.measure(Measurement::default()).unwrap();
    let report = period.tick(&mut measured, View::Peers(Totals::default()), None);
    volume.apply(period.decision().clone()).unwrap();
    report
}

pub(crate) fn spawn(disks: Vec<DiskConfig>) -> Handle {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match Volume::spawn(config(disks.clone())) {
            // A new file may have the inode of one that another test has deleted, and that its volume is just closing. The kernel may
            // have IO of a volume that ended without waiting, on a busy disk for longer than a volume that begins waits for it.
            Err(error)
                if ["overlap", "another agent has it"]
                    .iter()
                    .any(|why| error.to_string().contains(why))
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            volume => break volume.unwrap(),
        }
    }
}

/// A volume whose IOs are timed by a model, with a fixed window.
pub(crate) fn spawn_timed(
    disks: Vec<DiskConfig>,
    window: f64,
    model: impl Timed + 'static,
) -> Handle {
    let mut config = config(disks);
    config.decision = held_at(Window(window));
    config.model = Some(Box::new(model));
    Volume::spawn(config).unwrap()
}

fn receive(socket: &mut UnixStream, input: &mut Vec<u8>) -> std::io::Result<()> {
    let mut chunk = vec![0; 256 << 10];
    match socket.read(&mut chunk)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        n => {
            input.extend_from_slice(&chunk[..n]);
            Ok(())
        }
    }
}

/// The server's part of a handshake, on any export; returns the connection, on which it says no
/// more.
pub(crate) fn agree(mut socket: UnixStream, size: u64) -> UnixStream {
    let plain = Geometry::new(size, BlockSizes::DEFAULT);
    let export = parda_nbd::Export {
        name: name("x"),
        description: String::new(),
        geometry: Geometry { trim: true, write_zeroes: true, ..plain },
    };
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = parda_nbd::server::Handshake::start(&mut out);
    loop {
        socket.write_all(&out).unwrap();
        out.clear();
        let exports = std::slice::from_ref(&export);
        match handshake.advance(&input, exports, &mut out).unwrap() {
            parda_nbd::server::Step::Incomplete => receive(&mut socket, &mut input).unwrap(),
            parda_nbd::server::Step::Taken(n) => drop(input.drain(..n)),
            parda_nbd::server::Step::Closed => panic!("the client went"),
            parda_nbd::server::Step::Transmission { .. } => {
                socket.write_all(&out).unwrap();
                return socket;
            }
        }
    }
}
