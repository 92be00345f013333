//! Serves a file or an NBD URI on a unix socket, without control, until it is killed: for
//! measurements of the bare data path. `serve FILE|URI SOCKET [on|off]`

use std::str::FromStr;
use std::time::Duration;

use parda_block::{BackendConfig, Direct, DiskConfig, Limits, Volume, VolumeConfig};
use parda_control::{Shares, VmConfig};
use parda_nbd::ExportName;
use parda_nbd::uri::{Address, Uri};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(socket)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve FILE|URI SOCKET [on|off]".into());
    };
    let direct = match arguments.next().as_deref() {
        Some("on") => Direct::On,
        Some("off") => Direct::Off,
        _ => Direct::Auto,
    };
    let backend = match Uri::from_str(&target) {
        Ok(uri) => BackendConfig::Nbd { uri, reconnect_for: Duration::from_secs(10) },
        Err(_) => BackendConfig::File { path: target.into(), direct },
    };
    let mut control = parda_control::Config::default();
    control.law.mode = parda_control::law::Mode::Static;
    let handle = Volume::spawn(VolumeConfig {
        name: "serve".into(),
        control,
        disks: vec![DiskConfig {
            export: ExportName::new("vm1")?,
            description: String::new(),
            backend,
            region: None,
            vm: VmConfig { shares: Shares(1000), burst: 0.0 },
            read_only: false,
            listen: vec![Address::Unix(socket.into())],
        }],
        model: None,
        limits: Limits::default(),
    })?;
    while !handle.is_stopped() {
        std::thread::sleep(Duration::from_secs(2));
        handle.tick(Some(Vec::new()))?;
    }
    Ok(())
}
