//! Bad clients, failing backends, lost servers: each costs the one concerned, and nobody else.
use crate::common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use common::{Client, disk, file, read, spawn, write};
use parda_address::Uri;
use parda_block::{BackendConfig, Handle, Limits, NbdOptions, Volume};
use parda_control::Bytes;
use parda_disk::{Errno, Op};
use parda_nbd::client::put_request;
use parda_nbd::{Cookie, wire};
use parda_testkit::ConnectError;

const SIZE: u64 = 64 << 20;

fn memory(socket: &Path) -> Handle {
    spawn(vec![disk("vm1", BackendConfig::Memory { size: Bytes(SIZE) }, socket)])
}

/// Bytes that open a session on the only export, as a client without manners may send them.
fn rude_handshake() -> Vec<u8> {
    let mut out = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut out, wire::option::EXPORT_NAME, b"");
    out
}

/// Sends bytes and waits until the server has closed the connection.
fn expect_close(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A close with bytes unread is a reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn clients_that_break_the_protocol_are_closed_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = memory(&socket);
    let mut good = Client::connect(&socket, "vm1");
    let mut wrong_magic = rude_handshake();
    wrong_magic.extend_from_slice(&[0x47; 28]);
    let mut unknown = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut unknown, wire::option::EXPORT_NAME, b"nope");
    for bytes in [&wrong_magic[..], &unknown, b"GET / HTTP/1.1\r\n\r\n", &[0xff; 300]] {
        expect_close(&socket, bytes);
        assert_eq!(good.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    }
    let error = Client::try_connect(&socket, "nope").err().unwrap();
    let ConnectError::Handshake(error) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("has no export \"nope\""), "{error}");
    assert!(volume.stats().is_ok());
}

#[test]
fn a_connection_that_is_cut_anywhere_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = memory(&socket);
    let mut good = Client::connect(&socket, "vm1");
    let mut bytes = rude_handshake();
    put_request(&mut bytes, Cookie(1), read(0, 1 << 20));
    put_request(&mut bytes, Cookie(2), write(4096, 300_000));
    bytes.extend_from_slice(&[9; 200_000]);
    for cut in (0..bytes.len()).step_by(3571).chain([4, 20, 30, 47, 48, 49, 75, 76, 77]) {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&bytes[..cut.min(bytes.len())]).unwrap();
        drop(stream);
        assert_eq!(good.call(Op::Flush, &[]), Ok(vec![]));
    }
    // The write never arrived complete, so nothing of it was written.
    assert_eq!(good.call(read(4096, 4096), &[]), Ok(vec![0; 4096]));
    // All but the good one are gone, and so is all that they had.
    while volume.stats().unwrap().connections > 1 {
        assert_eq!(good.call(Op::Flush, &[]), Ok(vec![]));
    }
    assert_eq!(volume.stats().unwrap().outstanding, 0);
}

#[test]
fn requests_that_are_refused_leave_the_connection_in_step() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _volume = memory(&socket);
    let mut client = Client::connect(&socket, "vm1");
    let oversized = (32 << 20) + 4096;
    assert_eq!(client.call(write(0, oversized), &vec![1; oversized as usize]), Err(Errno::Inval));
    assert_eq!(client.call(read(0, oversized), &[]), Err(Errno::Inval));
    assert_eq!(client.call(write(SIZE - 4096, 8192), &[1; 8192]), Err(Errno::NoSpc));
    assert_eq!(client.call(read(u64::MAX, 2), &[]), Err(Errno::Inval));
    assert_eq!(client.call(write(0, 0), &[]), Err(Errno::Inval));
    assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]), "nothing was written");
    let largest = 32 << 20;
    assert_eq!(client.call(write(0, largest), &vec![3; largest as usize]), Ok(vec![]));
    assert!(client.call(read(0, largest), &[]).unwrap() == vec![3; largest as usize]);
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = memory(&socket);
    let mut greedy = UnixStream::connect(&socket).unwrap();
    let mut bytes = rude_handshake();
    (0..1000).for_each(|i| put_request(&mut bytes, Cookie(i), read(0, 1 << 20)));
    greedy.write_all(&bytes).unwrap();
    let mut good = Client::connect(&socket, "vm1");
    for _ in 0..200 {
        assert_eq!(good.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    }
    // It was stopped by its limit of bytes, long before the thousand that it asked for.
    let served = volume.stats().unwrap().vms[0].reads.ios - 200;
    assert!(served <= 64 + 1, "{served} megabytes wait for a client that does not read");
}

#[test]
fn slow_handshakes_and_too_many_connections_are_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let backend = BackendConfig::Memory { size: Bytes(SIZE) };
    let mut config = common::config(vec![disk("vm1", backend, &socket)]);
    config.limits =
        Limits { connections: 2, handshake_timeout: Duration::from_secs(2), ..Limits::default() };
    let volume = Volume::spawn(config).unwrap();
    let mut good = Client::connect(&socket, "vm1");
    let answer = expect_close(&socket, b"");
    assert_eq!(answer.len(), wire::GREETING_LEN, "greeted, then given up");
    while volume.stats().unwrap().connections > 1 {
        assert_eq!(good.call(Op::Flush, &[]), Ok(vec![]));
    }
    let _second = Client::connect(&socket, "vm1");
    let third = expect_close(&socket, &rude_handshake());
    assert_eq!(third.len(), wire::GREETING_LEN, "turned away when it chose an export");
    assert_eq!(volume.stats().unwrap().dropped.turned_away, 1);
    assert_eq!(good.call(Op::Flush, &[]), Ok(vec![]));
}

#[test]
fn an_error_of_the_backend_goes_to_the_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    fs::write(&path, vec![6; 1 << 20]).unwrap();
    let volume = spawn(vec![disk("vm1", file(&path), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    // Half of the file disappears under the server.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
    assert_eq!(client.call(read(768 << 10, 4096), &[]), Err(Errno::Io));
    assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![6; 4096]));
    let stats = volume.stats().unwrap();
    assert_eq!((stats.vms[0].errors, stats.vms[0].reads.ios), (1, 1));
}

/// A server on a file, and a volume whose disk is that server.
struct Chain {
    dir: tempfile::TempDir,
    far: Option<Handle>,
    _near: Handle,
}

impl Chain {
    fn new(hold: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("disk"), vec![0; 1 << 20]).unwrap();
        let far = Some(Self::serve(dir.path()));
        let socket = dir.path().join("far");
        let uri = Uri::from_str(&format!("nbd+unix:///array?socket={}", socket.display())).unwrap();
        let backend =
            BackendConfig::Nbd { uri, options: NbdOptions { hold, ..NbdOptions::default() } };
        let near = spawn(vec![disk("vm1", backend, &dir.path().join("near"))]);
        Self { dir, far, _near: near }
    }

    fn serve(dir: &Path) -> Handle {
        spawn(vec![disk("array", file(&dir.join("disk")), &dir.join("far"))])
    }

    fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("near"), "vm1")
    }

    fn lose(&mut self) {
        self.far.take().unwrap().shutdown(Duration::ZERO).unwrap();
    }

    fn restore(&mut self) {
        self.far = Some(Self::serve(self.dir.path()));
    }
}

#[test]
fn ios_wait_for_a_lost_server_and_flush_confesses_once() {
    let mut chain = Chain::new(Duration::from_secs(60));
    let mut client = chain.client();
    assert_eq!(client.call(write(0, 4096), &[1; 4096]), Ok(vec![]));
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
    assert_eq!(client.call(write(4096, 4096), &[2; 4096]), Ok(vec![]));
    chain.lose();
    // Sent while nobody is there, answered by the one who comes back.
    client.send(read(0, 4096), &[]);
    client.send(write(8192, 4096), &[3; 4096]);
    chain.restore();
    let mut outcomes = [client.receive().unwrap(), client.receive().unwrap()];
    outcomes.sort_by_key(|(cookie, _)| cookie.0);
    assert_eq!(outcomes[0].1, Ok(vec![1; 4096]));
    assert_eq!(outcomes[1].1, Ok(vec![]));
    // The second write was acknowledged and not flushed when the server went.
    assert_eq!(client.call(Op::Flush, &[]), Err(Errno::Io));
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
    assert_eq!(client.call(read(8192, 4096), &[]), Ok(vec![3; 4096]));
}

#[test]
fn every_connection_hears_of_lost_writes() {
    let mut chain = Chain::new(Duration::from_secs(60));
    let (mut one, mut two) = (chain.client(), chain.client());
    assert_eq!(one.call(write(0, 4096), &[1; 4096]), Ok(vec![]));
    assert_eq!(two.call(write(4096, 4096), &[2; 4096]), Ok(vec![]));
    chain.lose();
    chain.restore();
    assert_eq!(one.call(Op::Flush, &[]), Err(Errno::Io));
    assert_eq!(two.call(Op::Flush, &[]), Err(Errno::Io));
    // Each is told once, and one that came later has lost nothing.
    for client in [&mut one, &mut two, &mut chain.client()] {
        assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
    }
}

#[test]
fn a_server_may_be_lost_again_and_again_under_load() {
    let mut chain = Chain::new(Duration::from_secs(60));
    let mut client = chain.client();
    for round in 0..5u8 {
        for i in 0..32 {
            client.send(write(i * 8192, 8192), &[round; 8192]);
        }
        chain.lose();
        chain.restore();
        for _ in 0..32 {
            assert_eq!(client.receive().unwrap().1, Ok(vec![]));
        }
        assert!(client.call(read(0, 32 * 8192), &[]).unwrap() == vec![round; 32 * 8192]);
    }
}

#[test]
fn a_loss_without_unflushed_writes_needs_no_confession() {
    let mut chain = Chain::new(Duration::from_secs(60));
    let mut client = chain.client();
    let durable = Op::Write { extent: common::at(0, 4096), fua: true };
    assert_eq!(client.call(durable, &[1; 4096]), Ok(vec![]));
    assert_eq!(client.call(write(4096, 4096), &[1; 4096]), Ok(vec![]));
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
    chain.lose();
    chain.restore();
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
}

#[test]
fn ios_fail_when_a_lost_server_stays_away_and_work_when_it_returns() {
    let mut chain = Chain::new(Duration::from_millis(100));
    let mut client = chain.client();
    chain.lose();
    assert_eq!(client.call(read(0, 4096), &[]), Err(Errno::Io));
    assert_eq!(client.call(write(0, 4096), &[1; 4096]), Err(Errno::Io));
    chain.restore();
    while client.call(read(0, 4096), &[]).is_err() {}
    assert_eq!(client.call(write(0, 4096), &[1; 4096]), Ok(vec![]));
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
}

#[test]
fn a_connection_whose_replies_were_its_limit_goes_on_when_they_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let backend = BackendConfig::Memory { size: Bytes(1 << 20) };
    let mut config = common::config(vec![disk("disk", backend, &socket)]);
    // Each read is all that may be in flight: the next one waits until its reply was sent.
    config.limits = Limits { memory_per_connection: 32 << 10, ..Limits::default() };
    let _volume = Volume::spawn(config).unwrap();
    let mut client = Client::connect(&socket, "disk");
    let asked: Vec<_> = (0..32).map(|i| client.send(read(i * 32_768, 32_768), &[])).collect();
    for cookie in asked {
        let (answered, outcome) = client.receive().unwrap();
        assert_eq!((answered, outcome.unwrap().len()), (cookie.unwrap(), 32_768));
    }
}

#[test]
fn a_request_that_is_none_for_the_disk_is_its_clients_fault_and_not_the_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = memory(&socket);
    let mut client = Client::connect(&socket, "vm1");
    assert_eq!(client.call(read(SIZE, 4096), &[]), Err(Errno::Inval));
    assert_eq!(client.call(write(SIZE - 512, 4096), &[1; 4096]), Err(Errno::NoSpc));
    assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    let stats = volume.stats().unwrap();
    let vm = &stats.vms[0];
    assert_eq!((vm.errors, vm.guest_faults, vm.client_faults), (0, 0, 2));
}
