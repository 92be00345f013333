//! Modes, states and named settings as configuration, status and messages spell them.
//!
//! With the `serde` feature the same names are read and written by `Deserialize` and `Serialize`;
//! `parda-config` has the test that both agree.

use core::fmt;

use crate::cluster::{Liveness, Source};
use crate::latency::Signal;
use crate::law::{Estimation, Mode};

/// Name of a [`Mode`], without its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum ModeName {
    /// Eq. 2, normalised by the exchange's data.
    #[default]
    Parda,
    /// Eq. 2 to the letter, with `beta_per_share`.
    Published,
    /// The window is `window_max` and stays there.
    Static,
    /// No window and no queue, but all is measured, exchanged and computed.
    Observe,
    /// No window and no queue.
    Off,
}

impl Mode {
    /// Name of the mode, without its parameters.
    #[must_use]
    pub fn name(&self) -> ModeName {
        match self {
            Mode::Off => ModeName::Off,
            Mode::Static => ModeName::Static,
            Mode::Published { .. } => ModeName::Published,
            Mode::Parda => ModeName::Parda,
            Mode::Observe => ModeName::Observe,
        }
    }
}

impl fmt::Display for ModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ModeName::Parda => "parda",
            ModeName::Published => "published",
            ModeName::Static => "static",
            ModeName::Observe => "observe",
            ModeName::Off => "off",
        })
    }
}

impl fmt::Display for Estimation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Estimation::Global => "global",
            Estimation::Local => "local",
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Signal::All => "all",
            Signal::Reads => "reads",
            Signal::Writes => "writes",
        })
    }
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Liveness::Unproven => "unproven",
            Liveness::Live => "live",
            Liveness::Stale => "stale",
            Liveness::Gone => "gone",
            Liveness::Left => "left",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Cluster => "cluster",
            Source::LastGood => "last-good",
            Source::Local => "local",
        })
    }
}
