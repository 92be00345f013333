#![forbid(unsafe_code)]
//! The exchange: hosts of a volume share their measured latency and their number of outstanding IOs.
//!
//! The law needs the latency that *all* hosts see (PARDA §4: hosts with only their own latency diverge for good). An [`Exchange`]
//! carries it. In each control period the host reads the reports of the others. After the law's tick it publishes its own report.
//! These calls block; they belong on a control thread, never on a path that carries IO.
//!
//! A new transport with slots implements [`Region`], any other one [`Exchange`]; `docs/extending.md` has the steps.
//!
//! | file | subject |
//! | --- | --- |
//! | [`identity`] | identity of a sender: host names, incarnations, sequence numbers, volumes |
//! | [`exchange`](mod@exchange) | the trait of an exchange, with its messages, events and errors |
//! | [`freshness`] | judging age without synchronised clocks |
//! | [`peers`] | the other hosts, and which of them are alive |
//! | [`header`] | the header of an exchange with slots, byte by byte |
//! | [`slot`] | one slot, byte by byte |
//! | [`region`] | the place of slots, and the trait that a transport with slots implements: a file, a block device, an NBD export |
//! | [`location`] | the place of slots, as configuration and command line spell it |
//! | [`init`](mod@init) | making an exchange in a place, and looking at one |
//! | `found` | names of formats found where an exchange was expected, for messages |
//! | `table` | all slots as they were last read |
//! | `reach` | the number of slots that are read in a period |
//! | [`claim`] | the choice of our slot, and its defence against other hosts |
//! | [`slots`] | the exchange over a region of slots: PARDA's shared file |
//! | [`etcd`] | the exchange over etcd: one key per host, one read and one write a period |
//! | [`fallback`] | two transports at once: one, and slots as its fall-back |
//! | [`udp`] | the exchange over UDP: signed datagrams to each other host or to a group |
//!
//! `docs/exchange-format.md` has the format, the protocol, and what happens on each fault.

// Tests beside the code and programs of tests have one medium in memory.
#[cfg(test)]
extern crate self as parda_exchange;

pub mod claim;
mod counters;
pub mod etcd;
pub mod exchange;
pub mod fallback;
mod found;
pub mod freshness;
pub mod header;
pub mod identity;
pub mod init;
pub mod location;
#[cfg(test)]
#[path = "../tests/common/memory.rs"]
mod memory;
mod message;
pub mod peers;
mod reach;
pub mod region;
pub mod slot;
pub mod slots;
mod table;
#[cfg(test)]
mod testing;
pub mod udp;

pub use claim::SlotChoice;
pub use counters::RecordCounters;
pub use exchange::{Collected, Exchange, ExchangeError, ExchangeEvent, Silence, Standing};
pub use freshness::Liveness;
pub use header::{Header, PlaceFault, PlaceId, VolumeName};
pub use identity::{HostId, HostName, HostNameError, Identity, Incarnation, Sequence, VolumeId};
pub use init::{InitError, Made, init, init_as, look};
pub use location::{Location, Site};
pub use message::{Message, Publication};
pub use peers::{Peer, Peers};
pub use reach::reach;
pub use region::{Region, RegionFault, RegionImage, SlotCount, SlotIndex};
pub use slot::{Content, SlotFault};
pub use slots::{SlotExchange, SlotSettings};
