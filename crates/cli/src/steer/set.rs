//! `parda steer set`.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::Args;
use parda_steer::steering::{BoundsInForce, PathInForce, Steering};
use parda_terminal::{Failure, output};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::arguments::{DeviceArg, MethodArg, StateArg, steer_failed};

/// Time between two looks at a depth that is held.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda steer set /dev/sdb 8            no more than 8 in flight, until
  parda steer restore /dev/sdb          it is put back
  parda steer set /dev/sdb 8 --hold     no more than 8 in flight until Ctrl-C")]
pub(crate) struct Set {
    #[command(flatten)]
    device: DeviceArg,
    /// Largest number of IOs in flight at the device, over all its paths
    #[arg(value_name = "DEPTH")]
    depth: u32,
    /// Hold the depth until Ctrl-C: check it each second, report changes, put the earlier depth back at the end
    #[arg(long)]
    hold: bool,
    #[command(flatten)]
    method: MethodArg,
    #[command(flatten)]
    state: StateArg,
}

impl Set {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        // Caught from here on, so that a signal during the start is not lost.
        let signals = self.hold.then(|| Signals::new([SIGINT, SIGTERM])).transpose();
        let signals = signals.map_err(|e| Failure::new(format!("cannot catch signals: {e}")))?;
        let device = self.device.resolve()?;
        let journal = self.state.journal();
        let mut steering = Steering::take_for(self.depth, &device, self.method.get(), &journal)
            .map_err(steer_failed)?;
        let set = steering.set(self.depth).map_err(steer_failed)?;
        output::print(&text(&device.name, &set, device.multipath.is_some()))?;
        match signals {
            Some(signals) => hold(steering, signals),
            None => {
                steering.leave();
                output::print("`parda steer restore` puts the earlier depth back")
            }
        }
    }
}

/// Until a signal, or until the device is gone.
fn hold(mut steering: Steering, mut signals: Signals) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    let multipath = steering.device().multipath.is_some();
    std::thread::spawn(move || {
        signals.forever().next();
        tell.send(())
    });
    while told.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let checked = steering.check().map_err(steer_failed)?;
        for event in &checked.events {
            output::print(&event.to_string())?;
        }
        if !checked.events.is_empty() {
            output::print(&text(&steering.device().name, &checked.in_force, multipath))?;
        }
    }
    steering.release().map(drop).map_err(steer_failed)
}

fn text(name: &str, set: &BoundsInForce, multipath: bool) -> String {
    let mut text = format!("{name}: at most {} in flight", set.depth);
    let each = |p: &PathInForce| format!("\n  {} ({}): {}", p.name, p.state, p.depth);
    if multipath {
        text += &set.paths.iter().map(each).collect::<String>();
    }
    text
}
