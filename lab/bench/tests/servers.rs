//! Loads on a correct server, and on servers that break the protocol.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parda_address::ExportName;
use parda_bench::{BenchError, BenchPlan, LoadMeasured, Operation, run};
use parda_disk::{BlockSizes, Errno, Geometry, Op};
use parda_nbd::server::{Handshake, Incoming, ReplyTo, Session, Step};
use parda_nbd::wire::{self};
use parda_nbd::{Cookie, Export};

const SIZE: usize = 1 << 20;

fn export(read_only: bool) -> Export {
    Export {
        name: ExportName::new("disk").unwrap(),
        description: String::new(),
        geometry: Geometry {
            read_only,
            ..Geometry::new(SIZE as u64, BlockSizes::with_min(512).unwrap())
        },
    }
}

/// Reply of a server to the `n`th request of a connection.
type Answer = fn(n: usize, session: Session, cookie: Cookie, op: Op, out: &mut Vec<u8>) -> bool;

/// Starts a server for `connections` connections. The thread returns the data that was written to
/// the export.
fn serve(path: &Path, connections: usize, export: Export, answer: Answer) -> JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let served: Vec<_> = (0..connections)
            .map(|_| {
                let socket = listener.accept().unwrap().0;
                let export = export.clone();
                thread::spawn(move || converse(socket, &export, answer))
            })
            .collect();
        let mut written = vec![0; SIZE];
        for data in served.into_iter().map(|t| t.join().unwrap()) {
            for (at, byte) in data.into_iter().enumerate().filter(|(_, b)| *b != 0) {
                written[at] = byte;
            }
        }
        written
    })
}

fn converse(mut socket: UnixStream, export: &Export, answer: Answer) -> Vec<u8> {
    let (mut input, mut out, mut written) = (Vec::new(), Vec::new(), vec![0; SIZE]);
    let exports = [export.clone()];
    let mut handshake = Handshake::start(&mut out);
    let mut session = None;
    let mut n = 0;
    let mut chunk = vec![0; 1 << 20];
    loop {
        let took = match session {
            None => match handshake.advance(&input, &exports, &mut out).unwrap() {
                Step::Incomplete => None,
                Step::Taken(taken) => Some(taken),
                Step::Transmission { taken, session: agreed, .. } => {
                    session = Some(agreed);
                    Some(taken)
                }
                Step::Closed => return written,
            },
            Some(session) => match session.request(&input, export).unwrap() {
                Some(Incoming::Request { cookie, op }) => {
                    let data = match op {
                        Op::Write { extent, .. } => extent.len as usize,
                        _ => 0,
                    };
                    let whole = wire::REQUEST_LEN + data;
                    if input.len() < whole {
                        None
                    } else {
                        if let Op::Write { extent, .. } = op {
                            let at = extent.offset as usize;
                            written[at..at + data]
                                .copy_from_slice(&input[wire::REQUEST_LEN..whole]);
                        }
                        if !answer(n, session, cookie, op, &mut out) {
                            let _ = socket.write_all(&out);
                            return written;
                        }
                        n += 1;
                        Some(whole)
                    }
                }
                Some(Incoming::Disconnect) => return written,
                Some(other) => panic!("{other:?}"),
                None => None,
            },
        };
        match took {
            Some(took) => drop(input.drain(..took)),
            None => {
                if socket.write_all(&out).is_err() {
                    return written;
                }
                out.clear();
                match socket.read(&mut chunk) {
                    Ok(0) | Err(_) => return written,
                    Ok(n) => input.extend_from_slice(&chunk[..n]),
                }
            }
        }
    }
}

fn good(_: usize, session: Session, cookie: Cookie, op: Op, out: &mut Vec<u8>) -> bool {
    match op {
        Op::Read(extent) => {
            session.put_read(out, cookie, extent);
            out.resize(out.len() + extent.len as usize, 7);
        }
        _ => session.put_done(out, ReplyTo::new(cookie, op)),
    }
    true
}

fn plan(path: &Path, operation: Operation) -> BenchPlan {
    let uri = format!("nbd+unix:///disk?socket={}", path.display()).parse().unwrap();
    BenchPlan {
        depth: 8,
        warmup: Duration::from_millis(20),
        time: Duration::from_millis(200),
        patience: Duration::from_secs(60),
        ..BenchPlan::new(vec![uri], operation)
    }
}

/// The error of a load on a server that answers with `answer`, which ends the load.
fn error(answer: Answer) -> BenchError {
    error_within(Duration::from_secs(60), answer)
}

/// The same of a client that waits for so long.
fn error_within(patience: Duration, answer: Answer) -> BenchError {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = serve(&path, 1, export(false), answer);
    let time = Duration::from_secs(60);
    let plan = BenchPlan { time, patience, ..plan(&path, Operation::RandomRead) };
    let error = run(&plan).unwrap_err();
    server.join().unwrap();
    error
}

#[test]
fn every_operation_and_every_way_to_drive_it_is_measured() {
    let mixed = Operation::Mixed { reads: 50 };
    let all =
        [Operation::Read, Operation::Write, Operation::RandomRead, Operation::RandomWrite, mixed];
    for operation in all {
        for (connections, threads) in [(1, 1), (3, 1), (3, 2)] {
            let measured = |millis| {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("s");
                let server = serve(&path, connections as usize, export(false), good);
                let time = Duration::from_millis(millis);
                let plan = BenchPlan { connections, threads, time, ..plan(&path, operation) };
                let measured = run(&plan).unwrap();
                server.join().unwrap();
                measured
            };
            // On a busy machine a server may not get to run within a short time.
            let times = [100, 400, 1600, 6400];
            let kinds = (operation == mixed || !operation.writes(), operation.writes());
            let has_all = |m: &LoadMeasured| (m.reads > 0, m.writes > 0) == kinds;
            let found = times.into_iter().map(measured).find(has_all);
            let measured = found.unwrap_or_else(|| panic!("{operation:?} over {connections}"));
            assert_eq!(measured.ios(), measured.latency.len());
            let summary = measured.summary();
            assert!(0.0 < summary.p50_us && summary.p50_us <= summary.p99_us, "{summary:?}");
            assert!(summary.client_cpu_us_per_io > 0.0 && summary.server_cpu_us_per_io.is_none());
        }
    }
}

#[test]
fn writes_reach_the_range_that_was_asked_for_and_nothing_else() {
    // On a busy machine a server may not get to run within a short time.
    let all_of_it = [1, 4, 16].into_iter().any(|seconds| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = serve(&path, 1, export(false), good);
        let range = 64 << 10..80 << 10;
        let time = Duration::from_secs(seconds);
        let plan =
            BenchPlan { range: Some(range.clone()), time, ..plan(&path, Operation::RandomWrite) };
        run(&plan).unwrap();
        let written = server.join().unwrap();
        let inside = range.start as usize..range.end as usize;
        assert!(written[..inside.start].iter().chain(&written[inside.end..]).all(|b| *b == 0));
        let mut blocks = written[inside].chunks(4096);
        blocks.all(|block| block.iter().filter(|b| **b != 0).count() > 4000)
    });
    assert!(all_of_it, "each block is written");
}

#[test]
fn a_server_that_fails_a_request_is_quoted() {
    let said = error(|n, session, cookie, op, out| {
        if n < 20 {
            return good(n, session, cookie, op, out);
        }
        session.put_error(out, ReplyTo::new(cookie, op), Errno::Io, "the disk burns");
        true
    });
    let said = said.to_string();
    assert!(said.contains("failed a read of 4096 bytes at"), "{said}");
    assert!(said.contains("EIO the disk burns"), "{said}");
}

#[test]
fn a_server_that_lies_is_found_out() {
    let unknown = error(|_, session, _, op, out| good(0, session, Cookie(99), op, out));
    assert!(unknown.to_string().contains("0x63, which is not in flight"), "{unknown}");

    let twice = error(|n, session, cookie, op, out| {
        good(n, session, cookie, op, out) && good(n, session, cookie, op, out)
    });
    assert!(twice.to_string().contains("which is not in flight"), "{twice}");

    let short = error(|_, _, cookie, _, out| {
        let (flags, kind, len) = (wire::chunk::FLAG_DONE, wire::chunk::NONE, 0);
        wire::put_chunk_header(out, wire::ChunkHeader { flags, kind, cookie, len }, None);
        true
    });
    assert!(short.to_string().contains("sent 0 bytes of a read of 4096"), "{short}");
}

#[test]
fn a_server_that_leaves_or_falls_silent_does_not_hold_the_client() {
    let gone = error(|n, session, cookie, op, out| n < 30 && good(n, session, cookie, op, out));
    assert!(gone.to_string().contains("closed the connection"), "{gone}");

    let brief = Duration::from_millis(500);
    let silent = error_within(brief, |n, session, cookie, op, out| {
        n >= 30 || good(n, session, cookie, op, out)
    });
    assert!(silent.to_string().contains("has not answered for 500ms"), "{silent}");
}

#[test]
fn a_load_that_does_not_fit_the_export_is_refused() {
    let refused = |export: Export, change: fn(&mut BenchPlan)| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = serve(&path, 1, export, good);
        let mut plan = plan(&path, Operation::RandomRead);
        change(&mut plan);
        let error = run(&plan).unwrap_err();
        assert!(matches!(error, BenchError::Plan(_)), "{error}");
        server.join().unwrap();
        error.to_string()
    };
    let said = refused(export(true), |plan| plan.operation = Operation::Write);
    assert_eq!(said, "export \"disk\" is read-only");
    let said = refused(export(false), |plan| plan.block = 1000);
    assert!(said.contains("multiples of 512 bytes up to 33554432, and 1000 bytes"), "{said}");
    let said = refused(export(false), |plan| plan.block = 1 << 21);
    assert!(said.contains("1048576 bytes has no 2097152 bytes from 0 to 1048576"), "{said}");
    let said = refused(export(false), |plan| plan.range = Some(100..5000));
    assert!(said.contains("offset 100 is no multiple of the server's block of 512"), "{said}");
}

#[test]
fn nobody_at_the_address_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = run(&plan(&dir.path().join("nobody"), Operation::Read)).unwrap_err();
    assert!(error.to_string().contains("nobody: cannot connect: No such file"), "{error}");
}
