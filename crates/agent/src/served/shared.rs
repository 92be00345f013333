//! Resources that the volumes of an agent share.

use std::sync::Arc;

use parda_block::AgentMemory;

use super::addresses::Addresses;
use crate::activation::Passed;

/// Resources that the volumes of an agent share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) memory: AgentMemory,
    pub(crate) passed: Arc<Passed>,
    pub(crate) addresses: Addresses,
}
