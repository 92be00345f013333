//! Map of a file's holes.
//!
//! Only lseek(2) tells, which io_uring cannot do and which may wait for a disk or a server. So a thread of its own asks, and the ring never
//! waits for it. An answer is bounded in extents and in time: the client asks again from where it ends. The thread has one question at a
//! time. Others wait on the ring's side, where the asking peers take turns.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parda_awake::Instant;
use parda_disk::status::{Descriptor, ExtentStatus, Extents};
use parda_disk::{Extent, Failure};
use rustix::fs::{self, SeekFrom};
use rustix::io::Errno;

use super::disk_file::{DiskFile, OpenPath};
use crate::disk_id::DiskId;
use crate::mailbox::{Mailer, News};
use crate::peer::Peer;
use crate::turns::Turns;

/// A request for block status.
struct Question {
    key: usize,
    place: DiskFile,
    extent: Extent,
    one: bool,
}

/// Question to the thread that looks at files.
enum Job {
    /// The answer to a request.
    Status(Question),
    /// State of the files behind these disks, and the number of the look.
    Look(u64, Vec<(DiskId, OpenPath)>),
}

/// Asks file systems what may take time. Its thread starts with the first question. Each disk has its own, so that a silent file system
/// holds up no other disk.
pub(crate) struct Mapper {
    mailer: Mailer,
    jobs: Option<Sender<Job>>,
    /// The thread has a question that it has not answered.
    asked: bool,
    waiting: Turns<Question>,
    at: Arc<At>,
}

/// Number of files that have been looked at, and the disk of the one in progress.
#[derive(Debug, Default)]
struct At(Mutex<(u64, Option<DiskId>)>);

impl At {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<DiskId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, disk: Option<DiskId>) {
        let mut at = self.lock();
        *at = (at.0 + 1, disk);
    }
}

impl Mapper {
    /// One that answers by mail.
    pub(crate) fn new(mailer: Mailer) -> Self {
        let (waiting, at) = (Turns::default(), Arc::default());
        Self { mailer, jobs: None, asked: false, waiting, at }
    }

    /// Asks for the status of a range, on behalf of `peer`. [`News::Mapped`] brings the answer for
    /// request `key`; call [`Mapper::answered`] then.
    pub(crate) fn ask(
        &mut self,
        peer: Peer,
        key: usize,
        place: &DiskFile,
        extent: Extent,
        one: bool,
    ) -> Result<(), Failure> {
        let question = Question { key, place: place.clone(), extent, one };
        if self.asked {
            self.waiting.push(peer, question);
            return Ok(());
        }
        self.submit(Job::Status(question))?;
        self.asked = true;
        Ok(())
    }

    /// Takes note that a question was answered, and asks the next. `failed` gets the requests for
    /// which that is not possible.
    pub(crate) fn answered(&mut self, failed: &mut Vec<(usize, Result<(), Failure>)>) {
        self.asked = false;
        while !self.asked
            && let Some((_, question)) = self.waiting.pop()
        {
            let key = question.key;
            match self.submit(Job::Status(question)) {
                Ok(()) => self.asked = true,
                Err(failure) => failed.push((key, Err(failure))),
            }
        }
    }

    /// Looks at files; [`News::Looked`] brings the answer with the number of the look.
    pub(crate) fn look(
        &mut self,
        number: u64,
        files: Vec<(DiskId, OpenPath)>,
    ) -> Result<(), Failure> {
        self.submit(Job::Look(number, files))
    }

    /// Number of files that have been looked at, and the disk of the one in progress, if any.
    pub(crate) fn looks_at(&self) -> (u64, Option<DiskId>) {
        *self.at.lock()
    }

    fn submit(&mut self, job: Job) -> Result<(), Failure> {
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => {
                let started = start(self.mailer.clone(), Arc::clone(&self.at));
                self.jobs.insert(started.map_err(no_thread)?)
            }
        };
        jobs.send(job).map_err(no_thread)
    }
}

fn no_thread(error: impl std::fmt::Display) -> Failure {
    let message = format!("no thread to look for holes: {error}");
    Failure::new(parda_disk::Errno::NoMem, message)
}

fn start(mailer: Mailer, at: Arc<At>) -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel();
    let work = move || run(&jobs, &mailer, &at);
    std::thread::Builder::new().name("parda-map".into()).spawn(work)?;
    Ok(sender)
}

/// Works until the volume is gone.
fn run(jobs: &Receiver<Job>, mailer: &Mailer, at: &Arc<At>) {
    while let Ok(job) = jobs.recv() {
        let answer = match job {
            Job::Status(Question { key, place, extent, one }) => {
                let until = Instant::now() + PATIENCE;
                let extents = status(&place, extent, one, || Instant::now() < until);
                News::Mapped { key, extents }
            }
            Job::Look(number, files) => {
                // Another thread looks at the rest if this one was slow.
                let goes_on = |_: &_| Arc::strong_count(at) > 1;
                let looks = files.iter().take_while(goes_on).map(|(disk, place)| {
                    at.set(Some(*disk));
                    (*disk, place.look())
                });
                let looks = looks.collect();
                at.set(None);
                News::Looked { number, looks }
            }
        };
        if !mailer.send(answer) {
            return;
        }
    }
}

/// Time limit of the search for one answer. One call may take longer, but nothing follows it.
const PATIENCE: Duration = Duration::from_millis(50);

/// The status of a range, as far as there was time to find it.
fn status(
    place: &DiskFile,
    extent: Extent,
    one: bool,
    mut go_on: impl FnMut() -> bool,
) -> Result<Vec<Descriptor>, Failure> {
    let mut extents = Extents::new(extent, place.align, one);
    let mut first = true;
    while !extents.is_complete() && (first || go_on()) {
        first = false;
        let at = place.base + extents.position();
        let rest = extents.end() - extents.position();
        match fs::seek(&place.fd, SeekFrom::Data(at)) {
            Ok(data) if data > at => {
                extents.push(data - at, ExtentStatus::HOLE_ZERO);
            }
            Ok(_) => {
                let hole = fs::seek(&place.fd, SeekFrom::Hole(at)).map_err(failure)?;
                // A hole that was punched between the two calls is found by the next pair.
                extents.push(hole.saturating_sub(at), ExtentStatus::DATA);
            }
            // No data from here to the end of the file. Bytes behind the end cannot be read, and so
            // are no hole.
            Err(Errno::NXIO) => {
                let size = fs::fstat(&place.fd).map_err(failure)?.st_size as u64;
                extents.push(size.saturating_sub(at).min(rest), ExtentStatus::HOLE_ZERO);
                extents.push(rest, ExtentStatus::DATA);
            }
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => extents.push(rest, ExtentStatus::DATA),
            Err(error) => return Err(failure(error)),
        }
    }
    // Less than a block is known: it is data for now.
    extents
        .finish()
        .or_else(|_| Extents::all_data(extent).finish())
        .map_err(|errno| Failure::new(errno, "nothing is known of this range"))
}

fn failure(error: Errno) -> Failure {
    Failure::from_os(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::mailbox;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 4096;

    /// A file with data in the blocks of these numbers.
    fn file(blocks: u64, data: impl IntoIterator<Item = u64>) -> Arc<OwnedFd> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(blocks * BLOCK).unwrap();
        data.into_iter().for_each(|block| file.write_all_at(&[1], block * BLOCK).unwrap());
        Arc::new(file.into())
    }

    fn ask(file: &Arc<OwnedFd>, base: u64, extent: Extent, one: bool) -> Vec<(u64, bool)> {
        let place = DiskFile::new(file, base, 512);
        let found = status(&place, extent, one, || true).unwrap();
        let hole = |d: &Descriptor| match d.status {
            ExtentStatus::HOLE_ZERO => true,
            status => {
                assert_eq!(status, ExtentStatus::DATA);
                false
            }
        };
        found.iter().map(|d| (d.len, hole(d))).collect()
    }

    #[test]
    fn holes_are_found_wherever_the_disk_begins() {
        let file = file(16, [0, 4, 5, 12]);
        let extent = |from: u64, blocks: u64| Extent { offset: from * BLOCK, len: blocks * BLOCK };
        let blocks = |list: &[(u64, bool)]| -> Vec<_> {
            list.iter().map(|(n, hole)| (n * BLOCK, *hole)).collect()
        };
        let whole = blocks(&[(1, false), (3, true), (2, false), (6, true), (1, false), (3, true)]);
        assert_eq!(ask(&file, 0, extent(0, 16), false), whole);
        assert_eq!(ask(&file, 0, extent(0, 16), true), whole[..1]);
        let part = blocks(&[(2, false), (1, true)]);
        assert_eq!(ask(&file, 4 * BLOCK, extent(0, 3), false), part);
        assert_eq!(ask(&file, 2 * BLOCK, extent(2, 3), false), part);
        assert_eq!(
            ask(&file, 0, Extent { offset: BLOCK - 512, len: 1024 }, false),
            [(512, false), (512, true)]
        );
    }

    #[test]
    fn one_peer_with_many_questions_delays_another_by_one_of_them() {
        let (mailer, mailbox) = mailbox().unwrap();
        let mut mapper = Mapper::new(mailer);
        let file = file(64, (0..64).step_by(2));
        let place = DiskFile::new(&file, 0, 512);
        let whole = Extent { offset: 0, len: 64 * BLOCK };
        let [busy, other] = [1, 2].map(|last| Peer::Host([127, 0, 0, last].into()));
        for key in 0..100 {
            mapper.ask(busy, key, &place, whole, false).unwrap();
        }
        mapper.ask(other, 100, &place, whole, false).unwrap();
        let mut answers = Vec::new();
        while answers.len() < 101 {
            match mailbox.next() {
                Some(News::Mapped { key, extents }) => {
                    // As many as its time was enough for.
                    assert!(!extents.unwrap().is_empty());
                    answers.push(key);
                    let mut failed = Vec::new();
                    mapper.answered(&mut failed);
                    assert!(failed.is_empty());
                }
                Some(_) => unreachable!("nothing else was asked"),
                None => std::thread::yield_now(),
            }
        }
        assert_eq!(answers[..4], [0, 1, 100, 2]);
        assert!(answers[4..].is_sorted());
    }

    #[test]
    fn what_is_behind_the_end_of_a_file_is_no_hole() {
        let shrunk = file(2, []);
        let extent = Extent { offset: 0, len: 4 * BLOCK };
        assert_eq!(ask(&shrunk, 0, extent, false), [(2 * BLOCK, true), (2 * BLOCK, false)]);
        assert_eq!(ask(&shrunk, 8 * BLOCK, extent, false), [(4 * BLOCK, false)]);
    }

    #[test]
    fn a_search_without_time_still_says_something_true() {
        let file = file(64, (0..64).step_by(2));
        let place = DiskFile::new(&file, 0, 512);
        let extent = Extent { offset: 0, len: 64 * BLOCK };
        let found = status(&place, extent, false, || false).unwrap();
        assert_eq!(found, [Descriptor { len: BLOCK, status: ExtentStatus::DATA }]);
        let rest = Extent { offset: BLOCK, len: 63 * BLOCK };
        let found = status(&place, rest, false, || false).unwrap();
        assert_eq!(found, [Descriptor { len: BLOCK, status: ExtentStatus::HOLE_ZERO }]);
    }
}
