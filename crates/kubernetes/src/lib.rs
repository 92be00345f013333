//! Settings of the pods of a node, read from a Kubernetes API server. Sources: annotations and parameters of the pods' claims and of these
//! claims' classes.
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

pub use settings::{NodeSettings, PREFIX, PodSettings};
pub use watch::{FollowError, Node, follow};
