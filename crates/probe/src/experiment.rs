//! Published experiments: loads whose results somebody has published, to be run on any target.

use std::fmt;
use std::str::FromStr;

use crate::load::{Load, Mix, Purpose};

/// An experiment of a paper that a probe repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// `elling`: random IOs of 4 KiB with 1 to 10 outstanding, first reads, then writes (Richard Elling,
    /// *IOPS and latency are not related*, 2012).
    Elling,
}

/// The error for a name that no experiment has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no experiment is called `{0}`: there is elling")]
pub struct UnknownExperiment(String);

impl Experiment {
    /// Name of the experiment on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Elling => "elling",
        }
    }

    /// Its loads, in order. Without `writes`, only those that read.
    #[must_use]
    pub fn loads(self, writes: bool) -> Vec<(Load, Purpose)> {
        let Experiment::Elling = self;
        let kinds: &[u32] = if writes { &[100, 0] } else { &[100] };
        let mut loads = Vec::new();
        for read_percent in kinds.iter().copied() {
            let mix = Mix { size: 4096, read_percent, random_percent: 100 };
            let load = |outstanding| (Load { mix, outstanding }, Purpose::Depth);
            loads.extend([1, 2, 4, 6, 8, 10].map(load));
        }
        loads
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Experiment {
    type Err = UnknownExperiment;

    fn from_str(name: &str) -> Result<Experiment, UnknownExperiment> {
        let known = [Experiment::Elling].into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownExperiment(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_goes_by_its_name_and_writes_only_if_it_may() {
        assert_eq!("elling".parse(), Ok(Experiment::Elling));
        let unknown = "elking".parse::<Experiment>().unwrap_err().to_string();
        assert_eq!(unknown, "no experiment is called `elking`: there is elling");
        let reads = Experiment::Elling.loads(false);
        assert!(reads.iter().all(|(load, _)| load.mix.read_percent == 100));
        assert_eq!(reads.len(), 6);
        let all = Experiment::Elling.loads(true);
        assert_eq!((all.len(), &all[..6]), (12, reads.as_slice()));
        assert_eq!(all[11].0.to_string(), "4 KiB, writes, random, 10 outstanding");
    }
}
