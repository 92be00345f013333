//! The least that an NBD server can do: one io_uring, no checks of requests, no queue, no law.
//!
//! It is the upper limit of what one thread of `parda serve` can reach, and nothing to be used: it
//! believes every length and every offset that a client sends.

mod levers;
mod ring;

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;

use parda_nbd::wire::{self, OptionReply, info, option, reply};

const USAGE: &str = "\
usage: bare unix:PATH|tcp:HOST:PORT FILE [--direct] [--connections N] [--block BYTES] [--depth N] [LEVER]…

Serves FILE over NBD with a bare io_uring. Waits for N connections (default 1), serves them until all
are closed, and waits for the next N. BYTES (default 1 MiB) and N (default 64) are the largest request
and the deepest queue of a connection that it has memory for. Levers, all off by default, are
--fixed-files, --fixed-buffers, --multishot, --send-zc (TCP) and --splice (page cache, one connection).";

struct Arguments {
    listen: String,
    file: String,
    direct: bool,
    connections: usize,
    block: usize,
    depth: usize,
    levers: levers::Levers,
}

fn arguments() -> Option<Arguments> {
    let mut given = std::env::args().skip(1);
    let (mut direct, mut connections, mut block, mut depth) = (false, 1, 1 << 20, 64);
    let (mut names, mut levers) = (Vec::new(), levers::Levers::default());
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--direct" => direct = true,
            "--connections" => connections = given.next()?.parse().ok()?,
            "--block" => block = given.next()?.parse().ok()?,
            "--depth" => depth = given.next()?.parse().ok()?,
            lever if levers.take(lever) => {}
            name if name.starts_with('-') => return None,
            _ => names.push(argument),
        }
    }
    let [listen, file] = <[String; 2]>::try_from(names).ok()?;
    Some(Arguments { listen, file, direct, connections, block, depth, levers })
}

/// A socket that is accepted, of either kind.
trait Stream: Read + Write + Into<OwnedFd> {}
impl<T: Read + Write + Into<OwnedFd>> Stream for T {}

fn main() -> io::Result<()> {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    let flags = if arguments.direct { libc::O_DIRECT } else { 0 };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&arguments.file)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", arguments.file)))?;
    let size = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
    let Arguments { connections, depth, block, levers, .. } = arguments;
    let mut ring = ring::Ring::new(file, connections, depth, block, levers)?;
    let mut serve = |accept: &mut dyn FnMut() -> io::Result<OwnedFd>| -> io::Result<()> {
        loop {
            let sockets: io::Result<Vec<OwnedFd>> =
                (0..arguments.connections).map(|_| accept()).collect();
            ring.run(sockets?)?;
        }
    };
    match arguments.listen.split_once(':') {
        Some(("unix", path)) => {
            let listener = UnixListener::bind(path)?;
            serve(&mut || handshake(listener.accept()?.0, size))
        }
        Some(("tcp", address)) => {
            let listener = TcpListener::bind(address)?;
            eprintln!("listening");
            serve(&mut || {
                let socket = listener.accept()?.0;
                socket.set_nodelay(true)?;
                handshake(socket, size)
            })
        }
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}

/// Gives whatever export is asked for, with simple replies.
fn handshake(mut socket: impl Stream, size: u64) -> io::Result<OwnedFd> {
    let mut greeting = Vec::new();
    greeting.extend_from_slice(&wire::GREETING_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES).to_be_bytes());
    socket.write_all(&greeting)?;
    socket.read_exact(&mut [0; wire::CLIENT_FLAGS_LEN])?;
    loop {
        let mut header = [0; wire::OPTION_HEADER_LEN];
        socket.read_exact(&mut header)?;
        let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let (asked, len) = (number(8), number(12));
        socket.read_exact(&mut vec![0; (len as usize).min(wire::MAX_OPTION_DATA)])?;
        let mut out = Vec::new();
        if asked == option::GO {
            // Flags: HAS_FLAGS, SEND_FLUSH.
            let data = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &5u16.to_be_bytes()];
            wire::put_option_reply(&mut out, asked, OptionReply(reply::INFO), &data.concat());
            wire::put_option_reply(&mut out, asked, OptionReply(reply::ACK), b"");
            socket.write_all(&out)?;
            return Ok(socket.into());
        }
        wire::put_option_reply(&mut out, asked, OptionReply(reply::ERR_UNSUP), b"");
        socket.write_all(&out)?;
    }
}
