//! Order of the IOs of a host.

/// How hosts queue the IOs of their VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// Fairly, as the agent does.
    #[default]
    Fair,
    /// First come, first served, whosever they are: something to measure the fair queue by.
    Fifo,
}
