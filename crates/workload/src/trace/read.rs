//! Reads a trace of any supported format.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use parda_config::Error;

use super::Trace;
use super::blkparse::Blkparse;
use super::iolog::Iolog;

/// Longest accepted line, in bytes. A file with longer lines is not text.
const LONGEST: u64 = 64 << 10;

/// Length to which an invalid line is cut in a message, in characters.
const SHOWN: usize = 80;

/// Bytes between two reports of progress.
const STEP: u64 = 4 << 20;

/// Reads a trace from a file. The format, fio's log (`fio --write_iolog=FILE`) or blkparse's text,
/// is recognised by the beginning of the file. The file is read line by line; 24 bytes are kept for
/// each IO.
///
/// `progress` is called with the number of bytes read so far.
///
/// # Errors
/// The file cannot be read, its format is unknown, or a line is invalid; the error names the line.
pub fn read(path: &Path, progress: impl FnMut(u64)) -> Result<Trace, Error> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => parse(&name, BufReader::with_capacity(1 << 18, file), progress),
        Err(e) => Err(error(&name, None, format!("cannot be read: {e}"))),
    }
}

enum Reader {
    Iolog(Iolog),
    Blkparse(Box<Blkparse>),
}

/// Reads a trace from an open file. `name` stands for the file in errors.
///
/// # Errors
/// As for [`read`].
pub fn parse(
    name: &str,
    mut input: impl BufRead,
    mut progress: impl FnMut(u64),
) -> Result<Trace, Error> {
    let (mut line, mut number, mut total, mut told) = (Vec::new(), 0, 0, 0);
    let mut reader = None;
    loop {
        line.clear();
        number += 1;
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        let read = read.map_err(|e| error(name, None, format!("cannot be read: {e}")))? as u64;
        if read == 0 {
            break;
        }
        total += read;
        if total - told >= STEP {
            told = total;
            progress(total);
        }
        // Program names may have bytes that are not UTF-8.
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        let wrong = |message: &str| error(name, Some((number, text)), message.to_owned());
        // blkparse and the kernel may write headers before the first event.
        let preface = text.starts_with("Input file ") || text.starts_with('#');
        if text.is_empty() || (reader.is_none() && preface) {
            continue;
        }
        if read == LONGEST {
            return Err(wrong("is longer than any line of a trace"));
        }
        let done = match &mut reader {
            None => {
                let mut begun = begin(&line, text).map_err(wrong)?;
                let done = match &mut begun {
                    Reader::Iolog(_) => Ok(()),
                    Reader::Blkparse(blkparse) => blkparse.line(text),
                };
                reader = Some(begun);
                done
            }
            Some(Reader::Iolog(iolog)) => iolog.line(text),
            Some(Reader::Blkparse(blkparse)) => blkparse.line(text),
        };
        done.map_err(wrong)?;
    }
    progress(total);
    let trace = match reader {
        None => Err("is empty"),
        Some(Reader::Iolog(iolog)) => iolog.trace(),
        Some(Reader::Blkparse(blkparse)) => blkparse.trace(),
    };
    trace.map_err(|message| error(name, None, message.to_owned()))
}

/// The reader for a file that begins like this.
fn begin(bytes: &[u8], text: &str) -> Result<Reader, &'static str> {
    if let Some(iolog) = Iolog::begins(text) {
        return Ok(Reader::Iolog(iolog));
    }
    if let Some(blkparse) = Blkparse::begins(text) {
        return Ok(Reader::Blkparse(Box::new(blkparse)));
    }
    Err(match bytes {
        [0x07, b't', b'a', b'e', ..] | [b'e', b'a', b't', 0x07, ..] => {
            "is what blktrace writes, in binary: make text of it with blkparse -i FILE"
        }
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0xfd, b'7', b'z', ..] => {
            "is compressed: unpack it"
        }
        _ => {
            "is neither fio's log, which begins with `fio version 2 iolog` or `fio version 3 \
             iolog`, nor the text of blkparse"
        }
    })
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
