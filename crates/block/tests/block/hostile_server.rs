//! An NBD server behind a disk that lies: whatever it sends, no client sees a byte that it did not
//! send, and nobody waits for ever.
use crate::common;

use std::time::Duration;

use common::hostile::{Hostile, chunk_of, data_chunk, error_chunk, export, hole_chunk, simple};
use common::{Client, disk, read, spawn, write};
use parda_block::{BackendConfig, Handle, NbdOptions};
use parda_control::Bytes;
use parda_disk::{Errno, Extent};
use parda_nbd::Cookie;
use parda_nbd::wire::{chunk, command};

const LEN: u32 = 64 << 10;
const SIZE: u64 = 1 << 20;
const DONE: u16 = chunk::FLAG_DONE;
const SECRET: u8 = 0xaa;

/// What the server answers to a read: its bytes, as they go to the wire.
type Answer = fn(Cookie, Extent) -> Vec<u8>;

fn near(dir: &tempfile::TempDir, hostile: &Hostile) -> Handle {
    let options = NbdOptions { hold: Duration::from_millis(300), ..NbdOptions::default() };
    let backend = BackendConfig::Nbd { uri: hostile.uri(), options };
    let secret = BackendConfig::Memory { size: Bytes(SIZE) };
    let socket = dir.path().join("near");
    spawn(vec![disk("hostile", backend, &socket), disk("secret", secret, &socket)])
}

/// Reads from a server that answers so, after another VM's data has been through the buffers.
fn outcome_of(answer: Answer) -> Result<Vec<u8>, Errno> {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), move |peer| {
        loop {
            let asked = peer.next()?;
            match asked.header.command {
                command::READ => {
                    peer.send(&answer(asked.header.cookie, asked.header.extent))?;
                }
                _ => peer.answer(&asked.header, &[])?,
            }
        }
    });
    let volume = near(&dir, &hostile);
    let mut other = Client::connect(&dir.path().join("near"), "secret");
    let secret = vec![SECRET; LEN as usize];
    // As many buffers as can be in flight, all of which were another VM's.
    (0..4).for_each(|i| {
        other.send(write(i * u64::from(LEN), LEN), &secret);
    });
    (0..4).for_each(|_| assert_eq!(other.receive().unwrap().1, Ok(vec![])));
    let mut client = Client::connect(&dir.path().join("near"), "hostile");
    let outcome = client.call(read(u64::from(LEN), LEN), &[]);
    if let Ok(data) = &outcome {
        assert!(!data.contains(&SECRET), "another VM's data went to the client");
    }
    // The other VM did not notice, and nothing is left behind.
    assert_eq!(other.call(read(0, LEN), &[]), Ok(secret));
    assert_eq!(volume.stats().unwrap().outstanding, 0);
    outcome
}

const HALF: u32 = LEN / 2;

fn half(byte: u8) -> Vec<u8> {
    vec![byte; HALF as usize]
}

#[test]
fn a_read_is_answered_by_exactly_the_bytes_that_were_asked_for() {
    // What the spec allows, to begin with: pieces in any order, holes, no data in the last piece.
    let good: &[Answer] = &[
        |c, e| data_chunk(DONE, c, e.offset, &[half(1), half(2)].concat()),
        |c, e| {
            let upper = e.offset + u64::from(HALF);
            [data_chunk(0, c, upper, &half(2)), data_chunk(DONE, c, e.offset, &half(1))].concat()
        },
        |c, e| {
            let upper = e.offset + u64::from(HALF);
            let (a, b) = (data_chunk(0, c, e.offset, &half(1)), data_chunk(0, c, upper, &half(2)));
            [a, b, chunk_of(DONE, chunk::NONE, c, &[])].concat()
        },
    ];
    for answer in good {
        assert!(outcome_of(*answer) == Ok([half(1), half(2)].concat()));
    }
    let holes = outcome_of(|c, e| {
        let upper = e.offset + u64::from(HALF);
        [hole_chunk(0, c, upper, HALF), data_chunk(DONE, c, e.offset, &half(1))].concat()
    });
    assert!(holes == Ok([half(1), half(0)].concat()));
}

#[test]
fn no_byte_is_handed_out_that_the_server_did_not_send() {
    let bad: &[(&str, Answer)] = &[
        ("the same half twice", |c, e| {
            let first = data_chunk(0, c, e.offset, &half(1));
            [first, data_chunk(DONE, c, e.offset, &half(1))].concat()
        }),
        ("the same hole twice", |c, e| {
            [hole_chunk(0, c, e.offset, HALF), hole_chunk(DONE, c, e.offset, HALF)].concat()
        }),
        ("halves that overlap", |c, e| {
            let first = data_chunk(0, c, e.offset, &half(1));
            [first, data_chunk(DONE, c, e.offset + u64::from(HALF / 2), &half(1))].concat()
        }),
        ("a hole over data", |c, e| {
            [data_chunk(0, c, e.offset, &half(1)), hole_chunk(DONE, c, e.offset, HALF)].concat()
        }),
        ("nothing at all", |c, _| chunk_of(DONE, chunk::NONE, c, &[])),
        ("half of it", |c, e| data_chunk(DONE, c, e.offset, &half(1))),
        ("data and an error", |c, e| {
            [data_chunk(0, c, e.offset, &half(1)), error_chunk(DONE, c, 5)].concat()
        }),
        ("an error and all data", |c, e| {
            let whole = [half(1), half(2)].concat();
            [error_chunk(0, c, 5), data_chunk(DONE, c, e.offset, &whole)].concat()
        }),
        ("data before the range", |c, e| data_chunk(DONE, c, e.offset - 1, &half(1))),
        ("data behind the range", |c, e| data_chunk(DONE, c, e.offset + u64::from(LEN), &[1])),
        ("a hole of nothing", |c, e| hole_chunk(DONE, c, e.offset, 0)),
        ("a hole around 2^64", |c, _| hole_chunk(DONE, c, u64::MAX - 8, 4096)),
        ("a hole of 4 GiB", |c, e| hole_chunk(DONE, c, e.offset, u32::MAX)),
        ("4 GiB announced", |c, e| {
            let mut bytes = data_chunk(DONE, c, e.offset, &half(1));
            bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            bytes
        }),
        ("an error of 4 GiB", |c, _| {
            let mut bytes = error_chunk(DONE, c, 5);
            bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            bytes
        }),
        ("an error that is none", |c, _| error_chunk(DONE, c, 0)),
        ("a simple reply", |c, _| [simple(c, 0), half(1), half(2)].concat()),
        ("a simple error", |c, _| simple(c, 5)),
        ("an unknown chunk", |c, _| chunk_of(DONE, 77, c, &[0; 8])),
        ("a cookie that was never sent", |c, e| {
            data_chunk(DONE, Cookie(c.0 + 1), e.offset, &[half(1), half(2)].concat())
        }),
        ("no magic", |_, _| vec![0x42; 64]),
    ];
    for (what, answer) in bad {
        assert_eq!(outcome_of(*answer).map(drop), Err(Errno::Io), "{what}");
    }
}

#[test]
fn a_reply_that_comes_twice_ends_the_connection() {
    let outcome = outcome_of(|c, e| {
        let whole = data_chunk(DONE, c, e.offset, &[half(1), half(2)].concat());
        [&whole[..], &whole[..]].concat()
    });
    assert!(outcome == Ok([half(1), half(2)].concat()), "the first of them was good");
}

#[test]
fn pieces_without_end_are_cut_short() {
    let small: &[(&str, Answer)] = &[
        // Every second byte, so that nothing can be joined to what was there.
        ("single bytes", |c, e| {
            let single = |i| data_chunk(0, c, e.offset + 2 * i, &[1]);
            (0..u64::from(HALF)).flat_map(single).collect()
        }),
        ("errors", |c, _| (0..100_000).flat_map(|_| error_chunk(0, c, 5)).collect()),
    ];
    for (what, answer) in small {
        let started = std::time::Instant::now();
        assert_eq!(outcome_of(*answer).map(drop), Err(Errno::Io), "{what}");
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {:?}", started.elapsed());
    }
}
