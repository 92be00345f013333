//! What is done about an outsider.

use crate::threshold::Auto;
use crate::units::Span;

/// What an operator chose to do about an outsider.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Answer {
    /// The threshold holds: ours make room.
    #[default]
    Hold,
    /// The outsider counts as a host with so many shares: ours keep the part of the array that the rest of all shares is, at a
    /// threshold of at most this.
    Share {
        /// Shares of the outsider.
        shares: f64,
        /// Largest threshold that may be in force.
        at_most: Span,
    },
    /// Ours keep as many outstanding IOs as they had, at a threshold of at most this.
    Compete {
        /// Largest threshold that may be in force.
        at_most: Span,
    },
}

/// Part by which the threshold moves in a period, at most.
const STEP: f64 = 0.2;

impl Answer {
    /// Bounds of the threshold, if it moves.
    #[must_use]
    pub fn bounds(&self, threshold: Span) -> Option<Auto> {
        let at_most = match *self {
            Answer::Hold => return None,
            Answer::Share { at_most, .. } | Answer::Compete { at_most } => at_most,
        };
        Some(Auto { start: Some(threshold), at_least: threshold, at_most, step: STEP })
    }

    /// The part of their outstanding IOs that ours keep, of what they have while they are alone.
    #[must_use]
    pub fn keeps(&self, ours: f64) -> f64 {
        match *self {
            Answer::Hold => 0.0,
            Answer::Share { shares, .. } => ours / (ours + shares).max(f64::MIN_POSITIVE),
            Answer::Compete { .. } => 1.0,
        }
    }
}
