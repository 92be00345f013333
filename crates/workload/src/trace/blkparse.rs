//! Reader for the text of blkparse (`blktrace -d /dev/sda -o - | blkparse -i -`), and for the same
//! text from the kernel (`current_tracer` `blk` with the option `blk_classic`).

use super::builder::{Builder, Depth};
use super::{Format, Trace};

/// Reader for one text, line by line.
///
/// An IO arrives when it is queued (`Q`), which is when a program asked for it. The time of its
/// issue to the device (`D`) depends on the speed of the traced device. `D` is used only if the
/// text has nothing else (`blktrace -a issue`).
#[derive(Debug)]
pub(crate) struct Blkparse {
    device: String,
    queued: Builder,
    issued: Builder,
    /// Whether there were `Q` events, and `D` events.
    has: (bool, bool),
    /// Outstanding IOs by `Q` and `C`, and by `D` and `C`.
    at_queue: Depth,
    at_device: Depth,
    /// Whether the summary after the events was reached.
    over: bool,
}

const SHAPE: &str = "must be a line of blkparse: device, CPU, number, time, process, what happened, \
                     and to what (`8,0 3 1 0.000072500 697 Q W 223490 + 8 [kjournald]`)";

/// Parses a device number: `8,0`.
fn device(line: &str) -> Option<&str> {
    let first = line.split_ascii_whitespace().next()?;
    let (major, minor) = first.split_once(',')?;
    (major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok()).then_some(first)
}

/// Parses seconds with nine decimals; gives ns.
fn time(text: &str) -> Option<u64> {
    let (seconds, nanos) = text.split_once('.')?;
    let nanos = nanos.parse::<u64>().ok().filter(|_| nanos.len() == 9)?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

impl Blkparse {
    /// A reader, if a text that begins with this line is blkparse's.
    pub(crate) fn begins(line: &str) -> Option<Blkparse> {
        Some(Blkparse {
            device: device(line)?.to_owned(),
            queued: Builder::default(),
            issued: Builder::default(),
            has: (false, false),
            at_queue: Depth::default(),
            at_device: Depth::default(),
            over: false,
        })
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), &'static str> {
        if line.starts_with("CPU:") && line.contains("LOST") {
            return Err("the kernel lost events here: trace with a larger buffer");
        }
        self.over |= line.starts_with("CPU") || line.starts_with("Total");
        if self.over {
            return Ok(());
        }
        if device(line).ok_or(SHAPE)? != self.device {
            return Err(
                "is of another device than the lines before it, which may be the same IOs \
                        again: leave one in, with grep '^ *8,0 '",
            );
        }
        let mut words = line.split_ascii_whitespace().skip(2);
        // The kernel's own text has no event numbers.
        let mut at = || words.next().and_then(time);
        let at = at().or_else(at).ok_or(SHAPE)?;
        let (Some(_process), Some(action)) = (words.next(), words.next()) else {
            return Err(SHAPE);
        };
        if !matches!(action, "Q" | "D" | "C" | "M" | "F" | "R") {
            return Ok(());
        }
        let kind = words.next().ok_or(SHAPE)?;
        // These events recur in another form. Each IO is counted once, at its arrival.
        let mut skip = |what| {
            match action {
                "Q" => self.queued.skip(what),
                "D" => self.issued.skip(what),
                _ => {}
            }
            Ok(())
        };
        let read = match kind {
            _ if kind.contains('D') => return skip("discards"),
            _ if kind.contains('W') => false,
            _ if kind.contains('R') => true,
            _ => return skip("flushes and others"),
        };
        // An event without an offset is a flush or a passthrough command.
        let place = (words.next(), words.next(), words.next());
        let (Some(sector), Some("+"), Some(sectors)) = place else {
            return skip("flushes and others");
        };
        let bytes = |text: &str| {
            let number = text.parse::<u64>().map_err(|_| SHAPE)?;
            number.checked_mul(512).ok_or("lies beyond what any disk has")
        };
        let (offset, len) = (bytes(sector)?, bytes(sectors)?);
        if len == 0 {
            return skip("flushes and others");
        }
        match action {
            "Q" => {
                if !std::mem::replace(&mut self.has.0, true) {
                    self.issued.forget();
                }
                self.queued.push(at, read, offset, len)?;
                self.at_queue.begin(at);
            }
            "D" => {
                self.has.1 = true;
                if !self.has.0 {
                    self.issued.push(at, read, offset, len)?;
                }
                self.at_device.begin(at);
            }
            "M" | "F" => self.at_queue.join(at),
            "R" => self.at_device.join(at),
            _ => {
                self.at_queue.end(at);
                self.at_device.end(at);
            }
        }
        Ok(())
    }

    pub(crate) fn trace(self) -> Result<Trace, &'static str> {
        let at_device = if self.has.1 { &self.at_device } else { &self.at_queue };
        let under_way = at_device.under_way();
        match self.has.0 {
            true => self.queued.build(Format::Queued, under_way),
            false => self.issued.build(Format::Issued, under_way),
        }
    }
}
