//! Reads a trace: fio's log, or the text of blkparse.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use parda_config::Error;
use parda_input::Pipe;

use super::{Trace, TraceIo};

/// Longest accepted line, in bytes. A file with longer lines is not text.
const LONGEST: u64 = 64 << 10;

/// Most bytes of a trace.
const MOST: u64 = 4 << 30;

/// Length to which an invalid line is cut in a message, in characters.
const SHOWN: usize = 80;

/// Size of a sector in bytes.
const SECTOR: u64 = 512;

/// Upper bound on offsets, in bytes: no disk is larger.
const FURTHEST: u64 = 1 << 62;

const LATE: &str = "is too late";

const VERSION_2: &str = "fio version 2 iolog";

const BEYOND: &str = "lies beyond what any disk has";

/// Waits in fio's log, version 2, below this many µs count as none, by fio's manual.
const SHORTEST: u64 = 100;

const WITHOUT_TIMES: &str = "has no times: fio writes them from 3.31 on (version 3), and version 2 has them by lines \
                             with `wait`";

const IOLOG_SHAPE: &str = "must be a time, a file and what is done to it (add, open, close), or that with an \
                           offset and a length (read, write); version 2 has no time, and `wait` with µs";

const BLKPARSE_SHAPE: &str = "must be a line of blkparse: device, CPU, number, time, process, what happened, \
                              and to what (`8,0 3 1 0.000072500 697 Q W 223490 + 8 [kjournald]`)";

/// Reads a trace from a file. The format, fio's log (`fio --write_iolog=FILE`) or blkparse's text,
/// is recognised from the file's beginning.
///
/// # Errors
/// The file cannot be read, or is no trace: the error names the line and its fault.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let name = path.display().to_string();
    match parda_input::open(path, Pipe::Taken) {
        Ok(file) => parse(&name, BufReader::with_capacity(1 << 18, file)),
        Err(fault) => Err(error(&name, None, fault.to_string())),
    }
}

/// Reads a trace from an open file. `name` stands for the file in errors.
///
/// # Errors
/// As for [`read`](fn@read).
pub fn parse(name: &str, mut input: impl BufRead) -> Result<Trace, Error> {
    let mut ios = Vec::new();
    let (mut line, mut format, mut all) = (Vec::new(), None, 0);
    for number in 1.. {
        line.clear();
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        match read.map_err(|e| error(name, None, format!("cannot be read: {e}")))? as u64 {
            0 => break,
            // Program names may have bytes that are not UTF-8.
            length => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim();
                all += length;
                let done = match length {
                    _ if all > MOST => Err("lies behind 4 GiB, where no trace goes on"),
                    LONGEST => Err("is longer than any line of a trace"),
                    _ => read_line(&mut format, text, &mut ios),
                };
                done.map_err(|message| error(name, Some((number, text)), message.to_owned()))?;
            }
        }
    }
    if matches!(format, Some(Format::Waits { last: None, .. })) {
        return Err(error(name, Some((1, VERSION_2)), WITHOUT_TIMES.to_owned()));
    }
    let message = if format.is_none() { "is empty" } else { "has neither reads nor writes" };
    Trace::new(ios).ok_or_else(|| error(name, None, message.to_owned()))
}

/// Format of a trace, and what its reader remembers.
enum Format {
    /// fio's log, version 3, of one file.
    Iolog { file: Option<String> },
    /// The same, version 2. Its IOs arrive after the last wait, all of which come one after the other.
    Waits { file: Option<String>, last: Option<u64> },
    /// blkparse's text, or the same from the kernel (`current_tracer` `blk` with the option `blk_classic`), of one
    /// device.
    ///
    /// An IO arrives when it is queued (`Q`), which is when a program asked for it. The time of its
    /// issue to the device (`D`) depends on the speed of the traced device. `D` is used only if the
    /// text has no `Q` (`blktrace -a issue`).
    Blkparse { device: String, queued: bool, over: bool },
}

fn read_line(
    format: &mut Option<Format>,
    line: &str,
    ios: &mut Vec<TraceIo>,
) -> Result<(), &'static str> {
    if format.is_none() {
        // blkparse and the kernel may write headers before the first event.
        if line.is_empty() || line.starts_with("Input file ") || line.starts_with('#') {
            return Ok(());
        }
        if line == "fio version 3 iolog" {
            *format = Some(Format::Iolog { file: None });
            return Ok(());
        }
        if line == VERSION_2 {
            *format = Some(Format::Waits { file: None, last: None });
            return Ok(());
        }
        let device = device(line).ok_or_else(|| unknown(line))?.to_owned();
        *format = Some(Format::Blkparse { device, queued: false, over: false });
    }
    match format {
        _ if line.is_empty() => Ok(()),
        Some(Format::Iolog { file }) => iolog(line, file, ios),
        Some(Format::Waits { file, last }) => waits(line, file, last, ios),
        Some(Format::Blkparse { device, queued, over }) => {
            *over |= line.starts_with("CPU") || line.starts_with("Total");
            if line.starts_with("CPU:") && line.contains("LOST") {
                return Err("the kernel lost events here: trace with a larger buffer");
            }
            if *over { Ok(()) } else { blkparse(line, device, queued, ios) }
        }
        None => Ok(()),
    }
}

/// The error about a file that begins with this line.
fn unknown(line: &str) -> &'static str {
    match line.as_bytes() {
        [0x07, b't', b'a', b'e', ..] | [b'e', b'a', b't', 0x07, ..] => {
            "is what blktrace writes, in binary: make text of it with blkparse -i FILE"
        }
        _ => {
            "is neither fio's log, which begins with `fio version 3 iolog`, nor the text of blkparse; a compressed \
             file must be unpacked"
        }
    }
}

/// Reads a line of fio's log.
fn iolog(
    line: &str,
    known: &mut Option<String>,
    ios: &mut Vec<TraceIo>,
) -> Result<(), &'static str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (at, words) = words.split_first().ok_or(IOLOG_SHAPE)?;
    act(number(at)?, words, known, ios)
}

/// Reads a line of fio's log, version 2.
fn waits(
    line: &str,
    known: &mut Option<String>,
    last: &mut Option<u64>,
    ios: &mut Vec<TraceIo>,
) -> Result<(), &'static str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        // fio itself asks for a length, which means nothing.
        [_, "wait", wait] | [_, "wait", wait, _] => {
            let wait = Some(number(wait)?).filter(|wait| *wait >= SHORTEST).unwrap_or(0);
            *last = Some(last.unwrap_or(0).checked_add(wait).ok_or(LATE)?);
            Ok(())
        }
        _ => act(last.unwrap_or(0), &words, known, ios),
    }
}

/// Handles an action of fio on its file at a time, in µs.
fn act(
    at: u64,
    words: &[&str],
    known: &mut Option<String>,
    ios: &mut Vec<TraceIo>,
) -> Result<(), &'static str> {
    match *words {
        [file, action @ ("read" | "write"), offset, len] => {
            if known.get_or_insert_with(|| file.to_owned()) != file {
                return Err("is of another file than the reads and writes before it: make it a \
                            trace for each, and a VM");
            }
            let at = at.checked_mul(1000).ok_or(LATE)?;
            push(ios, at, action == "read", number(offset)?, number(len)?)
        }
        [_, "add" | "open" | "close" | "trim" | "sync" | "datasync", ..] => Ok(()),
        _ => Err(IOLOG_SHAPE),
    }
}

fn number(word: &str) -> Result<u64, &'static str> {
    word.parse().map_err(|_| IOLOG_SHAPE)
}

/// A line's device number: `8,0`.
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

/// Reads a line of blkparse's text.
fn blkparse(
    line: &str,
    known: &str,
    queued: &mut bool,
    ios: &mut Vec<TraceIo>,
) -> Result<(), &'static str> {
    if device(line).ok_or(BLKPARSE_SHAPE)? != known {
        return Err("is of another device than the lines before it, which may be the same IOs \
                    again: leave one in, with grep '^ *8,0 '");
    }
    let mut words = line.split_ascii_whitespace().skip(2);
    // The kernel's own text has no event numbers.
    let mut at = || words.next().and_then(time);
    let at = at().or_else(at).ok_or(BLKPARSE_SHAPE)?;
    let (Some(_process), Some(action)) = (words.next(), words.next()) else {
        return Err(BLKPARSE_SHAPE);
    };
    if !matches!(action, "Q" | "D") {
        return Ok(());
    }
    let kind = words.next().ok_or(BLKPARSE_SHAPE)?;
    // An event without an offset is a flush or a passthrough command.
    let place = (words.next(), words.next(), words.next());
    let (Some(sector), Some("+"), Some(sectors)) = place else { return Ok(()) };
    let Some(read) = reads(kind) else { return Ok(()) };
    let bytes = |text: &str| {
        let number = text.parse::<u64>().map_err(|_| BLKPARSE_SHAPE)?;
        number.checked_mul(SECTOR).ok_or(BEYOND)
    };
    let (offset, len) = (bytes(sector)?, bytes(sectors)?);
    if action == "Q" && len > 0 && !std::mem::replace(queued, true) {
        ios.clear();
    }
    if action == "D" && *queued {
        return Ok(());
    }
    push(ios, at, read, offset, len)
}

/// Whether an event's kind is a read or a write with data. `None`: neither.
///
/// A kind is an `F` if a flush comes first, the operation, and flags: `FWFSM`. `ZA` appends to a zone. Operations without data are `D`
/// (discard), `DE`, `N`, `F`, `WZ` (zeroes), and those on zones. These are `ZR` (reset), `ZRA`, `ZO`, `ZC`, `ZF`.
fn reads(kind: &str) -> Option<bool> {
    let operation = kind.strip_prefix('F').unwrap_or(kind);
    match operation.as_bytes() {
        [b'W', b'Z', ..] => None,
        [b'Z', b'A', ..] | [b'W', ..] => Some(false),
        [b'R', ..] => Some(true),
        _ => None,
    }
}

/// Adds a read or write, widened to whole sectors, if it has data.
fn push(
    ios: &mut Vec<TraceIo>,
    at: u64,
    read: bool,
    offset: u64,
    len: u64,
) -> Result<(), &'static str> {
    if len == 0 {
        return Ok(());
    }
    let end = offset.checked_add(len).filter(|end| *end <= FURTHEST);
    let end = end.ok_or(BEYOND)?.next_multiple_of(SECTOR);
    let offset = offset / SECTOR * SECTOR;
    let len = u32::try_from(end - offset).map_err(|_| "is larger than 4 GiB")?;
    ios.push(TraceIo { at, offset, len, read });
    Ok(())
}

fn error(name: &str, line: Option<(usize, &str)>, message: String) -> Error {
    let shown = |text: &str| match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    Error {
        file: name.to_owned(),
        place: line.map(|(number, _)| (number, 1)),
        // Control characters in a binary file would garble a terminal.
        value: line.map(|(_, text)| shown(text).escape_debug().collect()),
        message,
    }
}
