//! Faults that are logged when they are new.

/// Notes a fault. True if it is another one than before.
pub(crate) fn is_news(last: &mut Option<String>, fault: &str) -> bool {
    last.replace(fault.to_owned()).as_deref() != Some(fault)
}
