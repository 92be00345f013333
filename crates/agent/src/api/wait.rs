//! Waiting until the running volumes have a change.

use std::time::Duration;

use parda_awake::Instant;

/// Time after which a change that is not in force yet is answered as it is.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at the volume.
const LOOK: Duration = Duration::from_millis(10);

/// Looks again and again, until the answer is the wanted one or the time is over. Returns the last answer.
pub(super) fn wait<T>(
    until: Instant,
    mut look: impl FnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    loop {
        let answer = look();
        if wanted(&answer) || Instant::now() >= until {
            return answer;
        }
        std::thread::sleep(LOOK);
    }
}
