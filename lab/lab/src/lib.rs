//! The laboratory: scenarios in real time with real processes, and the emulated array as a server
//! of its own.
//!
//! | module | subject |
//! | --- | --- |
//! | [`array_server`] | the emulated array as an NBD server |
//! | [`array_control`] | the control socket of that server: state and faults |
//! | [`run`](mod@run) | a scenario from its first process to its answer |
//! | [`cluster`] | the processes of a scenario: array, agents, clients |
//! | [`process`] | a child that never outlives the laboratory |
//! | [`agent`] | a host's agent: its configuration and its status |
//! | `export_uri` | NBD URIs of exports at unix sockets |
//! | [`fio`] | a VM's client |
//! | [`guest`] | hosts with a kernel of their own, which tests make |
//! | [`Dashboards`] | web dashboards of the hosts, in a run that goes on until it is interrupted |
//! | [`limits`] | features of scenarios that only the simulator has |
//! | [`relay`] | a host's connection to the exchange, which can be cut |
//! | [`network`] | the network between hosts, on loopback |
//! | `etcd` | the etcd in which hosts meet |
//! | `meeting` | how the hosts of a run meet: what agents are told, and what faults do |
//! | [`meter`] | the answer of a phase, computed from the agents' counters |
//! | [`LabOptions`], [`RunDir`] | options and directory of a run |
//! | `temporary` | directories for temporary files |
//! | [`error`] | errors of a run |

pub mod agent;
pub mod array_control;
pub mod array_server;
pub mod cluster;
mod dashboards;
pub mod error;
mod etcd;
mod export_uri;
pub mod fio;
pub mod guest;
pub mod limits;
mod meeting;
pub mod meter;
pub mod network;
mod options;
pub mod process;
pub mod relay;
pub mod run;
mod run_dir;
mod temporary;

pub use array_server::{ArrayData, ArrayOptions, run_array};
pub use dashboards::Dashboards;
pub use error::LabError;
pub use export_uri::export_uri;
pub use options::LabOptions;
pub use run::{LabProgress, run};
pub use run_dir::RunDir;
