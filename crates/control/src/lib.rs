#![no_std]
#![forbid(unsafe_code)]
//! The control law of parda: how many IOs a host may keep outstanding at a shared array, and whose
//! IO goes next.
//!
//! Nothing here does IO, reads a clock, starts a thread or draws a random number. Every call is
//! handed the time and answers with a value, so the same code runs in production, in the
//! laboratory and in simulated time, and the same calls always give the same answers.
//!
//! | module | subject | source |
//! | --- | --- | --- |
//! | [`latency`] | what the device's latency is | eq. 1; SPEED'08 §3 |
//! | [`io`] | cost of an IO in slots, a trim's among them, and its part in the latency mean | |
//! | [`size`] | latency of an IO against its size | SPEED'08 §3.1 |
//! | [`law`] | the window that follows from latency | eq. 2 |
//! | [`belief`] | how far a host believes what another one says | |
//! | [`backlog`] | how well the hosts that want more are served | |
//! | [`cluster`] | what hosts tell each other, and what follows from it | PARDA §3, §4 |
//! | [`governor`] | one period: from what was measured and heard to the window and the report | |
//! | [`forecast`] | what would be done, where the law only observes | |
//! | `absent` | hosts that fell silent | |
//! | [`slices`] | what each VM of a host may have outstanding, at any instant | PARDA §3 |
//! | [`gate`] | holding outstanding IOs to a number that may be a fraction | |
//! | [`queue`] | start-time fair queuing among the VMs of a host | PARDA §3; SFQ(D) |
//! | [`settings`] | what all hosts must have alike, and what is in force where they differ | |
//! | [`objective`] | a VM's latency objective, and the threshold that follows | |
//! | [`rate`] | shares of IO/s, bytes/s or array time | Little's law |
//! | [`reservation`] | IOs per second that a VM has whatever its shares | Little's law; mClock |
//! | [`tenant`] | VMs on any number of hosts with shares, a limit and a reservation together | |
//! | [`rhythm`] | how often hosts meet in the exchange | |
//! | [`clock`] | the times at which a host reads the exchange, ticks and publishes | |
//! | [`depth`] | a window for a queue that takes whole numbers only, and the times of its changes | |
//! | [`account`] | the account of a queue whose order and gate are not ours | |
//! | [`held`] | causes for which IOs are held | |
//! | [`config`] | what a host is told about a volume | |
//! | [`threshold`] | finding the threshold while working | |
//! | [`outsider`] | load on the array that is not under control | Little's law |
//! | [`limit`] | IOs and bytes per second that a VM never exceeds | GCRA; mClock |
//! | [`mechanism`] | switches for ablations | |
//! | [`names`] | modes, states and settings as configuration and status spell them | |
//! | [`integral`] | what means over a period are made of | |
//! | [`units`] | types for time, bytes, windows and shares | |
//! | [`host`] | the queue, gate and slices of a host whose IOs pass through us | |
//! | [`decision`] | what law and enforcer say to each other once a period | |
//! | [`period`] | the law of a host, which ties these together | |
//!
//! [`period::Period`] is where to start reading: it alone ends periods. [`host::Host`] holds a host's IOs to its decisions. A volume whose
//! queue and gate are the kernel's, or QEMU's, has an [`account::Account`] in its place.

extern crate alloc;

mod absent;
pub mod account;
pub mod backlog;
pub mod belief;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod decision;
pub mod depth;
pub mod forecast;
pub mod gate;
pub mod governor;
pub mod held;
pub mod host;
pub mod integral;
pub mod io;
pub mod latency;
pub mod law;
pub mod limit;
pub mod mechanism;
pub mod names;
pub mod objective;
pub mod outsider;
pub mod period;
pub mod queue;
pub mod rate;
pub mod reservation;
pub mod rhythm;
pub mod settings;
pub mod size;
pub mod slices;
pub mod tenant;
pub mod threshold;
pub mod units;

#[cfg(test)]
mod testing;

pub use account::{Account, VmGrant, VmPeriod};
pub use belief::{Belief, Doubt};
pub use clock::PeriodClock;
pub use cluster::{
    Bounded, Governed, Liveness, Load, Part, Report, Source, Thresholds, Totals, Tuning, View,
    Weights,
};
pub use config::{Config, ConfigError, check_bounds};
pub use decision::{Decision, Measurement, TenantPeriod};
pub use depth::{Depth, DepthBounds};
pub use forecast::{Forecast, Outlook};
pub use governor::{Governor, Measured, VmDemand};
pub use held::{HeldBy, HeldTimes};
pub use host::{Completed, Dispatch, Host, IoId, Outcome, VmConfig, VmId, VmPart};
pub use io::{Charge, Costs, Io, IoKind};
pub use limit::{Burst, Limit, Rate, Rates};
pub use names::ModeName;
pub use objective::{ObjectiveState, Price, Wants};
pub use period::Period;
pub use rate::Throughput;
pub use reservation::{Prefer, ReservationState};
pub use rhythm::{Rhythm, Round};
pub use settings::{Ballot, Settings};
pub use tenant::{Tenant, TenantId, TenantPart, TenantState, TenantTerms};
pub use threshold::{Auto, Estimate};
pub use units::{Bytes, Instant, Shares, Span, Window};
