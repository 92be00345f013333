//! Descriptors that a configuration needs, beside the limit of this process.

use crate::config::Config;

/// How many disks a configuration has, the descriptors that these need with one client each, and the hard limit of
/// this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Number of disks of all volumes.
    pub disks: usize,
    /// Limit with which all of them are served.
    pub needed: u64,
    /// Hard limit of this process; none if there is none.
    pub limit: Option<u64>,
}

impl Descriptors {
    /// Those of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Descriptors {
        let disks = config.volumes.iter().map(|volume| volume.disks().len()).sum();
        let needed = parda_block::descriptors_for(disks);
        Descriptors { disks, needed, limit: parda_block::descriptor_limit() }
    }

    /// What is wrong with the limit, if it is too low.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Descriptors { disks, needed, limit } = *self;
        let limit = limit.filter(|limit| disks > 0 && *limit < needed)?;
        Some(format!(
            "{disks} disks with one client each need {needed} descriptors, and the hard limit here is {limit} \
             (RLIMIT_NOFILE, LimitNOFILE= of the unit): disks and clients beyond it are refused"
        ))
    }
}
