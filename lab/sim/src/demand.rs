//! Times and counters of a client's IOs, in one run from its start to its stop.

use parda_control::{Instant, Span};
use parda_workload::{Bursts, OPEN_LOOP_DEPTH};

use crate::check::Violation;

/// One run of a VM's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientRun(pub(crate) u64);

/// State and counters of a client's run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) id: ClientRun,
    /// False once the run has been stopped.
    pub(crate) going: bool,
    bursts: Option<Bursts>,
    /// The run is in a burst, or has no bursts.
    pub(crate) works: bool,
    /// End of its burst, or start of the next.
    pub(crate) edge: Option<Instant>,
    /// Closed loop: the run always has as many IOs under way as `depth` allows.
    closed: bool,
    /// Most IOs under way.
    depth: u32,
    under_way: u32,
    /// Arrivals of an open loop that wait for a completion.
    waiting: u64,
    arrived: u64,
    completed: u64,
    /// Sum of the times in the system of completed IOs, in ns.
    pub(crate) lived: u128,
    /// Sum of all completion times less sum of all start times, in ns. A second count of `lived`,
    /// which includes unfinished IOs.
    moments: i128,
}

impl Run {
    /// A closed loop with `outstanding` IOs under way; an open loop for `None`.
    pub(crate) fn new(
        now: Instant,
        id: ClientRun,
        outstanding: Option<u32>,
        bursts: Option<Bursts>,
    ) -> Run {
        let (closed, depth) = (outstanding.is_some(), outstanding.unwrap_or(OPEN_LOOP_DEPTH));
        Run {
            id,
            going: true,
            bursts,
            works: true,
            edge: bursts.map(|bursts| now + bursts.on.into()),
            closed,
            depth,
            ..Run::default()
        }
    }

    /// Stops the run. IOs under way still complete; waiting arrivals are dropped.
    pub(crate) fn stop(&mut self) {
        self.going = false;
        self.arrived -= self.waiting;
        self.waiting = 0;
    }

    /// Begins or ends a burst.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.works = !self.works;
        let lasts = |bursts: Bursts| if self.works { bursts.on } else { bursts.off };
        self.edge = self.bursts.map(|bursts| now + lasts(bursts).into());
    }

    /// Counts an arrival in an open loop.
    pub(crate) fn arrive(&mut self) {
        self.arrived += 1;
        self.waiting += 1;
    }

    /// Whether the run begins another IO now.
    pub(crate) fn wants(&self) -> bool {
        let more = if self.closed { self.works } else { self.waiting > 0 };
        more && self.going && self.under_way < self.depth
    }

    /// Counts the start of an IO.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.moments -= i128::from(now.0);
        self.under_way += 1;
        if !self.closed {
            self.waiting -= 1;
        }
    }

    /// Counts the completion of an IO that took `lived`.
    pub(crate) fn end(&mut self, now: Instant, lived: Span) {
        self.moments += i128::from(now.0);
        self.under_way -= 1;
        self.completed += 1;
        self.lived += u128::from(lived.0);
    }

    /// IOs under way, integrated over time, in IO·ns.
    fn outstanding(&self, now: Instant) -> i128 {
        self.moments + i128::from(self.under_way) * i128::from(now.0)
    }

    /// Checks that the counters agree with one another and with the list of its unfinished IOs.
    /// `lived` is the sum of the times of all IOs so far, completed or not.
    pub(crate) fn audit(
        &self,
        vm: &str,
        now: Instant,
        under_way: u64,
        lived: u128,
    ) -> Result<(), Violation> {
        let Run { completed, waiting, .. } = *self;
        let begun = completed + u64::from(self.under_way);
        let arrived = if self.closed { begun } else { self.arrived };
        if arrived != completed + under_way + waiting {
            return Err(Violation(format!(
                "VM {vm}: of {arrived} IOs that arrived {completed} are done, {under_way} under way, and {waiting} wait"
            )));
        }
        let outstanding = self.outstanding(now);
        if i128::try_from(lived) != Ok(outstanding) {
            return Err(Violation(format!(
                "VM {vm}: its IOs have lived {lived} IO·ns, and {outstanding} IO·ns were outstanding"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn run(outstanding: Option<u32>, bursts: Option<Bursts>) -> Run {
        Run::new(Instant(0), ClientRun(1), outstanding, bursts)
    }

    /// Begins all IOs that the run wants; returns their number.
    fn begin_all(run: &mut Run, now: u64) -> u32 {
        let mut begun = 0;
        while run.wants() {
            run.begin(Instant(now));
            begun += 1;
        }
        begun
    }

    #[test]
    fn a_closed_loop_rests_between_its_bursts_and_then_fills_up() {
        let bursts = Bursts { on: Duration::from_nanos(12), off: Duration::from_nanos(18) };
        let mut run = run(Some(4), Some(bursts));
        assert_eq!(begin_all(&mut run, 0), 4);
        run.end(Instant(10), Span(10));
        assert_eq!(begin_all(&mut run, 10), 1);
        assert_eq!(run.edge, Some(Instant(12)));
        run.turn(Instant(12));
        assert_eq!((run.works, run.edge), (false, Some(Instant(30))));
        run.end(Instant(20), Span(20));
        assert_eq!(begin_all(&mut run, 20), 0);
        run.turn(Instant(30));
        assert_eq!((run.works, run.edge), (true, Some(Instant(42))));
        assert_eq!(begin_all(&mut run, 30), 1, "three are still under way");
        // Two completed IOs lived 10 and 20. At time 30, two open ones have lived 30 and one 20.
        assert_eq!(run.audit("db", Instant(30), 4, 10 + 20 + 2 * 30 + 20), Ok(()));
    }

    #[test]
    fn what_arrives_beyond_the_depth_of_an_open_loop_waits_outside() {
        let mut run = run(None, None);
        assert_eq!(begin_all(&mut run, 0), 0, "nothing has arrived");
        (0..OPEN_LOOP_DEPTH + 2).for_each(|_| run.arrive());
        assert_eq!(begin_all(&mut run, 0), OPEN_LOOP_DEPTH);
        run.end(Instant(5), Span(5));
        assert_eq!(begin_all(&mut run, 5), 1);
        let lives = u128::from(OPEN_LOOP_DEPTH) * 5;
        assert_eq!(run.audit("db", Instant(5), OPEN_LOOP_DEPTH.into(), lives), Ok(()));
        run.stop();
        run.end(Instant(6), Span(6));
        assert_eq!(begin_all(&mut run, 6), 0, "the last one never comes");
        let lives = lives + u128::from(OPEN_LOOP_DEPTH);
        assert_eq!(run.audit("db", Instant(6), u64::from(OPEN_LOOP_DEPTH) - 1, lives), Ok(()));
    }

    #[test]
    fn an_io_that_was_lost_or_lived_twice_is_found_out() {
        let mut run = run(None, None);
        (0..2).for_each(|_| run.arrive());
        begin_all(&mut run, 100);
        run.end(Instant(150), Span(50));
        assert_eq!(run.audit("db", Instant(200), 1, 50 + 100), Ok(()));
        let error = run.audit("db", Instant(200), 0, 50).unwrap_err().to_string();
        assert_eq!(error, "VM db: of 2 IOs that arrived 1 are done, 0 under way, and 0 wait");
        let error = run.audit("db", Instant(200), 1, 250).unwrap_err().to_string();
        assert_eq!(error, "VM db: its IOs have lived 250 IO·ns, and 150 IO·ns were outstanding");
    }
}
