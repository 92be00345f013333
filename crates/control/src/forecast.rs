//! Forecast of an observing host: the window that it would have, and the part of the array of each VM.
//!
//! At the threshold the array has L_threshold / L of what is outstanding there now. Each IO then takes L_threshold,
//! so the array completes as much as now. A VM would have its demand there, at most its slice λ · shares. The IOs
//! beyond it wait in the hosts' queues.

use alloc::vec::Vec;

use crate::units::{Span, Window};

/// Windows and latencies that the law would have had, as means over a time. Only time in which the cluster
/// did IO counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Time with IO in the cluster.
    pub over: Span,
    /// Time integrals of all fields below, in seconds.
    latency: [f64; 2],
    outstanding: [f64; 2],
    window: f64,
    vms: Vec<[f64; 2]>,
}

/// A value now, and its forecast under the law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Value now, without control.
    pub is: f64,
    /// Value that the law would give.
    pub would_be: f64,
}

impl Forecast {
    /// Forecast of a period. `vms`: for each VM its outstanding IOs, and the part of its slice that it would use.
    pub(crate) fn new(
        elapsed: Span,
        latency: Span,
        headroom: f64,
        outstanding: f64,
        window: Window,
        vms: impl Iterator<Item = (f64, f64)>,
    ) -> Forecast {
        // Demand bounds the forecast: the array never has more outstanding IOs than now.
        let (part, secs) = (headroom.min(1.0), elapsed.secs());
        let both = |is: f64| [is * secs, is * part * secs];
        Forecast {
            over: elapsed,
            latency: both(latency.secs()),
            outstanding: both(outstanding),
            window: window.0 * secs,
            vms: vms.map(|(is, would_be)| [is * secs, would_be * secs]).collect(),
        }
    }

    /// The mean latency in seconds. `None` if there was no IO.
    #[must_use]
    pub fn latency(&self) -> Option<Change> {
        self.mean(self.latency)
    }

    /// Forecast of the mean window, in slots.
    #[must_use]
    pub fn window(&self) -> Option<f64> {
        self.mean([self.window; 2]).map(|mean| mean.is)
    }

    /// For each VM its part, 0 to 1, of the outstanding IOs of all hosts that observe or are governed. The same
    /// part of their IOs per second if all IOs take the same time.
    pub fn parts(&self) -> impl Iterator<Item = Change> {
        let [is, would_be] = self.outstanding;
        let part = |of: f64, all: f64| if all > 0.0 { (of / all).min(1.0) } else { 0.0 };
        self.vms
            .iter()
            .map(move |vm| Change { is: part(vm[0], is), would_be: part(vm[1], would_be) })
    }

    fn mean(&self, [is, would_be]: [f64; 2]) -> Option<Change> {
        let secs = self.over.secs();
        (secs > 0.0).then(|| Change { is: is / secs, would_be: would_be / secs })
    }

    fn add(&mut self, other: &Forecast) {
        self.over += other.over;
        for (sum, part) in
            [(&mut self.latency, &other.latency), (&mut self.outstanding, &other.outstanding)]
                .into_iter()
                .chain(self.vms.iter_mut().zip(&other.vms))
        {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        self.window += other.window;
    }
}

/// Forecasts of the last period, and since observing began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// In the last period with IO.
    pub last: Forecast,
    /// Since the law observes with its present parameters and number of VMs.
    pub since: Forecast,
}

impl Outlook {
    pub(crate) fn add(&mut self, period: Forecast) {
        if period.vms.len() == self.since.vms.len() {
            self.since.add(&period);
        } else {
            self.since = period.clone();
        }
        self.last = period;
    }
}
