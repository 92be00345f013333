//! The one number of one queue that bounds what it has in flight.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::device::{Kind, Queue};
use crate::journal::{Holds, How, Original};
use crate::nr_requests::{self, FLOOR, NONE};
use crate::refusal::Why;
use crate::sysfs::{self, SysError};

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A LUN's `device/queue_depth`: exact, from 1, at once, for this LUN alone.
    QueueDepth,
    /// A disk's `queue/nr_requests`: from 4 for each hardware queue; a change waits until the
    /// queue has drained.
    NrRequests,
}

/// No method's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to steer a queue: queue_depth, nr_requests, or auto")]
pub struct NoMethod(String);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::QueueDepth => "queue_depth",
            Method::NrRequests => "nr_requests",
        })
    }
}

impl FromStr for Method {
    type Err = NoMethod;

    fn from_str(name: &str) -> Result<Method, NoMethod> {
        match name {
            "queue_depth" => Ok(Method::QueueDepth),
            "nr_requests" => Ok(Method::NrRequests),
            _ => Err(NoMethod(name.to_owned())),
        }
    }
}

impl Queue {
    /// What is set on it, if nothing else is asked for; an error if that cannot be.
    pub fn method(&self, asked: Option<Method>) -> Result<Method, Why> {
        let own = match self.kind {
            Kind::Scsi { .. } => Method::QueueDepth,
            Kind::BlkMq => Method::NrRequests,
        };
        let method = asked.unwrap_or(own);
        let refuse = |why: String| Err(Why::Method { name: self.name.clone(), why });
        if method == Method::QueueDepth && self.kind == Kind::BlkMq {
            return refuse("is no SCSI disk and has no queue_depth; use nr_requests".to_owned());
        }
        if method == Method::NrRequests {
            let scheduler = self
                .scheduler()
                .map_err(|e| Why::Method { name: self.name.clone(), why: e.to_string() })?;
            if let Some(why) = self.shares_tags().filter(|_| scheduler == NONE) {
                return refuse(why);
            }
        }
        Ok(method)
    }

    /// Why nr_requests must not be written under `none`, if it must not.
    fn shares_tags(&self) -> Option<String> {
        if matches!(self.kind, Kind::Scsi { .. }) {
            return Some(
                "without an elevator, nr_requests is the number of tags of the whole adapter, for \
                 every LUN: use queue_depth, or choose an elevator (queue/scheduler)"
                    .to_owned(),
            );
        }
        let mates = self.tag_mates();
        (!mates.is_empty()).then(|| {
            format!(
                "without an elevator, nr_requests is the number of tags of the whole controller, \
                 for {} as well: choose an elevator (queue/scheduler)",
                mates.join(", ")
            )
        })
    }

    pub(crate) fn file(&self, method: Method) -> PathBuf {
        match method {
            Method::QueueDepth => self.dir.join("device/queue_depth"),
            Method::NrRequests => self.dir.join("queue/nr_requests"),
        }
    }
}

/// The knob of one queue, in its owner's hands.
#[derive(Debug)]
pub(crate) struct Knob {
    pub(crate) queue: Queue,
    pub(crate) method: Method,
    file: PathBuf,
    instance: Option<String>,
    /// What the file held before, under the elevator in force.
    original: u32,
    /// The elevator under which that was.
    scheduler: String,
    /// What the driver's tags were shrunk to, if they were.
    tags: Option<u32>,
    /// What was written last, and what that became.
    set: Option<Set>,
    /// What it was when last looked at.
    seen: u32,
}

/// A value that was written, and what the kernel made of it: not all of them say it when they take
/// less, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    written: u32,
    read: u32,
}

/// What became of a knob since it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is as it was set, or on its way back there after a drop.
    Same,
    /// The kernel lowered it: the array, or the adapter, was full.
    Dropped { from: u32, to: u32 },
    /// Somebody else wrote it.
    Changed { set: u32, found: u32 },
    /// Somebody chose another elevator, which resets it.
    Scheduler { was: String, is: String },
}

impl Knob {
    /// Looks at a queue's knob. Nothing is written.
    pub(crate) fn new(queue: Queue, method: Method) -> Result<Knob, SysError> {
        let file = queue.file(method);
        let original: u32 = sysfs::number(&file)?;
        let scheduler = queue.scheduler()?;
        let instance = queue.instance();
        let tags = None;
        Ok(Knob {
            queue,
            method,
            file,
            instance,
            original,
            scheduler,
            tags,
            set: None,
            seen: original,
        })
    }

    /// Fails where it can never be written: before anything is noted or set.
    pub(crate) fn try_open(&self) -> Result<(), SysError> {
        let open = OpenOptions::new().write(true).open(&self.file);
        open.map(drop).map_err(|source| SysError::Write {
            file: self.file.clone(),
            value: self.original.to_string(),
            source,
        })
    }

    /// What it held before somebody steered it, as the journal has it.
    pub(crate) fn remember(&mut self, originals: &[Original]) {
        let known = originals.iter().find(|original| original.file == self.file);
        self.original = known.and_then(|o| o.value.parse().ok()).unwrap_or(self.original);
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What the file held when last looked at.
    pub(crate) fn now(&self) -> u32 {
        self.seen
    }

    pub(crate) fn scheduler(&self) -> &str {
        &self.scheduler
    }

    /// What belongs in the journal before it is written.
    pub(crate) fn original(&self) -> Original {
        let how = match self.method {
            Method::QueueDepth => How::Write,
            Method::NrRequests => How::NrRequests {
                scheduler: self.scheduler.clone(),
                tags: self.tags.is_some() || self.scheduler == NONE,
            },
        };
        // These keep their queue, and what is set on it, when another file or server is attached.
        let lasting = ["loop", "nbd"].iter().any(|prefix| self.queue.name.starts_with(prefix));
        let only_if = self
            .instance
            .clone()
            .filter(|_| !lasting)
            .map(|value| Holds { file: self.queue.dir.join("diskseq"), value });
        Original { file: self.file.clone(), value: self.original.to_string(), only_if, how }
    }

    /// How many IOs one step of it is.
    fn unit(&self) -> u32 {
        match self.method {
            Method::QueueDepth => 1,
            Method::NrRequests => self.queue.hardware_queues(),
        }
    }

    /// The least and the most IOs in flight that it can express.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        let unit = self.unit();
        let (least, most) = match self.method {
            Method::QueueDepth => (1, self.most_of_lun()),
            Method::NrRequests => (FLOOR, self.original),
        };
        (least.saturating_mul(unit), most.max(least).saturating_mul(unit))
    }

    /// What the adapter can take, and what the block layer lets through.
    fn most_of_lun(&self) -> u32 {
        let Kind::Scsi { adapter, driver } = &self.queue.kind else { return self.original };
        let limit = |name| sysfs::number::<u32>(&adapter.join(name)).ok().filter(|n| *n > 0);
        let mut most = limit("can_queue").unwrap_or(self.original);
        // This driver takes a larger value and sets this one.
        if driver == "virtio_scsi" {
            most = most.min(limit("cmd_per_lun").unwrap_or(most));
        }
        let requests = sysfs::number::<u32>(&self.queue.dir.join("queue/nr_requests"));
        let requests = requests.unwrap_or(u32::MAX);
        most.min(requests.saturating_mul(self.queue.hardware_queues()))
    }

    /// Bounds what is in flight at `depth` or below, as far as it goes. What is in force then.
    pub(crate) fn set(&mut self, depth: u32) -> Result<u32, SysError> {
        let unit = self.unit();
        let (least, most) = self.bounds();
        let value = depth.clamp(least, most) / unit;
        let now: u32 = sysfs::number(&self.file)?;
        let stuck = self.tags.filter(|tags| self.scheduler != NONE && value > *tags);
        if stuck.is_some() {
            nr_requests::regrow(&self.file, value)?;
            self.tags = Some(value);
        }
        if stuck.is_some() || now != value || self.set.is_none_or(|set| set.written != value) {
            sysfs::write(&self.file, &value.to_string())?;
        }
        if self.method == Method::NrRequests && self.scheduler == NONE {
            self.tags = Some(value);
        }
        self.seen = sysfs::number(&self.file)?;
        self.set = Some(Set { written: value, read: self.seen });
        Ok(self.in_force())
    }

    /// The bound as it was when last looked at.
    pub(crate) fn in_force(&self) -> u32 {
        self.seen.saturating_mul(self.unit())
    }

    /// Whether it still belongs to the disk that it was taken of.
    pub(crate) fn gone(&self) -> bool {
        !self.file.exists() || self.queue.instance() != self.instance
    }

    /// Looks again.
    pub(crate) fn look(&mut self) -> Result<Found, SysError> {
        if self.method == Method::NrRequests {
            let is = self.queue.scheduler()?;
            if is != self.scheduler {
                let was = std::mem::replace(&mut self.scheduler, is.clone());
                self.original = sysfs::number(&self.file)?;
                self.seen = self.original;
                return Ok(Found::Scheduler { was, is });
            }
        }
        let (now, before) = (sysfs::number(&self.file)?, self.seen);
        self.seen = now;
        let Some(set) = self.set else { return Ok(Found::Same) };
        let unit = self.unit();
        Ok(match self.method {
            Method::QueueDepth if now < before => Found::Dropped { from: before, to: now },
            // The kernel takes a drop back step by step, up to what was written last.
            Method::QueueDepth if now <= set.written => Found::Same,
            _ if now == set.read => Found::Same,
            _ => Found::Changed { set: set.read * unit, found: now.saturating_mul(unit) },
        })
    }
}
