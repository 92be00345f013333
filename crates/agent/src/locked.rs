//! Mutexes that outlive a panic of a thread which held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A mutex held by a thread that panicked is locked all the same: its value is whole after each statement.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
