//! The operator's choice about an outsider.

use crate::threshold::Auto;
use crate::units::Span;

/// What hosts under control do beside an outsider.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Answer {
    /// The threshold stays, and hosts under control make room.
    #[default]
    Hold,
    /// The outsider counts as a host with these shares, and hosts under control keep their part by shares.
    Share {
        /// Shares of the outsider.
        shares: f64,
        /// Largest threshold that may be in force.
        at_most: Span,
    },
    /// Hosts under control keep as many outstanding IOs as they had.
    Compete {
        /// Largest threshold that may be in force.
        at_most: Span,
    },
}

/// Largest change of the threshold in a period, as a part of it.
const STEP: f64 = 0.2;

impl Answer {
    /// Bounds of the threshold, if it moves beside an outsider.
    #[must_use]
    pub fn bounds(&self, threshold: Span) -> Option<Auto> {
        let at_most = match *self {
            Answer::Hold => return None,
            Answer::Share { at_most, .. } | Answer::Compete { at_most } => at_most,
        };
        Some(Auto { start: Some(threshold), at_least: threshold, at_most, step: STEP })
    }

    /// Part of their outstanding IOs that hosts under control keep beside the outsider. `ours`: the sum of their active shares.
    #[must_use]
    pub fn keeps(&self, ours: f64) -> f64 {
        match *self {
            Answer::Hold => 0.0,
            Answer::Share { shares, .. } => ours / (ours + shares).max(f64::MIN_POSITIVE),
            Answer::Compete { .. } => 1.0,
        }
    }
}
