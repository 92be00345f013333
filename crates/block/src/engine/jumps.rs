//! The engine with an NBD server as backend and a clock that jumps. A stopped thread finds answers that came meanwhile.

#[path = "../../tests/block/common/hostile.rs"]
#[expect(dead_code, reason = "what the tests of whole volumes need besides")]
mod hostile;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parda_control::{Instant, Span};
use parda_disk::{Errno, Extent, Op};
use parda_nbd::wire::command;

use self::hostile::{Hostile, Peer, export};
use super::Engine;
use super::tests::{engine, guest};
use crate::backend::{BackendConfig, NbdOptions};
use crate::client::Body;

const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 16;
const SECOND: Span = Span::from_millis(1000);

/// Serves reads of zeroes, and counts the requests that it has answered.
fn serve(peer: &mut Peer, answered: &AtomicU64) -> Option<()> {
    loop {
        let asked = peer.next()?;
        let data = match asked.header.command {
            command::READ => vec![0; asked.header.extent.len as usize],
            _ => Vec::new(),
        };
        peer.answer(&asked.header, &data)?;
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

struct Stand {
    engine: Engine,
    hostile: Hostile,
    client: usize,
    now: Instant,
    /// Requests that the client has sent.
    asked: u64,
}

impl Stand {
    fn new(dir: &Path, behave: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static) -> Stand {
        let hostile = Hostile::start(&dir.join("far"), export(BLOCK * BLOCKS), behave);
        let limit = Duration::from_secs(1);
        let options = NbdOptions { connections: 1, hold: limit, timeout: limit };
        let mut engine = engine(BackendConfig::Nbd { uri: hostile.uri(), options });
        let client = engine.fronts.local.connect(0);
        Stand { engine, hostile, client, now: Instant(0), asked: 0 }
    }

    fn ask(&mut self, op: Op) {
        let len = op.extent().len as usize;
        let buffer = matches!(op, Op::Write { .. }).then(|| guest(7, len, 0));
        self.engine.fronts.local.ask(self.client, self.asked, op, buffer);
        self.asked += 1;
    }

    /// A turn, when something has happened or a millisecond is over. The clock of the test stands still.
    fn turn(&mut self) {
        self.engine.turn(self.now);
        self.engine.work.io.ring.wait(Some(Duration::from_millis(1))).unwrap();
    }

    /// Results of the requests, in any order.
    fn until_answered(&mut self) -> Vec<Result<(), Errno>> {
        let mut ended = Vec::new();
        for turns in 0.. {
            if self.engine.work.requests.is_empty() && !ended.is_empty() {
                break;
            }
            assert!(turns < 20_000, "the server was given up");
            self.turn();
            let replies = self.engine.fronts.local.replies(self.client);
            ended.extend(replies.into_iter().map(|(_, result)| match result {
                Ok(Body::Done | Body::Data(_) | Body::Status(_)) => Ok(()),
                Err(failure) => Err(failure.errno),
            }));
        }
        ended
    }
}

#[test]
fn answers_that_came_while_the_thread_was_stopped_are_read_before_the_server_is_judged() {
    let mut random = fastrand::Rng::with_seed(48);
    for point in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let answered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&answered);
        let mut stand = Stand::new(dir.path(), move |peer| serve(peer, &counter));
        for _ in 0..random.u64(1..6) {
            let extent = Extent { offset: BLOCK * random.u64(..BLOCKS), len: BLOCK };
            stand.ask(if random.bool() {
                Op::Write { extent, fua: false }
            } else {
                Op::Read(extent)
            });
        }
        if random.bool() {
            stand.ask(Op::Flush);
        }
        // All that was asked for is sent. The thread may have seen some of the answers, or none.
        stand.engine.turn(stand.now);
        let seen = random.u64(..4);
        for turns in 0.. {
            // The answers fit into the socket.
            if answered.load(Ordering::SeqCst) == stand.asked {
                break;
            }
            if turns < seen || answered.load(Ordering::SeqCst) == 0 {
                stand.turn();
            } else {
                stand.engine.work.io.ring.reap().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        }
        stand.now = stand.now + Span(SECOND.0 * random.u64(1..=120));
        let ended = stand.until_answered();
        assert!(ended.iter().all(Result::is_ok), "point {point}: {ended:?}");
        // Unflushed writes are not lost with a connection that nothing was wrong with.
        stand.ask(Op::Flush);
        assert_eq!(stand.until_answered(), [Ok(())], "point {point}");
        assert_eq!(stand.hostile.connections(), 1, "point {point}");
    }
}

#[test]
fn a_server_that_had_not_answered_when_its_time_was_over_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let mut stand = Stand::new(dir.path(), |peer| {
        while peer.next().is_some() {}
        None
    });
    stand.ask(Op::Read(Extent { offset: 0, len: BLOCK }));
    (0..20).for_each(|_| stand.turn());
    assert!(stand.engine.fronts.local.replies(stand.client).is_empty());
    stand.now = stand.now + SECOND;
    while stand.hostile.connections() == 1 {
        stand.turn();
    }
    stand.now = stand.now + SECOND;
    (0..20).for_each(|_| stand.turn());
    stand.now = stand.now + SECOND;
    assert_eq!(stand.until_answered(), [Err(Errno::Io)]);
}
