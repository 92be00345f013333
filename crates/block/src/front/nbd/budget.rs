//! Policy for memory: how much each connection may have. No memory is allocated here.
//!
//! The memory of a volume has three parts.
//!
//! - **Own**: each connection that the volume can have owns the same small part. The connection can
//!   use that part at once, whatever others do.
//! - **Shared**: a connection that needs more takes it from the shared part, as long as its peer
//!   then has no more of it than is left free. That is the dynamic threshold of switches with
//!   shared buffers. One busy peer may have half, and the first few cannot take all, however many
//!   connections they make.
//! - **Reserve**: enough for the largest request. Requests that found too little wait until there
//!   is room in the shared part. The first of them may use the reserve until its request is
//!   complete; the next gets the reserve when it is whole again.
//!
//! Half-received writes that wait for each other's memory cannot deadlock: the first one in the
//! queue always gets all that it needs. It returns the memory when its request is done, or when its
//! client is dropped for lack of progress. Then it is the next one's turn.
//!
//! Peers take turns with the reserve: a peer with hundreds of connections delays another's request
//! by one request. Among the requests of a peer, the first is the one that began to wait first. So
//! nobody starves. Others may find room in the shared part in the meantime.
//!
//! Own parts and reserve are committed from the agent's memory while the volume runs. The shared
//! part is borrowed from the agent in steps, so that idle volumes leave it to others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parda_disk::MAX_PAYLOAD;
use slab::Slab;

use crate::peer::Peer;

/// What a request in flight takes beside its data, in bytes: our records of it.
pub(crate) const REQUEST: usize = 512;

/// Most memory that one request can take, in bytes.
const RESERVE: usize = MAX_PAYLOAD as usize + REQUEST;

/// The least that a connection must own for a volume to start, in bytes: a small request or two.
const LEAST_OWN: usize = 12 << 10;

/// In what steps memory is borrowed from the agent, in bytes.
const STEP: usize = 4 << 20;

/// Memory that all volumes of an agent take their buffers from.
#[derive(Clone, Debug)]
pub struct AgentMemory {
    total: usize,
    /// Least memory that every volume can commit, in bytes.
    part: usize,
    free: Arc<AtomicUsize>,
}

impl Default for AgentMemory {
    /// Memory that one volume needs with its default limits, and as much again.
    fn default() -> Self {
        Self::new(512 << 20, 1)
    }
}

impl AgentMemory {
    /// The least that a volume needs, in bytes: twice its largest request.
    pub const LEAST_OF_A_VOLUME: usize = 2 * MAX_PAYLOAD as usize;

    /// So many bytes, for so many volumes.
    #[must_use]
    pub fn new(total: usize, volumes: usize) -> Self {
        let part = total / volumes.max(1);
        Self { total, part, free: Arc::new(AtomicUsize::new(total)) }
    }

    /// All of it, in bytes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Checks that one of its volumes can have `limit` bytes and up to `connections`.
    ///
    /// # Errors
    /// If not: what is needed.
    pub fn check(&self, limit: usize, connections: usize) -> Result<(), TooLittleMemory> {
        self.own(limit, connections).map(|_| ())
    }

    /// Own part of each connection of such a volume, in bytes. Half of what the reserve leaves is
    /// owned.
    fn own(&self, limit: usize, connections: usize) -> Result<usize, TooLittleMemory> {
        let limit = limit.min(self.part);
        let own = limit.saturating_sub(RESERVE) / 2 / connections.max(1);
        if own < LEAST_OWN {
            let needed = RESERVE + 2 * LEAST_OWN * connections;
            return Err(TooLittleMemory { limit, connections, needed });
        }
        Ok(own / REQUEST * REQUEST)
    }

    /// Takes `bytes` until the loan is dropped. `None` if there are fewer.
    pub(crate) fn lend(&self, bytes: usize) -> Option<Loan> {
        let taken = self.take(bytes);
        let loan = Loan { agent: self.clone(), bytes: taken };
        (taken == bytes).then_some(loan)
    }

    /// Takes up to `bytes`, and returns how many.
    fn take(&self, bytes: usize) -> usize {
        let some = |free: usize| Some(free - free.min(bytes));
        let before = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, some);
        before.unwrap_or_else(|free| free).min(bytes)
    }

    fn give(&self, bytes: usize) {
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }

    fn free(&self) -> usize {
        self.free.load(Ordering::Acquire)
    }
}

/// Memory of the agent that somebody has until this is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    agent: AgentMemory,
    pub(crate) bytes: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.agent.give(self.bytes);
    }
}

/// A volume's memory cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{limit} bytes of memory are too little for {connections} connections: {needed} are needed; \
     raise memory in [limits] and [volume.limits], or lower connections"
)]
pub struct TooLittleMemory {
    /// Bytes that there are for it.
    pub limit: usize,
    /// Connections that the volume can have.
    pub connections: usize,
    /// Bytes that the volume needs at the least.
    pub needed: usize,
}

/// Memory that the connections of one peer have together.
#[derive(Clone, Copy, Debug)]
struct PeerMemory {
    peer: Peer,
    connections: usize,
    /// Bytes of the shared part, spare memory included.
    shared: usize,
    /// The first turn in which it may have the reserve.
    turn: u64,
}

/// Memory of the agent and of a volume that somebody beside the volume's thread has, until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    charged: Arc<AtomicUsize>,
    loan: Loan,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charged.fetch_sub(self.loan.bytes, Ordering::AcqRel);
    }
}

/// Memory of one connection.
#[derive(Clone, Debug, Default)]
struct Account {
    /// Its peer, in `parties`.
    party: usize,
    own: usize,
    shared: usize,
    reserve: usize,
    /// Bytes of the shared part beside its requests, which it could do without.
    spare: usize,
    /// Bytes that it waits for, and whether they complete a request.
    wants: Option<(usize, bool)>,
    /// Number of waits before this one.
    wait: u64,
    /// The place in the queue of its present request, if a part of it has waited.
    ticket: Option<u64>,
}

/// The first connection of the queue that did not find enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Elected {
    key: usize,
    /// Set until the elected connection has all of its request.
    draws: bool,
}

/// The memory of one volume.
pub(crate) struct Budget {
    agent: AgentMemory,
    committed: usize,
    /// Borrowed from the agent for the shared part.
    borrowed: usize,
    /// Bytes that each connection owns.
    own: usize,
    /// Most bytes that may be borrowed.
    shared_limit: usize,
    shared: usize,
    reserve: usize,
    used: usize,
    accounts: Vec<Account>,
    parties: Slab<PeerMemory>,
    by_peer: HashMap<Peer, usize>,
    /// In the order of their tickets.
    waiting: VecDeque<usize>,
    tickets: u64,
    /// The turn of the peer that had the reserve last.
    turn: u64,
    elected: Option<Elected>,
    granted: Vec<usize>,
    waits: u64,
    /// Bytes of the shared part that are not for requests.
    charged: Arc<AtomicUsize>,
}

impl Budget {
    /// A budget of `limit` bytes for up to `connections`.
    pub(crate) fn new(
        agent: &AgentMemory,
        limit: usize,
        connections: usize,
    ) -> Result<Self, TooLittleMemory> {
        let own = agent.own(limit, connections)?;
        let needed = RESERVE + own * connections;
        let committed = agent.take(needed);
        if committed < needed {
            agent.give(committed);
            return Err(TooLittleMemory { limit: committed, connections, needed });
        }
        Ok(Self {
            agent: agent.clone(),
            committed,
            borrowed: 0,
            own,
            shared_limit: limit.saturating_sub(committed),
            shared: 0,
            reserve: RESERVE,
            used: 0,
            accounts: Vec::new(),
            parties: Slab::new(),
            by_peer: HashMap::new(),
            waiting: VecDeque::new(),
            tickets: 0,
            turn: 0,
            elected: None,
            granted: Vec::new(),
            waits: 0,
            charged: Arc::default(),
        })
    }

    /// Memory that each connection owns, in bytes.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Bytes that were granted and not given back.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that others than requests have.
    pub(crate) fn charged(&self) -> usize {
        self.charged.load(Ordering::Acquire)
    }

    /// Takes `bytes` of the shared part for something that is no request and that does not wait. A
    /// quarter of that part is left to requests.
    pub(crate) fn charge(&mut self, bytes: usize) -> Option<Charge> {
        let charged = self.charged() + bytes;
        let left = self.shared_limit - self.shared;
        if charged > left || charged > self.shared_limit / 4 * 3 {
            return None;
        }
        let loan = self.agent.lend(bytes)?;
        self.charged.fetch_add(bytes, Ordering::AcqRel);
        Some(Charge { charged: Arc::clone(&self.charged), loan })
    }

    /// Bytes that the volume has from the agent now.
    pub(crate) fn capacity(&self) -> usize {
        self.committed + self.borrowed
    }

    /// Bytes that it can have at most.
    pub(crate) fn limit(&self) -> usize {
        self.committed + self.shared_limit
    }

    /// Connections that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of waits of connections.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// The connection that holds the reserve while others wait.
    pub(crate) fn holder(&self) -> Option<usize> {
        self.elected.filter(|_| !self.waiting.is_empty()).map(|e| e.key)
    }

    /// The number of the wait that is the longest of those that go on.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|key| self.accounts[*key].wait).min()
    }

    /// Checks the invariants of the volume and of one connection between two calls.
    fn check(&self, key: usize) {
        let account = &self.accounts[key];
        let drawn = self.elected.map_or(0, |elected| self.accounts[elected.key].reserve);
        assert_eq!(self.reserve + drawn, RESERVE, "only the elected connection has of the reserve");
        assert!(self.shared <= self.borrowed && self.borrowed <= self.shared_limit);
        assert!(account.own <= self.own, "a connection has no more than its part");
        let party = self.parties[account.party].shared;
        assert!(account.shared + account.spare <= party && party <= self.shared);
        let own = self.used.checked_sub(self.shared + drawn);
        assert!(own.is_some_and(|own| account.own <= own && own <= self.own * self.accounts.len()));
        debug_assert!(self.waiting.iter().all(|key| self.accounts[*key].wants.is_some()));
    }

    /// Whether a connection's requests have memory that others could use.
    pub(crate) fn has_of_others(&self, key: usize) -> bool {
        let Account { shared, reserve, .. } = self.accounts[key];
        shared + reserve > 0
    }

    /// Opens the account of a new connection.
    pub(crate) fn open(&mut self, key: usize, peer: Peer) {
        if key >= self.accounts.len() {
            self.accounts.resize(key + 1, Account::default());
        }
        let party = *self.by_peer.entry(peer).or_insert_with(|| {
            self.parties.insert(PeerMemory { peer, connections: 0, shared: 0, turn: 0 })
        });
        self.parties[party].connections += 1;
        self.accounts[key] = Account { party, ..Account::default() };
    }

    /// Closes the account of a connection, and takes back all that it has.
    pub(crate) fn close(&mut self, key: usize) {
        self.forget(key);
        self.give_spare(key);
        self.give(key, self.held(key));
        self.check(key);
        let index = self.accounts[key].party;
        let party = &mut self.parties[index];
        party.connections -= 1;
        if party.connections == 0 {
            self.by_peer.remove(&party.peer);
            self.parties.remove(index);
        }
    }

    /// Takes a connection that waits out of the queue.
    pub(crate) fn forget(&mut self, key: usize) {
        if self.accounts[key].wants.take().is_some() {
            self.waiting.retain(|waiting| *waiting != key);
        }
        self.accounts[key].ticket = None;
        self.granted.retain(|granted| *granted != key);
        if let Some(elected) = &mut self.elected
            && elected.key == key
        {
            elected.draws = false;
            self.retire(key);
        }
        self.serve();
        self.check(key);
    }

    /// Memory of a connection, in bytes.
    pub(crate) fn held(&self, key: usize) -> usize {
        let Account { own, shared, reserve, .. } = self.accounts[key];
        own + shared + reserve
    }

    /// Asks for memory that a connection could do without. Only the shared part has it, and it
    /// takes no part in the queue.
    pub(crate) fn take_spare(&mut self, key: usize, bytes: usize) -> bool {
        if !self.waiting.is_empty() || !self.draw(key, bytes) {
            return false;
        }
        self.accounts[key].spare += bytes;
        self.check(key);
        true
    }

    /// Whether a connection has memory that it could do without.
    pub(crate) fn has_spare(&self, key: usize) -> bool {
        self.accounts[key].spare > 0
    }

    /// Takes back all that a connection could do without.
    pub(crate) fn give_spare(&mut self, key: usize) {
        let bytes = std::mem::take(&mut self.accounts[key].spare);
        self.returned(key, bytes);
        self.serve();
        self.check(key);
    }

    /// Asks for `bytes` of a request, of which this is the `last` part. If there is too little the
    /// connection waits, and is named by [`Budget::granted`] once it has them.
    pub(crate) fn ask(&mut self, key: usize, bytes: usize, last: bool) -> bool {
        assert_eq!(self.accounts[key].wants, None, "it waits already");
        let granted = self.try_ask(key, bytes, last);
        self.check(key);
        granted
    }

    fn try_ask(&mut self, key: usize, bytes: usize, last: bool) -> bool {
        let account = &self.accounts[key];
        let from_own = account.own + bytes <= self.own;
        if from_own {
            self.accounts[key].own += bytes;
            self.used += bytes;
        }
        let draws = self.elected.is_some_and(|e| e.key == key && e.draws);
        let has =
            from_own || (draws && self.take_reserve(key, bytes)) || self.take_shared(key, bytes);
        if has {
            self.completed(key, last);
            return true;
        }
        self.queue(key, bytes, last);
        self.accounts[key].wait = self.waits;
        self.waits += 1;
        self.serve();
        let granted = self.accounts[key].wants.is_none();
        if granted {
            self.granted.retain(|other| *other != key);
        }
        granted
    }

    /// Has a connection wait, in the place that its request has.
    fn queue(&mut self, key: usize, bytes: usize, last: bool) {
        let account = &mut self.accounts[key];
        let party = &mut self.parties[account.party];
        // Turns that nobody wanted are not saved up.
        party.turn = party.turn.max(self.turn);
        let ticket = *account.ticket.get_or_insert_with(|| {
            self.tickets += 1;
            self.tickets
        });
        self.accounts[key].wants = Some((bytes, last));
        let before = |other: &usize| self.accounts[*other].ticket < Some(ticket);
        let place = self.waiting.partition_point(before);
        self.waiting.insert(place, key);
    }

    /// After the last part, the connection draws no more of the reserve. Its next request has no
    /// place in the queue.
    fn completed(&mut self, key: usize, last: bool) {
        if !last {
            return;
        }
        self.accounts[key].ticket = None;
        if let Some(elected) = &mut self.elected
            && elected.key == key
            && std::mem::take(&mut elected.draws)
        {
            self.retire(key);
        }
    }

    /// Takes back `bytes` of a connection.
    pub(crate) fn give(&mut self, key: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        assert!(bytes <= self.held(key), "more was given back than was taken");
        let account = &mut self.accounts[key];
        let mut rest = bytes;
        let mut from = |part: &mut usize| {
            let n = rest.min(*part);
            *part -= n;
            rest -= n;
            n
        };
        let reserve = from(&mut account.reserve);
        self.reserve += reserve;
        let shared = from(&mut account.shared);
        from(&mut account.own);
        self.used -= bytes - shared;
        self.returned(key, shared);
        self.retire(key);
        if shared + reserve > 0 {
            // What a connection owns is of no use to those who wait.
            self.serve();
        }
        self.check(key);
    }

    /// Takes back `bytes` of the shared part that a connection had.
    fn returned(&mut self, key: usize, bytes: usize) {
        self.parties[self.accounts[key].party].shared -= bytes;
        self.shared -= bytes;
        self.used -= bytes;
        let unused = self.borrowed - self.shared;
        if bytes > 0 && unused > 2 * STEP {
            self.agent.give(unused - STEP);
            self.borrowed -= unused - STEP;
        }
    }

    /// Grants what can be granted: after memory came back, also to the agent from elsewhere.
    pub(crate) fn serve(&mut self) {
        // A connection that finds room in the shared part need not wait for those before it. Its
        // threshold leaves room for others, and the first has the reserve.
        let mut i = 0;
        while let Some(&key) = self.waiting.get(i) {
            let wants = self.accounts[key].wants.map_or(0, |(bytes, _)| bytes);
            if self.take_shared(key, wants) {
                self.waiting.remove(i);
                self.grant(key);
            } else {
                i += 1;
            }
        }
        while let Some(i) = self.first() {
            let key = self.waiting[i];
            let Some((wants, _)) = self.accounts[key].wants else { break };
            if !self.take_reserve(key, wants) {
                break;
            }
            if self.elected.is_none() {
                self.elected = Some(Elected { key, draws: true });
                let party = &mut self.parties[self.accounts[key].party];
                self.turn = party.turn;
                party.turn += 1;
            }
            self.waiting.remove(i);
            self.grant(key);
        }
    }

    /// Position in the queue of the connection that may have the reserve, if it waits.
    fn first(&self) -> Option<usize> {
        match self.elected {
            Some(Elected { key, draws: true }) => self.waiting.iter().position(|k| *k == key),
            Some(_) => None,
            // The first of several that are equal is found.
            None => (0..self.waiting.len())
                .min_by_key(|i| self.parties[self.accounts[self.waiting[*i]].party].turn),
        }
    }

    fn grant(&mut self, key: usize) {
        self.granted.push(key);
        if let Some((_, last)) = self.accounts[key].wants.take() {
            self.completed(key, last);
        }
    }

    /// Whether there are connections whose wait is over.
    pub(crate) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Connections whose wait is over.
    pub(crate) fn granted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.granted)
    }

    /// Ends an election when all of the reserve is back.
    fn retire(&mut self, key: usize) {
        let done = |e: &mut Elected| e.key == key && !e.draws && self.accounts[key].reserve == 0;
        self.elected.take_if(done);
    }

    /// Bytes from its own part of memory, and bytes to be found elsewhere.
    fn beyond_own(&self, key: usize, bytes: usize) -> (usize, usize) {
        let own = (self.own - self.accounts[key].own).min(bytes);
        (own, bytes - own)
    }

    fn take_shared(&mut self, key: usize, bytes: usize) -> bool {
        let (own, rest) = self.beyond_own(key, bytes);
        if !self.draw(key, rest) {
            return false;
        }
        self.accounts[key].own += own;
        self.accounts[key].shared += rest;
        self.used += own;
        true
    }

    /// Takes `bytes` of the shared part, if the peer then has no more of it than is free.
    fn draw(&mut self, key: usize, bytes: usize) -> bool {
        let free = (self.shared_limit - self.shared)
            .saturating_sub(self.charged())
            .min((self.borrowed - self.shared).saturating_add(self.agent.free()));
        let party = self.accounts[key].party;
        let has = self.parties[party].shared;
        if free.checked_sub(bytes).is_none_or(|left| has + bytes > left) {
            return false;
        }
        let lacks = (self.shared + bytes).saturating_sub(self.borrowed);
        if lacks > 0 {
            let most = self.shared_limit - self.borrowed;
            self.borrowed += self.agent.take(lacks.next_multiple_of(STEP).min(most));
            if self.shared + bytes > self.borrowed {
                // Another volume was faster.
                return false;
            }
        }
        self.parties[party].shared += bytes;
        self.shared += bytes;
        self.used += bytes;
        true
    }

    fn take_reserve(&mut self, key: usize, bytes: usize) -> bool {
        let (own, rest) = self.beyond_own(key, bytes);
        if rest > self.reserve {
            return false;
        }
        self.accounts[key].own += own;
        self.accounts[key].reserve += rest;
        self.reserve -= rest;
        self.used += bytes;
        true
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.agent.give(self.committed + self.borrowed);
    }
}

#[cfg(test)]
mod tests;
