//! Whether to look for the next event before sleeping, by how earlier looks went.

use std::time::Duration;

/// How long one wait looks before it sleeps, while writers have all that is under way, which takes them 5 to 20 µs each.
pub(crate) const FOR_WRITERS: Duration = Duration::from_micros(100);

/// A look in vain costs what so many that were not have earned. It goes on as long as three of four
/// find something.
const VAIN: u32 = 3;

/// Largest credit that is kept.
const MOST_CREDIT: u32 = 9;

/// Waits between two tries, at first and at most.
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 1024;

/// Remembers how looks went.
#[derive(Debug)]
pub(crate) struct Credit {
    /// What they have earned; there is another look as long as that is something.
    earned: u32,
    /// Waits until it is tried again.
    pause: u32,
    next_pause: u32,
}

impl Credit {
    pub(crate) fn new() -> Self {
        Self { earned: 0, pause: FIRST_PAUSE, next_pause: FIRST_PAUSE }
    }

    /// Whether the wait that comes may begin with a look.
    pub(crate) fn is_enough(&mut self) -> bool {
        if self.earned == 0 {
            if self.pause > 0 {
                self.pause -= 1;
                return false;
            }
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
        }
        true
    }

    /// Takes note whether something was there before the look was over.
    pub(crate) fn looked(&mut self, found: bool) {
        if found {
            self.earned = (self.earned + 1).min(MOST_CREDIT);
            (self.pause, self.next_pause) = (FIRST_PAUSE, FIRST_PAUSE);
        } else {
            self.earned = self.earned.saturating_sub(VAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_mostly_idle_hardly_looks() {
        let mut credit = Credit::new();
        let mut looks = 0;
        for _ in 0..10_000 {
            if credit.is_enough() {
                looks += 1;
                credit.looked(false);
            }
        }
        assert!(looks < 20, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_client_that_is_found_every_other_time_is_waited_for_asleep() {
        let mut credit = Credit::new();
        let mut looks = 0;
        for i in 0..10_000 {
            if credit.is_enough() {
                looks += 1;
                credit.looked(i % 2 == 0);
            }
        }
        assert!(looks < 1_500, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_busy_client_is_found_soon_and_lost_soon() {
        let mut credit = Credit::new();
        let first = (0..100).find(|_| credit.is_enough()).unwrap();
        assert!(first <= FIRST_PAUSE);
        credit.looked(true);
        for _ in 0..1000 {
            assert!(credit.is_enough());
            credit.looked(true);
        }
        let vain = (0..100).take_while(|_| {
            let looks = credit.is_enough();
            credit.looked(false);
            looks
        });
        assert_eq!(vain.count() as u32, MOST_CREDIT / VAIN);
    }
}
