//! Runs a load: connects, warms up, measures, and waits for outstanding requests.

use std::fmt::Display;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parda_address::Uri;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use crate::buffered_socket::BufferedSocket;
use crate::client::{Client, Data};
use crate::cpu::{self, Servers};
use crate::measured::LoadMeasured;
use crate::pattern::Pattern;
use crate::plan::{BenchPlan, PlanError};

/// Reason why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The load does not fit the export.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A server cannot be reached, refused the handshake, or failed under load; or the system did. As a sentence.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

fn no_cpu_time(error: io::Error) -> BenchError {
    BenchError::Failed(format!("cannot measure the server's CPU time: {error}"))
}

/// Runs a load and returns what was measured.
///
/// # Errors
/// A server cannot be reached, the load does not fit its export, or the server failed a request.
pub fn run(plan: &BenchPlan) -> Result<LoadMeasured, BenchError> {
    let servers = Servers::of(&plan.server).map_err(no_cpu_time)?;
    let data = Data::new(plan.block, plan.seed);
    let mut groups: Vec<Vec<(&Uri, Client<'_>)>> = Vec::new();
    groups.resize_with(plan.threads.max(1) as usize, Vec::new);
    let count = plan.connections * plan.uris.len() as u32;
    for index in 0..count {
        let uri = &plan.uris[(index / plan.connections) as usize];
        let (socket, agreed) =
            BufferedSocket::open(uri, plan.patience).map_err(|e| failure(uri, &e))?;
        let range = plan.range_of(uri, &agreed)?;
        let at = (index, count);
        let pattern = Pattern::new(plan.operation, &range, plan.block, at, plan.seed);
        let client = Client::new(socket, agreed.framing, pattern, plan.depth);
        let threads = groups.len();
        groups[index as usize % threads].push((uri, client));
    }
    groups.retain(|group| !group.is_empty());

    let start = Barrier::new(groups.len() + 1);
    let failed = AtomicBool::new(false);
    let begin = Instant::now() + plan.warmup;
    thread::scope(|scope| {
        let threads: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let (start, failed, data) = (&start, &failed, &data);
                scope.spawn(move || {
                    start.wait();
                    let driver = Driver {
                        plan,
                        begin,
                        data,
                        failed,
                        clients: group,
                        measured: LoadMeasured::new(plan.block),
                        cpu: None,
                        ended: false,
                    };
                    let outcome = driver.run();
                    if outcome.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    outcome
                })
            })
            .collect();
        start.wait();
        let watched = (|| {
            sleep_until(begin, &failed);
            let before = servers.used_since(None)?;
            sleep_until(begin + plan.time, &failed);
            servers.used_since(before)
        })();
        let mut measured = LoadMeasured::new(plan.block);
        measured.elapsed = plan.time;
        // The first failure is the cause. Later ones may be its consequences.
        for thread in threads {
            measured.add(&thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        measured.server_cpu = watched.map_err(no_cpu_time)?;
        Ok(measured)
    })
}

/// Sleeps until `at`, or until a thread has failed.
fn sleep_until(at: Instant, failed: &AtomicBool) {
    while !failed.load(Ordering::Relaxed) {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// One thread, which drives its connections.
struct Driver<'a> {
    plan: &'a BenchPlan,
    /// Beginning of the measured time.
    begin: Instant,
    data: &'a Data,
    failed: &'a AtomicBool,
    clients: Vec<(&'a Uri, Client<'a>)>,
    measured: LoadMeasured,
    /// CPU time of this thread when the measured time began.
    cpu: Option<Duration>,
    ended: bool,
}

impl<'a> Driver<'a> {
    fn run(mut self) -> Result<LoadMeasured, BenchError> {
        for index in 0..self.clients.len() {
            self.ask(index)?;
        }
        // A single connection needs no epoll.
        if self.clients.len() == 1 {
            self.run_one()?
        } else {
            self.run_all()?
        }
        for (_, client) in &mut self.clients {
            client.socket.disconnect();
        }
        Ok(self.measured)
    }

    fn run_one(&mut self) -> Result<(), BenchError> {
        while !self.is_over() {
            let (uri, client) = &mut self.clients[0];
            if !client.outbox.is_empty() {
                // The server does not read until its replies are taken.
                use rustix::event::{PollFd, PollFlags, poll};
                let flags = PollFlags::IN | PollFlags::OUT;
                let mut fds = [PollFd::new(client.socket.fd(), flags)];
                let limit = Timespec::try_from(self.plan.patience).ok();
                if poll(&mut fds, limit.as_ref()).map_err(io::Error::from)? == 0 {
                    return Err(failure(uri, &silent(self.plan.patience)));
                }
                let ready = fds[0].revents();
                self.ready(0, ready.intersects(!PollFlags::OUT))?;
            } else if client.socket.receive(true).map_err(|e| failure(uri, &lost(&e)))? {
                self.received(0)?;
            } else {
                return Err(failure(uri, &silent(self.plan.patience)));
            }
        }
        Ok(())
    }

    fn run_all(&mut self) -> Result<(), BenchError> {
        let system = |e: rustix::io::Errno| BenchError::from(io::Error::from(e));
        let set = epoll::create(CreateFlags::CLOEXEC).map_err(system)?;
        let mut waits_to_send = vec![false; self.clients.len()];
        for (index, (_, client)) in self.clients.iter().enumerate() {
            let data = EventData::new_u64(index as u64);
            epoll::add(&set, client.socket.fd(), data, EventFlags::IN).map_err(system)?;
        }
        let mut events: Vec<Event> = Vec::with_capacity(self.clients.len());
        let limit = Timespec::try_from(self.plan.patience).ok();
        while !self.is_over() {
            for (index, (_, client)) in self.clients.iter().enumerate() {
                let waits = !client.outbox.is_empty();
                if waits != waits_to_send[index] {
                    let flags =
                        if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
                    let data = EventData::new_u64(index as u64);
                    epoll::modify(&set, client.socket.fd(), data, flags).map_err(system)?;
                    waits_to_send[index] = waits;
                }
            }
            events.clear();
            match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), limit.as_ref()) {
                Ok(0) => {
                    let uri = self.clients[0].0;
                    return Err(failure(uri, &silent(self.plan.patience)));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system(error)),
            }
            for event in &events {
                let flags = event.flags;
                self.ready(event.data.u64() as usize, flags.intersects(!EventFlags::OUT))?;
            }
        }
        Ok(())
    }

    /// Handles a connection that is writable or, with `receive`, readable.
    fn ready(&mut self, index: usize, receive: bool) -> Result<(), BenchError> {
        let (uri, client) = &mut self.clients[index];
        if receive && client.socket.receive(false).map_err(|e| failure(uri, &lost(&e)))? {
            return self.received(index);
        }
        self.ask(index)
    }

    /// Takes the received replies, and queues requests in their place.
    fn received(&mut self, index: usize) -> Result<(), BenchError> {
        let now = Instant::now();
        self.tell_time(now);
        let measured = (self.cpu.is_some() && !self.ended).then_some(&mut self.measured);
        let (uri, client) = &mut self.clients[index];
        client.take_replies(now, measured).map_err(|e| failure(uri, &e))?;
        self.ask(index)
    }

    fn ask(&mut self, index: usize) -> Result<(), BenchError> {
        let (uri, client) = &mut self.clients[index];
        if !self.ended && !self.failed.load(Ordering::Relaxed) {
            client.fill(self.data);
        }
        let Client { socket, outbox, .. } = client;
        socket.send(outbox).map_err(|e| failure(uri, &lost(&e)))
    }

    fn tell_time(&mut self, now: Instant) {
        if self.cpu.is_none() && now >= self.begin {
            self.cpu = Some(cpu::of_this_thread());
        }
        if !self.ended && now >= self.begin + self.plan.time {
            self.ended = true;
            let before = self.cpu.unwrap_or_default();
            self.measured.client_cpu = cpu::of_this_thread() - before;
        }
    }

    /// Whether no request is outstanding and none will be queued.
    fn is_over(&self) -> bool {
        (self.ended || self.failed.load(Ordering::Relaxed))
            && self.clients.iter().all(|(_, client)| client.is_idle())
    }
}

fn failure(uri: &Uri, error: &dyn Display) -> BenchError {
    BenchError::Failed(format!("{}: {error}", uri.address))
}

fn silent(patience: Duration) -> String {
    format!("the server has not answered for {patience:?}")
}

/// The error of a connection that fails.
fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "the server closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}
