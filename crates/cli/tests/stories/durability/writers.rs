//! Clients that write at random, overlapping one another, and note in a [`History`] what they were
//! promised.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use parda_disk::{Extent, Op};
use parda_nbd::Cookie;

use super::history::{BLOCK, Content, Effect, Flush, History, OpId, content, read_content};
use parda_testkit::Client;

/// Requests that one connection keeps under way.
const DEPTH: usize = 8;

/// Blocks of the largest request: beyond 64 KiB, which is received straight into its buffers.
const MAX_BLOCKS: usize = 48;

enum Sent {
    Change { id: OpId, range: Range<usize>, fua: bool },
    Flush(Flush),
}

/// Writes on one connection until `stop`, or until the connection is gone.
///
/// `rude`: the connection is closed with requests under way in place of waiting for them.
pub(super) fn write(
    history: &Mutex<History>,
    socket: &Path,
    seed: u64,
    stop: &AtomicBool,
    rude: bool,
) {
    let mut random = Rng::with_seed(seed);
    let Ok(mut client) = Client::try_connect(socket, "vm1") else { return };
    let mut connection = lock(history).connect();
    let mut under_way: HashMap<Cookie, Sent> = HashMap::new();
    loop {
        while under_way.len() < DEPTH && !stop.load(Ordering::Relaxed) {
            let Some((cookie, sent)) = send(history, &mut client, &mut random) else { return };
            under_way.insert(cookie, sent);
        }
        if under_way.is_empty() || (rude && stop.load(Ordering::Relaxed)) {
            return;
        }
        let Some((cookie, outcome)) = client.receive() else { return };
        let mut history = lock(history);
        match (under_way.remove(&cookie), outcome) {
            (Some(Sent::Change { id, range, fua }), Ok(_)) => history.complete(range, id, fua),
            // It may or may not have been done, as if there were no reply.
            (Some(Sent::Change { .. }), Err(_)) => {}
            (Some(Sent::Flush(flush)), Ok(_)) => history.flushed(connection, flush),
            (Some(Sent::Flush(_)), Err(_)) => {
                history.flush_failed(&mut connection);
                // Those under way may cover the same loss.
                under_way.retain(|_, sent| !matches!(sent, Sent::Flush(_)));
            }
            // A flush that no promise is taken from any more.
            (None, _) => {}
        }
    }
}

fn send(history: &Mutex<History>, client: &mut Client, random: &mut Rng) -> Option<(Cookie, Sent)> {
    if random.u32(..30) == 0 {
        let flush = lock(history).flush();
        return Some((client.send(Op::Flush, &[])?, Sent::Flush(flush)));
    }
    let blocks = lock(history).blocks();
    let len = if random.u32(..8) == 0 { random.usize(1..=MAX_BLOCKS) } else { random.usize(1..=4) };
    let first = random.usize(..=blocks - len);
    let range = first..first + len;
    let extent = Extent { offset: (first * BLOCK) as u64, len: (len * BLOCK) as u64 };
    let fua = random.u32(..8) == 0;
    let effect = match random.u32(..10) {
        0 => Effect::Zero,
        1 => Effect::Trim,
        _ => Effect::Write,
    };
    let id = lock(history).send(range.clone(), effect);
    let (op, payload) = match effect {
        Effect::Write => {
            let payload = range.clone().flat_map(|block| content(id, block)).collect();
            (Op::Write { extent, fua }, payload)
        }
        Effect::Zero => {
            let no_hole = random.bool();
            (Op::WriteZeroes { extent, fua, no_hole, fast: false }, Vec::new())
        }
        Effect::Trim => (Op::Trim { extent, fua }, Vec::new()),
    };
    let cookie = client.send(op, &payload)?;
    Some((cookie, Sent::Change { id, range, fua }))
}

/// All that the disk holds.
pub(super) fn read_all(socket: &Path, blocks: usize) -> Vec<Content> {
    let mut client = Client::connect(socket, "vm1");
    let len = (blocks * BLOCK) as u32;
    let bytes = client.call(parda_testkit::read(0, len), &[]).unwrap();
    let read = |(block, bytes): (usize, &[u8])| read_content(block, bytes).unwrap();
    bytes.chunks(BLOCK).enumerate().map(read).collect()
}

pub(super) fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
