//! Log lines on IOs that fail at the array: the first of a disk, then at most one a minute.

use parda_control::{Instant, Span};
use parda_disk::{Failure, Op};

/// Time between two lines on one disk.
const PAUSE: Span = Span::from_millis(60_000);

/// IOs of a disk that failed.
pub(super) struct Failures {
    /// The file, device or server that holds the disk's data.
    data: String,
    /// Offset of the disk there, in bytes.
    base: u64,
    said: Option<Instant>,
    /// IOs that failed since the last line, which has none of them.
    more: u64,
}

impl Failures {
    pub(super) fn new(data: String, base: u64) -> Failures {
        Failures { data, base, said: None, more: 0 }
    }

    /// Notes that an operation failed. Returns the line to be logged, if one is due.
    pub(super) fn note(&mut self, now: Instant, op: Op, failure: &Failure) -> Option<String> {
        if self.said.is_some_and(|said| now.since(said) < PAUSE) {
            self.more += 1;
            return None;
        }
        self.said = Some(now);
        let extent = op.extent();
        let at = match extent.len {
            0 => format!("of {}", self.data),
            len => {
                let at = self.base + failure.at.unwrap_or(extent.offset);
                format!("of {len} bytes at byte {at} of {}", self.data)
            }
        };
        let Failure { errno, message, .. } = failure;
        let said = if message.is_empty() { String::new() } else { format!(": {message}") };
        let more = match std::mem::take(&mut self.more) {
            0 => String::new(),
            more => format!("; {more} more since the last such line"),
        };
        Some(format!("a {} {at} failed with {errno}{said}{more}", name(op)))
    }
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Read(_) => "read",
        Op::Write { .. } => "write",
        Op::Flush => "flush",
        Op::Trim { .. } => "trim",
        Op::WriteZeroes { .. } => "write of zeroes",
        Op::Cache(_) => "read ahead",
        Op::BlockStatus { .. } => "look for holes",
    }
}

#[cfg(test)]
mod tests {
    use parda_disk::{Errno, Extent};

    use super::*;

    #[test]
    fn the_first_failure_is_said_with_its_place_and_the_next_after_a_minute() {
        let mut failures = Failures::new("/dev/san".to_owned(), 1 << 20);
        let at = |s: u64| Instant(s * 1_000_000_000);
        let read = Op::Read(Extent { offset: 4096, len: 512 });
        let io = Failure::from_os(5);
        let said = failures.note(at(0), read, &io).unwrap();
        let place = "a read of 512 bytes at byte 1052672 of /dev/san failed with EIO: ";
        assert!(said.starts_with(place) && said.contains("os error 5"), "{said}");
        for _ in 0..7 {
            assert_eq!(failures.note(at(59), read, &io), None);
        }
        let flush = failures.note(at(60), Op::Flush, &Failure::new(Errno::NoSpc, "")).unwrap();
        let expected = "a flush of /dev/san failed with ENOSPC; 7 more since the last such line";
        assert_eq!(flush, expected);
        let exact = failures.note(at(120), read, &Failure::new(Errno::Io, "").at(4352)).unwrap();
        assert!(exact.contains("at byte 1052928 of"), "{exact}");
    }
}
