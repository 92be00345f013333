//! Policy: settings of volumes, groups of VMs and VMs for all hosts, kept in etcd.
//!
//! A policy is a TOML document. The code that checks `parda.toml` checks it before it is written. Each host checks it again before it
//! takes effect. Calls to etcd block, each for a bounded time.
//!
//! | file | subject |
//! | --- | --- |
//! | [`document`] | a policy, and the settings that a VM has by it |
//! | [`check`](mod@check) | the check of a policy file |
//! | [`changes`](mod@changes) | the difference of two policies, and a change of one setting |
//! | [`stored`] | values of the keys in etcd |
//! | [`store`] | a policy in etcd: read and written, with its history |
//! | [`hosts`] | reports of hosts on what they have in force |
#![forbid(unsafe_code)]

pub mod changes;
pub mod check;
pub mod document;
pub mod hosts;
pub mod store;
pub mod stored;

pub use changes::{PolicyChange, Scope, changes, set};
pub use check::check;
pub use document::{Named, Policy, PolicyGroup, PolicyVolume};
pub use hosts::{HostRecord, HostReport, Presence, ValueInForce, VolumeReport};
pub use store::{Applied, Author, PolicySnapshot, Store, StoreError};
pub use stored::{HistoryEntry, PolicyHead, Stored, StoredFault};
