use super::*;
use parda_disk::Extent;

const WRITE: Op = Op::Write { extent: Extent { offset: 0, len: 4096 }, fua: false };
const FUA: Op = Op::Write { extent: Extent { offset: 0, len: 4096 }, fua: true };

/// A disk whose backend reports to one sync only, and its clients.
#[derive(Default)]
struct Disk {
    losses: Losses<&'static str>,
    conns: Vec<Option<Witness>>,
}

fn eio() -> Result<(), Failure> {
    Err(Failure::new(Errno::Io, "lost"))
}

impl Disk {
    fn connect(&mut self) -> usize {
        self.conns.push(None);
        self.losses.seen(self.conns.last_mut().unwrap(), 0);
        self.conns.len() - 1
    }

    fn write(&mut self, conn: usize) {
        self.losses.wrote(&mut self.conns[conn]);
    }

    fn leave(&mut self, conn: usize) {
        self.losses.left(self.conns[conn].take().unwrap());
    }

    /// A sync with nothing beside it; returns whether the client is told that it succeeded.
    fn sync(&mut self, conn: usize, op: Op, outcome: Result<(), Failure>) -> bool {
        let id = self.losses.begin();
        self.losses.end(id, op, &outcome, true, "alone");
        let (_, failed) = self.losses.ready().expect("nothing to wait for");
        self.losses.tell(&mut self.conns[conn], op, outcome, failed).is_ok()
    }

    fn flush(&mut self, conn: usize) -> bool {
        self.sync(conn, Op::Flush, Ok(()))
    }
}

#[test]
fn a_failed_flush_is_told_to_each_connection_once() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    assert!(!disk.sync(one, Op::Flush, eio()));
    assert!(disk.flush(one), "it has been told by its own flush");
    assert!(!disk.flush(two));
    assert!(disk.flush(two));
    let late = disk.connect();
    assert!(disk.flush(late), "everybody who was there was told");
}

#[test]
fn a_failed_write_with_fua_is_told_to_the_next_flush_of_all_and_of_its_own() {
    for op in [
        FUA,
        Op::Trim { extent: Extent { offset: 0, len: 1 }, fua: true },
        Op::WriteZeroes {
            extent: Extent { offset: 0, len: 1 },
            fua: true,
            no_hole: false,
            fast: false,
        },
    ] {
        let mut disk = Disk::default();
        let (one, two) = (disk.connect(), disk.connect());
        assert!(!disk.sync(one, op, eio()));
        assert!(!disk.flush(two));
        assert!(!disk.flush(one), "the data of its earlier writes may be lost too");
        assert!(disk.flush(one) && disk.flush(two));
    }
}

#[test]
fn a_request_with_fua_that_was_refused_has_lost_nothing() {
    let mut disk = Disk::default();
    let conn = disk.connect();
    let refused = Err(Failure::new(Errno::Inval, "unaligned"));
    assert!(!disk.sync(conn, FUA, refused));
    assert!(disk.flush(conn));
}

#[test]
fn who_takes_the_place_of_one_that_went_untold_is_told() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    assert!(!disk.sync(one, Op::Flush, eio()));
    disk.leave(two);
    let (three, four) = (disk.connect(), disk.connect());
    assert!(disk.flush(one));
    assert!(!disk.flush(three));
    assert!(!disk.flush(four), "either may have come in the place of the one that went");
    let five = disk.connect();
    assert!(disk.flush(three) && disk.flush(four) && disk.flush(five));
}

#[test]
fn writes_of_one_that_went_before_the_failure_are_not_forgotten() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    disk.write(one);
    disk.leave(one);
    assert!(!disk.sync(two, Op::Flush, eio()));
    let three = disk.connect();
    assert!(!disk.flush(three));
    assert!(disk.flush(three));
}

#[test]
fn a_flush_of_any_connection_tells_of_a_loss_of_which_none_has_told() {
    let mut disk = Disk::default();
    let one = disk.connect();
    disk.write(one);
    disk.losses.lost();
    // It came before or after the loss, and sends its first request now.
    let (two, three) = (disk.connect(), disk.connect());
    assert!(!disk.flush(two));
    let late = disk.connect();
    assert!(disk.flush(late), "another connection was told");
    assert!(!disk.flush(one) && !disk.flush(three));
    assert!(disk.flush(one) && disk.flush(two) && disk.flush(three));
}

#[test]
fn a_loss_is_owed_to_the_next_disk_until_all_were_told() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    assert!(!disk.losses.owes());
    disk.losses.lost();
    assert!(disk.losses.owes(), "none was told");
    assert!(!disk.flush(one));
    assert!(!disk.losses.owes(), "the other one is there");
    disk.leave(two);
    assert!(disk.losses.owes());
    let mut next = Disk { losses: Losses::inherited(), ..Disk::default() };
    let (one, two) = (next.connect(), next.connect());
    assert!(!next.flush(one) && !next.flush(two), "each client that came back");
    assert!(!next.losses.owes() && next.flush(one) && next.flush(two));
}

#[test]
fn writes_that_a_flush_made_durable_before_are_not_lost() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    disk.write(one);
    assert!(disk.flush(two));
    disk.leave(one);
    assert!(!disk.sync(two, Op::Flush, eio()));
    let three = disk.connect();
    assert!(disk.flush(three));
}

#[test]
fn a_sync_that_succeeded_waits_for_those_beside_it_and_fails_with_them() {
    let mut disk = Disk::default();
    let (one, two) = (disk.connect(), disk.connect());
    let (a, b, c) = (disk.losses.begin(), disk.losses.begin(), disk.losses.begin());
    disk.losses.end(b, FUA, &Ok(()), true, "b");
    assert_eq!(disk.losses.ready(), None, "the kernel may have told one of the others");
    let later = disk.losses.begin();
    disk.losses.end(a, Op::Flush, &eio(), true, "a");
    assert_eq!(disk.losses.ready(), Some(("a", true)));
    disk.losses.end(c, Op::Flush, &Ok(()), true, "c");
    // The one that began later does not hold up the first.
    assert_eq!(disk.losses.ready(), Some(("b", true)));
    assert!(disk.losses.tell(&mut disk.conns[one], FUA, Ok(()), true).is_err());
    assert_eq!(disk.losses.ready(), None);
    disk.losses.end(later, Op::Flush, &Ok(()), true, "later");
    assert_eq!(disk.losses.ready(), Some(("c", true)));
    assert!(disk.losses.tell(&mut disk.conns[two], Op::Flush, Ok(()), true).is_err());
    assert_eq!(disk.losses.ready(), Some(("later", true)), "it had begun before the failure");
}

#[test]
fn a_backend_that_tells_each_request_of_its_own_data_holds_nothing() {
    let mut disk = Disk::default();
    let (a, _b) = (disk.losses.begin(), disk.losses.begin());
    disk.losses.end(a, FUA, &Ok(()), false, "a");
    assert_eq!(disk.losses.ready(), Some(("a", false)));
}

#[test]
fn reads_and_plain_writes_are_no_syncs() {
    assert!(syncs(Op::Flush) && syncs(FUA));
    assert!(!syncs(WRITE) && !syncs(Op::Read(Extent { offset: 0, len: 1 })));
}

#[test]
fn a_sync_behind_several_pieces_is_told_of_a_failure_between_them() {
    for since_the_first in [false, true] {
        let mut disk = Disk::default();
        let (pieces, other) = (disk.connect(), disk.connect());
        let before = disk.losses.failures();
        assert!(!disk.sync(other, Op::Flush, eio()));
        let id = if since_the_first {
            disk.losses.begin_after_pieces(before)
        } else {
            disk.losses.begin()
        };
        disk.losses.end(id, FUA, &Ok(()), true, "all pieces");
        let (_, failed) = disk.losses.ready().unwrap();
        let told = disk.losses.tell(&mut disk.conns[pieces], FUA, Ok(()), failed);
        assert_eq!(told.is_err(), since_the_first);
    }
}
