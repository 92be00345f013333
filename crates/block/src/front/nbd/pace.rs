//! Rate of new connections: the policy, without sockets.
//!
//! A handshake costs the volume's thread as much as many IOs. Limits of connections and of memory do not bound how many begin in a second:
//! a client that goes and comes again is within both. So handshakes have a rate. A burst of as many handshakes as there may be connections
//! begins at once, as after a restart of the hosts. Only beyond that newcomers wait. Waiting newcomers take turns by peer: one that floods
//! the volume waits for itself. If too many wait, the peer with most of them loses one.
//!
//! To accept a socket and close it again costs something too. So sockets are accepted at a rate as well, [`ACCEPTS`] times that of
//! handshakes. Beyond it newcomers wait in the kernel.

use parda_control::Instant;

use super::rate::Rate;
use crate::config::Limits;
use crate::peer::Peer;
use crate::turns::Turns;

/// Sockets that are accepted for each handshake that may begin. More tell clients apart from a flood
/// sooner, and cost more.
const ACCEPTS: u64 = 4;

/// Accepts in a row after a pause, so that a flood does not wake the thread for each.
const IN_A_ROW: u64 = 16;

/// Newcomers `T` that wait for their handshake to begin.
#[derive(Debug)]
pub(crate) struct Pace<T> {
    handshakes: Rate,
    accepts: Rate,
    waiting: Turns<T>,
    most: usize,
}

impl<T> Pace<T> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let rate = limits.handshakes_per_second as u64;
        let at_once = (limits.connections + limits.handshakes()) as u64;
        Self {
            handshakes: Rate::new(rate, at_once),
            accepts: Rate::new(rate * ACCEPTS, at_once + IN_A_ROW),
            waiting: Turns::default(),
            most: limits.handshakes(),
        }
    }

    /// A socket was accepted. When to accept the next one, if not now.
    pub(crate) fn accepted(&mut self, now: Instant) -> Option<Instant> {
        self.accepts.count(now);
        (!self.accepts.allows(now)).then(|| self.accepts.next(IN_A_ROW))
    }

    /// Somebody comes. Returns whom to turn away for it, if anybody.
    pub(crate) fn arrive(&mut self, peer: Peer, newcomer: T) -> Option<(Peer, T)> {
        let mut victim = None;
        if self.waiting.len() >= self.most {
            victim = self.waiting.make_room_for(peer);
            if victim.is_none() {
                return Some((peer, newcomer));
            }
        }
        self.waiting.push(peer, newcomer);
        victim
    }

    /// Connection whose handshake begins now, if one may.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Peer, T)> {
        if !self.handshakes.allows(now) {
            return None;
        }
        let next = self.waiting.pop()?;
        self.handshakes.count(now);
        Some(next)
    }

    /// When the next handshake may begin, if somebody waits.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        (self.waiting.len() > 0).then(|| self.handshakes.next(1))
    }

    /// Forgets who waits and is not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.waiting.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pace(connections: usize, handshakes_per_second: usize) -> Pace<u32> {
        Pace::new(&Limits { connections, handshakes_per_second, ..Limits::default() })
    }

    fn process(pid: i32) -> Peer {
        Peer::Process { uid: 0, pid }
    }

    fn begun(pace: &mut Pace<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| pace.next(now)).map(|(_, newcomer)| newcomer).collect()
    }

    #[test]
    fn a_thousand_machines_that_start_at_once_do_not_wait() {
        for of_one_host in [false, true] {
            let mut pace = pace(1024, 250);
            for n in 0..1000 {
                assert_eq!(pace.accepted(Instant(0)), None);
                assert_eq!(pace.arrive(process(if of_one_host { 0 } else { n }), 0), None);
                assert!(pace.next(Instant(0)).is_some(), "the {n}th waits");
            }
            assert_eq!(pace.next_at(), None);
        }
    }

    #[test]
    fn a_flood_has_the_rate_and_no_more() {
        let mut pace = pace(64, 100);
        let (mut served, mut turned_away) = (0, 0);
        // Ten seconds of 1,000 a second.
        for ms in 0..10_000 {
            let now = Instant(ms * MS);
            turned_away += usize::from(pace.arrive(process(1), 0).is_some());
            served += begun(&mut pace, now).len();
        }
        // 80 at once, and then 100 a second.
        assert!((1079..=1081).contains(&served), "{served}");
        assert_eq!(served + turned_away + pace.waiting.len(), 10_000);
        assert_eq!(pace.waiting.len(), pace.most);
    }

    #[test]
    fn who_comes_beside_a_flood_is_next() {
        let mut pace = pace(64, 100);
        let now = Instant(1);
        for _ in 0..1000 {
            pace.arrive(process(1), 1);
            begun(&mut pace, now);
        }
        let (victim, _) = pace.arrive(process(2), 2).expect("one of the flood makes room");
        assert_eq!(victim, process(1));
        let at = pace.next_at().unwrap();
        assert_eq!(begun(&mut pace, at), [1]);
        let at = pace.next_at().unwrap();
        assert_eq!(begun(&mut pace, at), [2], "after one of the flood at most");
        assert!(at <= Instant(now.0 + 20 * MS), "{at:?}");
    }

    #[test]
    fn of_many_peers_that_flood_none_keeps_all_others_out() {
        let mut pace = pace(16, 100);
        for n in 0..100 {
            pace.arrive(process(n), n as u32);
        }
        let first: Vec<u32> = begun(&mut pace, Instant(0));
        assert_eq!(first, [0, 1, 2, 3], "who waits keeps his place");
        for n in 200..204 {
            assert_eq!(pace.arrive(process(n), n as u32), None);
        }
        assert!(pace.arrive(process(300), 300).is_some());
    }

    #[test]
    fn sockets_are_accepted_in_rows_at_four_times_the_rate() {
        let mut pace = pace(64, 100);
        let (mut now, mut accepted) = (Instant(0), 0);
        while now < Instant(10_000 * MS) {
            accepted += 1;
            if let Some(at) = pace.accepted(now) {
                assert!(
                    at > now && at <= Instant(now.0 + 16 * 1000 * MS / 400),
                    "{at:?} at {now:?}"
                );
                now = at;
            }
        }
        assert!((4_080..=4_120).contains(&accepted), "{accepted}");
    }

    #[test]
    fn who_is_not_kept_has_no_turn() {
        let mut pace = pace(1024, 100);
        (0..9).for_each(|n| _ = pace.arrive(process(n as i32 % 3), n));
        pace.retain(|n| n % 3 != 1 && *n < 6);
        assert_eq!(begun(&mut pace, Instant(0)), [0, 2, 3, 5]);
        assert_eq!((pace.waiting.len(), pace.next_at()), (0, None));
    }
}
