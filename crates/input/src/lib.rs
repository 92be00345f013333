#![forbid(unsafe_code)]
//! Files that users and configurations name. Each is checked before it is opened and read, and is bounded in size. A pipe, such as
//! `/dev/stdin` or a shell's `<(…)`, is bounded in time as well. Its writer may never write.

pub mod locks;
mod safe;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::string::FromUtf8Error;
use std::time::Duration;

use parda_awake::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

pub use safe::escaped;

/// Time limit of a pipe's writer. For all of it, or for each part of an [`Input`] that is read in parts.
pub const LIMIT: Duration = Duration::from_secs(8);

/// Whether a pipe is taken in the place of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    /// The pipe is read once.
    Taken,
    /// The file is read again later, or by a thread that must not wait.
    Refused,
}

/// Reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum InputFault {
    /// The kernel refuses to open or to read it.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A pipe where none is taken.
    #[error("is a pipe, which is read once, at the start: name a regular file")]
    Pipe,
    /// A directory, device or socket.
    #[error("is not a regular file")]
    Irregular,
    /// More bytes than may be, with the bound.
    #[error("is larger than {} MiB", .0 >> 20)]
    Large(u64),
    /// The writer of a pipe does not write, or not all.
    #[error("is a pipe of which nobody has written all within {} s: write to a file, and name that", LIMIT.as_secs())]
    Silent,
    /// Bytes that are no text.
    #[error(transparent)]
    NoText(#[from] FromUtf8Error),
}

impl From<InputFault> for io::Error {
    fn from(fault: InputFault) -> io::Error {
        match fault {
            InputFault::Io(error) => error,
            fault => io::Error::other(fault),
        }
    }
}

/// A file that is read in parts. Its reads end with [`io::ErrorKind::TimedOut`] where the writer of a pipe is silent.
#[derive(Debug)]
pub struct Input {
    file: File,
    is_pipe: bool,
    /// Until when a pipe may be read. `None`: each read may wait.
    until: Option<Instant>,
}

fn kind(about: &Metadata, pipe: Pipe) -> Result<bool, InputFault> {
    let kind = about.file_type();
    match (kind.is_file(), kind.is_fifo(), pipe) {
        (true, ..) => Ok(false),
        (_, true, Pipe::Taken) => Ok(true),
        (_, true, Pipe::Refused) => Err(InputFault::Pipe),
        _ => Err(InputFault::Irregular),
    }
}

/// Opens a file that is read in parts.
///
/// # Errors
/// It cannot be opened, or is neither a regular file nor a pipe that is taken.
pub fn open(path: &Path, pipe: Pipe) -> Result<Input, InputFault> {
    // To open a device may do something.
    kind(&std::fs::metadata(path)?, pipe)?;
    // A pipe without a writer would keep the caller waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
    // Another file may have this name by now.
    let is_pipe = kind(&file.metadata()?, pipe)?;
    Ok(Input { file, is_pipe, until: None })
}

/// All bytes of a file, of which there may be `most`.
///
/// # Errors
/// As [`open`], or there are more bytes, or they do not come in time.
pub fn read(path: &Path, most: u64, pipe: Pipe) -> Result<Vec<u8>, InputFault> {
    all(open(path, pipe)?, most)
}

/// Text of a file, of `most` bytes at most.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn read_text(path: &Path, most: u64, pipe: Pipe) -> Result<String, InputFault> {
    Ok(String::from_utf8(read(path, most, pipe)?)?)
}

/// Text of an open file, as of standard input, of `most` bytes at most.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8; or its bytes do not come in time.
pub fn read_open(file: File, most: u64) -> Result<String, InputFault> {
    let is_pipe = !file.metadata()?.is_file();
    Ok(String::from_utf8(all(Input { file, is_pipe, until: None }, most)?)?)
}

fn all(mut input: Input, most: u64) -> Result<Vec<u8>, InputFault> {
    input.until = Some(Instant::now() + LIMIT);
    let mut bytes = Vec::new();
    match (&mut input).take(most + 1).read_to_end(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(InputFault::Silent),
        Err(error) => Err(error.into()),
        Ok(_) if bytes.len() as u64 > most => Err(InputFault::Large(most)),
        Ok(_) => Ok(bytes),
    }
}

impl Input {
    /// Permissions of the file.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(self.file.metadata()?.permissions().mode())
    }

    /// Waits until a pipe can be read, or is at its end.
    fn wait(&self) -> io::Result<()> {
        let until = self.until.unwrap_or_else(|| Instant::now() + LIMIT);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, InputFault::Silent));
            }
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_pipe {
                self.wait()?;
            }
            match self.file.read(bytes) {
                // Another reader of the pipe took the bytes.
                Err(error) if self.is_pipe && error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    fn fifo(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        path
    }

    #[test]
    fn a_regular_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 2 << 20]).unwrap();
        for pipe in [Pipe::Taken, Pipe::Refused] {
            assert_eq!(read(&path, 2 << 20, pipe).unwrap().len(), 2 << 20);
            let fault = read(&path, 1 << 20, pipe).unwrap_err().to_string();
            assert_eq!(fault, "is larger than 1 MiB");
        }
    }

    #[test]
    fn what_is_neither_file_nor_pipe_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert!(matches!(read(path, 10, Pipe::Taken), Err(InputFault::Irregular)), "{path:?}");
        }
        let pipe = fifo(dir.path());
        assert!(matches!(read(&pipe, 10, Pipe::Refused), Err(InputFault::Pipe)));
        assert!(matches!(read(&dir.path().join("none"), 10, Pipe::Taken), Err(InputFault::Io(_))));
    }

    #[test]
    fn a_pipe_is_read_to_the_end_by_name_and_by_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let name = path.clone();
        let writer = thread::spawn(move || {
            let mut to = File::options().write(true).open(name).unwrap();
            (0..100).for_each(|_| to.write_all(&[7; 4096]).unwrap());
        });
        assert_eq!(read(&path, 1 << 20, Pipe::Taken).unwrap(), vec![7; 409_600]);
        writer.join().unwrap();
        // As in a shell, where the writer may be done before anybody reads.
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"all").unwrap();
        drop(to);
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
        assert_eq!(read(Path::new(&name), 10, Pipe::Taken).unwrap(), b"all");
    }

    #[test]
    fn a_pipe_that_is_silent_ends_in_time() {
        let (from, _open) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(from));
        let until = Some(Instant::now() + Duration::from_millis(30));
        let mut input = Input { file, is_pipe: true, until };
        let error = input.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
