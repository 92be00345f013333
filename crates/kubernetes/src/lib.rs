//! Settings of the pods of a node, from annotations and parameters of their claims and of these claims' classes, as a Kubernetes API server
//! tells them.
//!
//! | module | subject |
//! | --- | --- |
//! | `settings` | which settings a pod has, by objects of the API |
//! | `objects` | these objects, reduced to what matters of them |
//! | `watch` | the same, listed once and then watched |
//!
//! All of it is behind the feature `api`.

#![cfg(feature = "api")]
#![forbid(unsafe_code)]

mod objects;
mod settings;
mod watch;

pub use settings::{Answer, PREFIX, Vm};
pub use watch::{FollowError, Node, follow};
