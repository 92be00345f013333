//! The thread that calls etcd. The control thread gives it orders to read and write, and waits for a bounded time. A late
//! answer is taken in the next period.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parda_etcd::{Entry, EtcdClient, EtcdError, EtcdFault, Lease, Traffic};

use crate::exchange::ExchangeError;

/// Most keys of one volume that are read.
pub(super) const MOST_KEYS: usize = 8192;

/// Part of a lease's time after which it is renewed.
const RENEWED_AFTER: u32 = 3;

/// A key to be written.
#[derive(Debug, Default)]
pub(super) struct Write {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Time of the key's lease.
    pub(super) lease: Duration,
}

/// State that the two threads share.
#[derive(Debug, Default)]
struct Orders {
    read: Job<(), Vec<Entry>>,
    write: Job<Write, ()>,
    reload: bool,
    over: bool,
    endpoint: String,
    traffic: Traffic,
    leases: u64,
}

/// An order and its answer. A later order replaces an order that has not begun.
#[derive(Debug, Default)]
struct Job<Order, Answer> {
    order: Option<Order>,
    given: u64,
    answer: Option<Result<Answer, ExchangeError>>,
    answered: u64,
    /// Fault of the last order that ended, if it had one. While the next order takes too long, this is the likely reason.
    fault: Option<ExchangeError>,
}

impl<Order, Answer> Job<Order, Answer> {
    fn give(&mut self, order: Order) {
        self.order = Some(order);
        self.given += 1;
    }

    /// The order, with its number.
    fn begin(&mut self) -> Option<(u64, Order)> {
        self.order.take().map(|order| (self.given, order))
    }

    fn end(&mut self, number: u64, answer: Result<Answer, EtcdError>) {
        let failed = |error| ExchangeError::new(format!("exchange {error}"));
        let answer = answer.map_err(failed);
        self.fault = answer.as_ref().err().cloned();
        self.answer = Some(answer);
        self.answered = number;
    }

    /// The last answer that was not taken yet, to any order.
    fn take(&mut self, waited: Duration) -> Result<Answer, ExchangeError> {
        match (self.answer.take(), &self.fault) {
            (Some(answer), _) => answer,
            (None, Some(fault)) => Err(fault.clone()),
            (None, None) => {
                Err(ExchangeError::new(format!("exchange etcd: no answer within {waited:?}")))
            }
        }
    }
}

/// The control thread's handle of the thread. The thread ends by itself after the handle is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    /// Signals an order, or the end.
    ordered: Condvar,
    /// Signals an answer to the control thread.
    answered: Condvar,
}

impl Shared {
    /// A panic of the other thread leaves plain data behind.
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    pub(super) fn start(
        client: EtcdClient,
        prefix: Vec<u8>,
        attempt: Duration,
    ) -> std::io::Result<Worker> {
        let shared = Arc::new(Shared::default());
        shared.lock().endpoint = client.endpoint();
        let caller =
            Caller { client, prefix, attempt, lease: None, leases: 0, shared: Arc::clone(&shared) };
        // Never joined: a call that is under way ends within its limit, and the thread with it.
        let thread = std::thread::Builder::new()
            .name("parda-etcd".to_owned())
            .spawn(move || caller.run())?;
        Ok(Worker { shared, thread })
    }

    /// Reads all keys of the volume.
    pub(super) fn read(&self, wait: Duration) -> Result<Vec<Entry>, ExchangeError> {
        self.shared.lock().read.give(());
        self.await_answer(wait, |orders| orders.read.answered == orders.read.given)?.read.take(wait)
    }

    /// Writes the key of this host.
    pub(super) fn write(&self, write: Write, wait: Duration) -> Result<(), ExchangeError> {
        self.shared.lock().write.give(write);
        self.await_answer(wait, |orders| orders.write.answered == orders.write.given)?
            .write
            .take(wait)
    }

    fn await_answer(
        &self,
        wait: Duration,
        done: impl Fn(&Orders) -> bool,
    ) -> Result<MutexGuard<'_, Orders>, ExchangeError> {
        if self.thread.is_finished() {
            return Err(ExchangeError::new("exchange etcd: its thread has ended"));
        }
        self.shared.ordered.notify_one();
        let (mut orders, until) = (self.shared.lock(), parda_awake::Instant::now() + wait);
        loop {
            let left = until.saturating_duration_since(parda_awake::Instant::now());
            if done(&orders) || left.is_zero() {
                return Ok(orders);
            }
            let waited = self.shared.answered.wait_timeout(orders, left);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes the next call read certificates and password again.
    pub(super) fn reload(&self) {
        self.shared.lock().reload = true;
        self.shared.ordered.notify_one();
    }

    /// The endpoint that is asked, traffic and the number of leases.
    pub(super) fn standing(&self) -> (String, Traffic, u64) {
        let orders = self.shared.lock();
        (orders.endpoint.clone(), orders.traffic, orders.leases)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.ordered.notify_one();
    }
}

/// The thread's own state.
struct Caller {
    client: EtcdClient,
    prefix: Vec<u8>,
    attempt: Duration,
    lease: Option<HeldLease>,
    leases: u64,
    shared: Arc<Shared>,
}

/// The lease of this host's key.
struct HeldLease {
    lease: Lease,
    /// Time that was asked for; etcd may grant a longer one.
    asked: Duration,
    renewed: Instant,
}

impl Caller {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let idle =
                |orders: &mut Orders| orders.read.order.is_none() && orders.write.order.is_none();
            let waited = shared
                .ordered
                .wait_while(shared.lock(), |orders| idle(orders) && !orders.reload && !orders.over);
            let mut orders = waited.unwrap_or_else(PoisonError::into_inner);
            // Orders from before the end are carried out: one may be the goodbye.
            if orders.over && idle(&mut orders) {
                return;
            }
            if std::mem::take(&mut orders.reload) {
                self.client.reload();
            }
            let (read, write) = (orders.read.begin(), orders.write.begin());
            drop(orders);
            if let Some((number, ())) = read {
                let found = self.client.range(&self.prefix, MOST_KEYS, self.attempt);
                self.answer(|orders| orders.read.end(number, found));
            }
            if let Some((number, write)) = write {
                let written = self.write(&write);
                self.answer(|orders| orders.write.end(number, written));
                self.renew();
            }
        }
    }

    fn answer(&self, answer: impl FnOnce(&mut Orders)) {
        let mut orders = self.shared.lock();
        answer(&mut orders);
        orders.endpoint = self.client.endpoint();
        orders.traffic = self.client.traffic();
        orders.leases = self.leases;
        drop(orders);
        self.shared.answered.notify_all();
    }

    fn write(&mut self, write: &Write) -> Result<(), EtcdError> {
        match self.put(write) {
            // The lease ran out, or all of etcd's data was replaced.
            Err(EtcdError { fault: EtcdFault::NoLease, .. }) => {
                self.lease = None;
                self.put(write)
            }
            written => written,
        }
    }

    fn put(&mut self, write: &Write) -> Result<(), EtcdError> {
        let held = match self.lease.take().filter(|held| held.asked >= write.lease) {
            Some(held) => held,
            None => {
                let lease = self.client.grant(write.lease, self.attempt)?;
                self.leases += 1;
                HeldLease { lease, asked: write.lease, renewed: Instant::now() }
            }
        };
        let put = self.client.put(&write.key, &write.value, &held.lease, self.attempt);
        self.lease = Some(held);
        put
    }

    /// Renews the lease when it is time. This is only called after a write, so that the key of a host that no longer ticks
    /// is removed.
    fn renew(&mut self) {
        let Some(held) = &mut self.lease else { return };
        let begun = Instant::now();
        if begun - held.renewed < held.lease.ttl / RENEWED_AFTER {
            return;
        }
        match self.client.renew(&held.lease, self.attempt) {
            Ok(()) => held.renewed = begun,
            Err(EtcdError { fault: EtcdFault::NoLease, .. }) => self.lease = None,
            // The next write shows whether the lease lasted.
            Err(_) => {}
        }
    }
}
