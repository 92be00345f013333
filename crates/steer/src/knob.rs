//! The knob of one queue: the number that bounds its outstanding IOs.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::device::{Queue, QueueKind};
use crate::event::SteeringEvent;
use crate::journal::{Holds, How, Original};
use crate::nr_requests::{self, FLOOR, NONE};
use crate::refusal::SteerRefusalReason;
use crate::sysfs::{self, SysError};

/// Knob to be set.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DepthMethod {
    /// A LUN's `device/queue_depth`: exact, from 1 on, effective at once, for this LUN alone.
    QueueDepth,
    /// A disk's `queue/nr_requests`: from 4 on for each hardware queue. A change waits until the queue
    /// has drained.
    NrRequests,
}

impl Queue {
    /// Knob to set on this queue, `asked` or the default. An error if it cannot be set.
    pub fn method(&self, asked: Option<DepthMethod>) -> Result<DepthMethod, SteerRefusalReason> {
        let own = match self.kind {
            QueueKind::Scsi { .. } => DepthMethod::QueueDepth,
            QueueKind::BlkMq => DepthMethod::NrRequests,
        };
        let method = asked.unwrap_or(own);
        let refuse = |why: String| Err(SteerRefusalReason::Unfit(format!("{}: {why}", self.name)));
        if method == DepthMethod::QueueDepth && self.kind == QueueKind::BlkMq {
            return refuse("is no SCSI disk and has no queue_depth; use nr_requests".to_owned());
        }
        if method == DepthMethod::NrRequests {
            let scheduler = self
                .scheduler()
                .map_err(|e| SteerRefusalReason::Unfit(format!("{}: {e}", self.name)))?;
            if let Some(why) = self.shares_tags().filter(|_| scheduler == NONE) {
                return refuse(why);
            }
        }
        Ok(method)
    }

    /// Reason why nr_requests must not be written under `none`, if there is one.
    fn shares_tags(&self) -> Option<String> {
        if matches!(self.kind, QueueKind::Scsi { .. }) {
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

    pub(crate) fn file(&self, method: DepthMethod) -> PathBuf {
        match method {
            DepthMethod::QueueDepth => self.dir.join("device/queue_depth"),
            DepthMethod::NrRequests => self.dir.join("queue/nr_requests"),
        }
    }
}

/// The knob of one queue, held by its owner.
#[derive(Debug)]
pub(crate) struct Knob {
    pub(crate) queue: Queue,
    pub(crate) method: DepthMethod,
    file: PathBuf,
    instance: Option<String>,
    /// Original value, under [`Self::scheduler`].
    original: u32,
    /// Elevator under which the original value was in force.
    scheduler: String,
    /// Number to which the driver's tags were shrunk, if they were.
    tags: Option<u32>,
    /// Value that was written last, and its effect.
    set: Option<Set>,
    /// Value at the last look.
    seen: u32,
}

/// A value that was written, and the value in force after it. Some drivers accept a value silently
/// and use another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    written: u32,
    read: u32,
}

impl Knob {
    /// Reads a queue's knob. Nothing is written.
    pub(crate) fn new(queue: Queue, method: DepthMethod) -> Result<Knob, SysError> {
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

    /// Fails if the knob can never be written, before anything is noted or set.
    pub(crate) fn try_open(&self) -> Result<(), SysError> {
        let open = OpenOptions::new().write(true).open(&self.file);
        let refused = |source| sysfs::refused(&self.file, &self.original.to_string(), &source);
        open.map(drop).map_err(refused)
    }

    /// Takes the original value from the journal.
    pub(crate) fn remember(&mut self, originals: &[Original]) {
        let known = originals.iter().find(|original| original.file == self.file);
        self.original = known.and_then(|o| o.value.parse().ok()).unwrap_or(self.original);
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Value of the file at the last look.
    pub(crate) fn now(&self) -> u32 {
        self.seen
    }

    pub(crate) fn scheduler(&self) -> &str {
        &self.scheduler
    }

    /// The entry that the journal needs before the knob is written.
    pub(crate) fn original(&self) -> Original {
        let how = match self.method {
            DepthMethod::QueueDepth => How::Write,
            DepthMethod::NrRequests => How::NrRequests {
                scheduler: self.scheduler.clone(),
                tags: self.tags.is_some() || self.scheduler == NONE,
            },
        };
        // These devices keep their queue and its settings when another file or server is attached.
        let lasting = ["loop", "nbd"].iter().any(|prefix| self.queue.name.starts_with(prefix));
        let only_if = self
            .instance
            .clone()
            .filter(|_| !lasting)
            .map(|value| Holds { file: self.queue.dir.join("diskseq"), value });
        Original { only_if, how, ..Original::new(&self.file, self.original.to_string()) }
    }

    /// Number of IOs in one step of the knob.
    fn unit(&self) -> u32 {
        match self.method {
            DepthMethod::QueueDepth => 1,
            DepthMethod::NrRequests => self.queue.hardware_queues(),
        }
    }

    /// Least and largest bound that the knob can express, in outstanding IOs.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        let unit = self.unit();
        let (least, most) = match self.method {
            DepthMethod::QueueDepth => (1, self.most_of_lun()),
            DepthMethod::NrRequests => (FLOOR, self.original),
        };
        (least.saturating_mul(unit), most.max(least).saturating_mul(unit))
    }

    /// Largest depth: the smaller of the adapter's limit and the block layer's.
    fn most_of_lun(&self) -> u32 {
        let QueueKind::Scsi { adapter, driver } = &self.queue.kind else { return self.original };
        let limit = |name| sysfs::number::<u32>(&adapter.join(name)).ok().filter(|n| *n > 0);
        let mut most = limit("can_queue").unwrap_or(self.original);
        // This driver accepts a larger value and sets this one.
        if driver == "virtio_scsi" {
            most = most.min(limit("cmd_per_lun").unwrap_or(most));
        }
        let requests = sysfs::number::<u32>(&self.queue.dir.join("queue/nr_requests"));
        let requests = requests.unwrap_or(u32::MAX);
        most.min(requests.saturating_mul(self.queue.hardware_queues()))
    }

    /// Bounds outstanding IOs at `depth` or below, as closely as the knob allows. Returns the bound in
    /// force.
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
        if self.method == DepthMethod::NrRequests && self.scheduler == NONE {
            self.tags = Some(value);
        }
        self.seen = sysfs::number(&self.file)?;
        self.set = Some(Set { written: value, read: self.seen });
        Ok(self.in_force())
    }

    /// The bound in force at the last look.
    pub(crate) fn in_force(&self) -> u32 {
        self.seen.saturating_mul(self.unit())
    }

    /// Whether the disk was removed or replaced.
    pub(crate) fn gone(&self) -> bool {
        !self.file.exists() || self.queue.instance() != self.instance
    }

    /// Reads the knob and compares it with what was set.
    pub(crate) fn look(&mut self) -> Result<Option<SteeringEvent>, SysError> {
        let path = self.queue.name.clone();
        if self.method == DepthMethod::NrRequests {
            let is = self.queue.scheduler()?;
            if is != self.scheduler {
                let was = std::mem::replace(&mut self.scheduler, is.clone());
                self.original = sysfs::number(&self.file)?;
                self.seen = self.original;
                return Ok(Some(SteeringEvent::Scheduler { path, was, is }));
            }
        }
        let (now, before) = (sysfs::number(&self.file)?, self.seen);
        self.seen = now;
        let Some(set) = self.set else { return Ok(None) };
        let unit = self.unit();
        Ok(match self.method {
            DepthMethod::QueueDepth if now < before => {
                Some(SteeringEvent::Dropped { path, from: before, to: now })
            }
            // After a drop, the kernel raises the depth step by step, up to the value written last.
            DepthMethod::QueueDepth if now <= set.written => None,
            _ if now == set.read => None,
            _ => {
                let (set, found) = (set.read * unit, now.saturating_mul(unit));
                Some(SteeringEvent::Changed { path, set, found })
            }
        })
    }
}
