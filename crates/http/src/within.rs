//! Time limits of peers, in time for which this process ran.

use std::pin::pin;
use std::time::Duration;

/// Shortest time for which a process counts as stopped: two clocks are not read at once.
const STOPPED: Duration = Duration::from_millis(1);

/// The output of a future, if it comes within a limit. Time for which the process was stopped meanwhile extends the limit.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (real, ran) = (std::time::Instant::now(), parda_awake::Instant::now());
    let (mut future, mut left, mut added) = (pin!(future), limit, Duration::ZERO);
    loop {
        if let Ok(output) = tokio::time::timeout(left, future.as_mut()).await {
            return Some(output);
        }
        let stopped = real.elapsed().saturating_sub(ran.elapsed());
        left = stopped.saturating_sub(added);
        if left < STOPPED {
            return None;
        }
        added = stopped;
    }
}
