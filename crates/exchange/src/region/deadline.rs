//! A bound on how long a region may take.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use super::{Block, Region, RegionFault, RegionImage, SlotCount, SlotIndex};

/// Runs another region on a thread of its own and gives up waiting after a limit.
///
/// A call to a file cannot be taken back: on a path that is down it may hang for minutes. A
/// separate thread hangs instead of the caller. Until it comes back every call fails at once, so
/// the caller's control ticks go on. The answer of a late call is thrown away, as its reader has
/// moved on.
#[derive(Debug)]
pub struct Deadline {
    place: String,
    slots: SlotCount,
    limit: Duration,
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
    /// The last call ran out of time and its answer has not come yet.
    late: bool,
}

#[derive(Debug)]
enum Job {
    Read(SlotCount),
    Write(SlotIndex, Box<Block>),
    /// Has no answer.
    Close,
}

/// A write answers with nothing.
type Answer = Result<Option<RegionImage>, RegionFault>;

impl Deadline {
    /// Bounds each call to `region` by `limit`. Fails if the thread cannot be started.
    pub fn new(region: impl Region + 'static, limit: Duration) -> io::Result<Deadline> {
        let (place, slots) = (region.place().to_owned(), region.slots());
        let (jobs, to_do) = mpsc::channel();
        let (done, answers) = mpsc::channel();
        // Never joined: it ends when the channel closes, or with the process if it hangs.
        thread::Builder::new()
            .name("parda-exchange".to_owned())
            .spawn(move || work(region, &to_do, &done))?;
        Ok(Deadline { place, slots, limit, jobs, answers, late: false })
    }

    fn call(&mut self, job: Job) -> Answer {
        let ended = || RegionFault::Read(io::Error::other("its thread has ended"));
        if self.late {
            match self.answers.try_recv() {
                Ok(_) => self.late = false,
                Err(TryRecvError::Empty) => return Err(RegionFault::Timeout(self.limit)),
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
        self.jobs.send(job).map_err(|_| ended())?;
        parda_awake::recv_timeout(&self.answers, self.limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => {
                self.late = true;
                RegionFault::Timeout(self.limit)
            }
            RecvTimeoutError::Disconnected => ended(),
        })?
    }
}

fn work(mut region: impl Region, jobs: &Receiver<Job>, answers: &Sender<Answer>) {
    for job in jobs {
        let answer = match job {
            Job::Read(slots) => region.read_front(slots).map(Some),
            Job::Write(slot, block) => region.write(slot, &block).map(|()| None),
            Job::Close => {
                region.close();
                continue;
            }
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

impl Region for Deadline {
    fn place(&self) -> &str {
        &self.place
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault> {
        let image = self.call(Job::Read(slots))?;
        Ok(image.unwrap_or_else(|| RegionImage::blank(slots)))
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault> {
        self.call(Job::Write(slot, Box::new(block.clone()))).map(|_| ())
    }

    fn close(&mut self) {
        // A thread that has ended has closed everything.
        let _ = self.jobs.send(Job::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryRegion;

    /// Hangs in every read until told to go on.
    struct Hanging(MemoryRegion, Receiver<()>);

    impl Region for Hanging {
        fn place(&self) -> &str {
            self.0.place()
        }
        fn slots(&self) -> SlotCount {
            self.0.slots()
        }
        fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault> {
            self.1.recv().expect("the test holds the other end");
            self.0.read_front(slots)
        }
        fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault> {
            self.0.write(slot, block)
        }
        fn close(&mut self) {
            self.0.close();
        }
    }

    #[test]
    fn a_call_that_hangs_fails_and_the_next_ones_with_it_until_it_comes_back() {
        let memory = MemoryRegion::new(SlotCount::new(2).unwrap());
        let (go_on, gate) = mpsc::channel();
        let limit = Duration::from_millis(1);
        let mut region = Deadline::new(Hanging(memory.clone(), gate), limit).unwrap();
        let timed_out = |fault| matches!(fault, RegionFault::Timeout(l) if l == limit);
        assert!(timed_out(region.read().unwrap_err()));
        let block = Block([3; Block::BYTES]);
        assert!(timed_out(region.write(SlotIndex(0), &block).unwrap_err()));
        memory.edit(|blocks| assert_eq!(blocks[0], Block::ZERO, "the write was not queued"));
        go_on.send(()).unwrap();
        region.limit = Duration::from_secs(600);
        while region.write(SlotIndex(0), &block).is_err() {
            thread::yield_now();
        }
        go_on.send(()).unwrap();
        assert_eq!(region.read().unwrap().slots()[0], block);
    }

    #[test]
    fn faults_pass_through() {
        let memory = MemoryRegion::new(SlotCount::new(2).unwrap());
        let mut region = Deadline::new(memory.clone(), Duration::from_secs(600)).unwrap();
        memory.fail_writes(Some(|| RegionFault::ReadOnly));
        let mut write = || region.write(SlotIndex(0), &Block::ZERO).unwrap_err();
        assert!(matches!(write(), RegionFault::NotOpen));
        assert!(region.read().is_ok());
        let fault = region.write(SlotIndex(0), &Block::ZERO).unwrap_err();
        assert!(matches!(fault, RegionFault::ReadOnly));
    }
}
