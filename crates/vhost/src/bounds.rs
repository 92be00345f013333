//! Sizes that guests and front ends must keep within.

/// Queues that a device can have.
pub const MAX_QUEUES: u16 = 256;

/// Descriptors that a queue can have, and unanswered requests.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// Regions that the memory of a guest can have: as many as QEMU's own back ends take (`VHOST_USER_MAX_RAM_SLOTS` of
/// libvhost-user).
pub const MAX_REGIONS: usize = 509;
