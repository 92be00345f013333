//! Time limits of peers, in time for which this process ran.

use std::pin::pin;
use std::time::Duration;

use parda_awake::Instant;

/// The output of a future, if it comes within a limit. A process that was stopped meanwhile looks at its sockets again before the limit counts.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (until, mut future) = (Instant::now() + limit, pin!(future));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, future.as_mut()).await {
            Ok(output) => return Some(output),
            Err(_) if left.is_zero() => return None,
            Err(_) => {}
        }
    }
}
