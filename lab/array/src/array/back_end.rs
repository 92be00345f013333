//! Stations between the caches and the drives: planning, destaging, and the steps of a job.

use core::mem;

use super::job::{Job, Step, Task};
use super::{Array, Scratch, trim};
use crate::drive::Request;
use crate::io::{ArrayIo, IoKind};
use crate::layout::{Layout, Piece, Range, split};
use crate::raid::Part;
use crate::units::{Bytes, Nanos};

/// The pieces of a LUN's IO by stripe, in order.
fn by_stripe(layout: &Layout, stripe: Bytes, io: ArrayIo) -> impl Iterator<Item = Piece> {
    layout.pieces(&io).flat_map(move |range| split(range, stripe))
}

impl Array {
    pub(super) fn read(&mut self, at: Nanos, key: usize, io: ArrayIo) {
        let prefetch = self.prefetch.as_mut();
        let fetched = prefetch.and_then(|p| p.read(io.lun, io.offset, io.len, key));
        let size = self.layout.size(io.lun);
        while let Some(fetch) = self.prefetch.as_mut().and_then(|p| p.next_fetch(io.lun, size)) {
            let io = ArrayIo { offset: fetch.offset, len: fetch.len, ..io };
            self.start(at, Task::Fetch { id: fetch.id, io }, Step::Read);
        }
        match fetched {
            None => self.read_kept(at, key, io),
            Some(0) => self.transfer(at, key, io),
            Some(missing) => self.jobs[key].parts_left = missing,
        }
    }

    /// Serves a read that prefetch does not cover: from the read cache if it holds the whole range.
    fn read_kept(&mut self, at: Nanos, key: usize, io: ArrayIo) {
        if self.read_cache.as_mut().is_some_and(|cache| cache.holds(&io)) {
            self.transfer(at, key, io);
        } else {
            self.begin_step(at, key);
        }
    }

    /// A write's data has reached the controller.
    pub(super) fn write(&mut self, at: Nanos, key: usize) {
        let Task::Io { io, .. } = self.jobs[key].task else { return };
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.reset(io.lun);
        }
        if let Some(cache) = &mut self.read_cache {
            cache.put(&io);
        }
        // Queues behind the writes that already wait for room: first come, first served.
        if !self.no_room.is_empty() || !self.try_cache(at, key) {
            self.no_room.push_back(key);
        }
        self.destage(at);
    }

    /// Starts a trim whose data has reached the controller. Its map entries bypass the write cache:
    /// they must be stable before the space is reused.
    pub(super) fn trim(&mut self, at: Nanos, key: usize, io: ArrayIo) {
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.reset(io.lun);
        }
        self.begin_step(at, key);
    }

    /// Puts a write into the cache. A write that is too large, or that meets a disabled cache, goes
    /// directly to the drives. False if the write must wait for room.
    fn try_cache(&mut self, at: Nanos, key: usize) -> bool {
        let Task::Io { io, .. } = self.jobs[key].task else { return true };
        let Some(cache) = self.write_cache.as_mut().filter(|cache| cache.enabled) else {
            self.begin_step(at, key);
            return true;
        };
        let stripe = self.raid.stripe();
        let pieces = || by_stripe(&self.layout, stripe, io);
        let pages = pieces().map(|piece| cache.needs(piece)).sum();
        if !cache.could_hold(pages) {
            self.begin_step(at, key);
            return true;
        }
        if !cache.has_room(pages) {
            return false;
        }
        pieces().for_each(|piece| cache.write(piece));
        if let Some(params) = &self.params.controller.write_cache {
            self.mirror.hold(at, key, params.mirror);
        }
        true
    }

    /// Admits waiting writes while there is room. Then starts as many destages as the cache's water
    /// marks call for.
    pub(super) fn destage(&mut self, at: Nanos) {
        while let Some(key) = self.no_room.pop_front() {
            if !self.try_cache(at, key) {
                self.no_room.push_front(key);
                break;
            }
        }
        let pressed = !self.no_room.is_empty();
        while let Some(line) = self.write_cache.as_mut().and_then(|c| c.next_destage(pressed)) {
            self.start(at, Task::Destage(line), Step::ReadBeforeWrite);
        }
    }

    pub(super) fn start(&mut self, at: Nanos, task: Task, step: Step) {
        let key = self.jobs.insert(Job { task, step, parts_left: 0 });
        self.begin_step(at, key);
    }

    /// Sends a job's next step to the drives.
    pub(super) fn begin_step(&mut self, at: Nanos, key: usize) {
        self.plan(key);
        let parts = mem::take(&mut self.scratch.parts);
        self.jobs[key].parts_left = parts.len() as u32;
        parts.iter().for_each(|part| self.send(at, key, part));
        let nothing_to_do = parts.is_empty();
        self.scratch.parts = parts;
        if nothing_to_do {
            self.step_done(at, key);
        }
    }

    /// Collects the drive requests of a job's step in the scratch buffer.
    fn plan(&mut self, key: usize) {
        let Array { raid, layout, write_cache, jobs, scratch: Scratch { parts, runs, .. }, .. } =
            self;
        let Job { task, step, .. } = &jobs[key];
        parts.clear();
        match (*task, *step) {
            (Task::Io { io, .. } | Task::Fetch { io, .. }, Step::Read) => {
                let cache = write_cache.as_ref().filter(|cache| !cache.is_empty());
                let Some(cache) = cache else {
                    return layout.pieces(&io).for_each(|range| raid.read(range, parts));
                };
                let stripe = raid.stripe();
                let missing = by_stripe(layout, stripe, io).filter(|piece| !cache.holds(*piece));
                missing.for_each(|piece| {
                    let start = Bytes(piece.unit * stripe.0 + piece.within.0);
                    raid.read(Range { start, len: piece.len }, parts);
                });
            }
            (Task::Io { io, .. } | Task::Fetch { io, .. }, step) => {
                let written = trim::writes(io);
                written.flat_map(|io| by_stripe(layout, raid.stripe(), io)).for_each(|piece| {
                    let run = [Range { start: piece.within, len: piece.len }];
                    if step == Step::ReadBeforeWrite {
                        raid.read_before_write(piece.unit, &run, parts);
                    } else {
                        raid.write(piece.unit, &run, parts);
                    }
                });
            }
            (Task::Destage(line), step) => {
                runs.clear();
                let Some(cache) = write_cache else { return };
                let stripe = cache.destage(line, runs);
                if step == Step::ReadBeforeWrite {
                    raid.read_before_write(stripe, runs, parts);
                } else {
                    raid.write(stripe, runs, parts);
                }
            }
            (Task::Rebuild { offset, len }, step) => {
                let Some(missing) = raid.missing else { return };
                if step == Step::Read {
                    raid.read_lost(missing.drive, offset, len, parts);
                } else {
                    parts.push(Part { drive: missing.drive, kind: IoKind::Write, offset, len });
                }
            }
        }
    }

    /// Sends one part of a job to its drive.
    pub(super) fn send(&mut self, at: Nanos, key: usize, part: &Part) {
        let Part { drive, kind, offset, len } = *part;
        let request = Request { owner: key, kind, offset, len };
        let [one, other] = self.drives[drive as usize].arrive(self.wakes.to_drives(at), request);
        self.wakes.add(one, drive);
        self.wakes.add(other, drive);
    }

    pub(super) fn part_done(&mut self, at: Nanos, key: usize) {
        let job = &mut self.jobs[key];
        job.parts_left -= 1;
        if job.parts_left == 0 {
            self.step_done(at, key);
        }
    }

    fn step_done(&mut self, at: Nanos, key: usize) {
        let job = &mut self.jobs[key];
        match (job.step, job.task) {
            (Step::Read, Task::Io { io, .. }) => {
                if let Some(cache) = &mut self.read_cache {
                    cache.put(&io);
                }
                self.transfer(at, key, io);
            }
            (Step::Read, Task::Fetch { id, .. }) => {
                self.jobs.remove(key);
                let mut readers = mem::take(&mut self.scratch.readers);
                if let Some(prefetch) = &mut self.prefetch {
                    prefetch.arrived(id, &mut readers);
                }
                readers.drain(..).for_each(|reader| self.part_done(at, reader));
                self.scratch.readers = readers;
            }
            (Step::Read | Step::ReadBeforeWrite, _) => {
                job.step = Step::Write;
                self.begin_step(at, key);
            }
            (Step::Write, Task::Destage(line)) => {
                self.jobs.remove(key);
                if let Some(cache) = &mut self.write_cache {
                    cache.destaged(line);
                }
                self.destage(at);
            }
            (Step::Write, Task::Rebuild { offset, len }) => {
                self.jobs.remove(key);
                self.rebuilt(at, Bytes(offset.0 + len.0));
            }
            (Step::Write, Task::Io { .. } | Task::Fetch { .. }) => self.complete(at, key),
        }
    }
}
