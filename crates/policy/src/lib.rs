//! Policy: settings of volumes, groups of VMs and VMs that live in one place, etcd, for all hosts.
//!
//! A policy is a TOML document. What is in it is checked by the same code as `parda.toml` before it is written, and again by each
//! agent before it takes effect. Calls to etcd block, each for a bounded time.
//!
//! | file | subject |
//! | --- | --- |
//! | [`document`] | a policy, and which of its settings a VM has |
//! | [`check`](mod@check) | a policy as it is written, checked |
//! | [`changes`](mod@changes) | what differs between two policies, and one setting changed |
//! | [`stored`] | values of the keys in etcd |
//! | [`store`] | a policy in etcd: read, written, with its history |
//! | [`hosts`] | what hosts have in force |
#![forbid(unsafe_code)]

pub mod changes;
pub mod check;
pub mod document;
pub mod hosts;
pub mod store;
pub mod stored;

pub use changes::{Change, Of, changes, set};
pub use check::check;
pub use document::{Group, Policy, Vm, Volume};
pub use hosts::{HostReport, HostState, InForce, Presence, VolumeReport};
pub use store::{Applied, Author, Snapshot, Store, StoreError};
pub use stored::{Head, HistoryEntry, Stored, StoredFault};
