//! Resources that the volumes of an agent share.

use std::sync::Arc;

use parda_block::AgentMemory;

use super::addresses::Addresses;
use super::opens::Opens;
use crate::activation::Passed;

/// Resources that the volumes of an agent share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) memory: AgentMemory,
    pub(crate) passed: Arc<Passed>,
    pub(crate) addresses: Addresses,
    pub(crate) opens: Opens,
}
