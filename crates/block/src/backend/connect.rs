//! Connecting to another NBD server. This blocks, for a bounded time, so it never runs on a
//! volume's thread.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use parda_address::{Address, Uri};
use parda_dial::{Connected, DialError, Dialler};
use parda_disk::{BlockSizes, Geometry, MAX_PAYLOAD};
use parda_nbd::client::{Agreed, put_disconnect};
use parda_nbd::{Framing, TransmissionFlags};
use rustix::net::SendFlags;

use super::{NbdOptions, OpenError};

/// Time limit of connecting and the handshake together, however slow the server is.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Time limit of connecting to one address of a server.
const ADDRESS_WITHIN: Duration = Duration::from_secs(5);

/// A server with its first connection, before its thread has it.
pub(crate) struct Opened {
    pub(crate) connected: Connected,
    pub(crate) uri: Uri,
    pub(crate) options: NbdOptions,
    pub(crate) geometry: Geometry,
}

/// Connects to the server.
pub(crate) fn open(uri: &Uri, options: NbdOptions, read_only: bool) -> Result<Opened, OpenError> {
    let connected = connect(uri, options)?;
    let agreed = &connected.agreed;
    let has = |flag| agreed.flags.contains(flag);
    if !read_only {
        if has(TransmissionFlags::READ_ONLY) {
            return Err(OpenError::read_only(format!("the NBD export {}", uri.export)));
        }
        if !has(TransmissionFlags::SEND_FLUSH) {
            return Err(OpenError::Refused(format!(
                "the NBD server at {} is writable but does not offer FLUSH, so no write could be \
                 promised to be durable: make the disk read_only, or use another server",
                uri.address
            )));
        }
    }
    if options.connections > 1 && !has(TransmissionFlags::CAN_MULTI_CONN) {
        tracing::warn!(
            server = %uri.address, connections = options.connections,
            "the NBD server does not say that its connections share their data: one is used"
        );
    }
    let [min, preferred, max] =
        [agreed.blocks.min(), agreed.blocks.preferred(), agreed.blocks.max()];
    let blocks = BlockSizes::new([min, preferred, max.min(MAX_PAYLOAD)]).unwrap_or(agreed.blocks);
    let geometry = Geometry {
        size: agreed.size,
        blocks,
        read_only,
        trim: has(TransmissionFlags::SEND_TRIM),
        write_zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
        fast_zero: has(TransmissionFlags::SEND_FAST_ZERO),
        cache: has(TransmissionFlags::SEND_CACHE),
    };
    Ok(Opened { connected, uri: uri.clone(), options, geometry })
}

/// Connects to the server of a disk and closes the connection again.
///
/// # Errors
/// Reason why the disk cannot be served.
pub fn try_server(uri: &Uri, options: NbdOptions, read_only: bool) -> Result<(), OpenError> {
    let opened = open(uri, options, read_only)?;
    disconnect(&opened.connected.socket, opened.connected.agreed.framing);
    Ok(())
}

/// Connects to a server and hangs up before the handshake. A server that ends with its last client does not count this one.
///
/// # Errors
/// Nobody can be reached there.
pub fn reach_server(address: &Address, within: Duration) -> io::Result<()> {
    Dialler::within(within).reach(address)
}

/// Whether a server that agreed on `now` can take the place of one that agreed on `before`.
/// Clients were told of the old one's size and abilities, and hold requests made for them.
pub(crate) fn compatible(before: &Agreed, now: &Agreed) -> Result<(), String> {
    use TransmissionFlags as Flags;
    if now.size < before.size {
        return Err(format!("it has {} bytes where it had {}", now.size, before.size));
    }
    let read_only = |agreed: &Agreed| agreed.flags.contains(Flags::READ_ONLY);
    if read_only(now) && !read_only(before) {
        return Err("it is read-only now".to_owned());
    }
    let needed = [
        (Flags::SEND_FLUSH, "FLUSH"),
        (Flags::SEND_FUA, "FUA"),
        (Flags::SEND_TRIM, "TRIM"),
        (Flags::SEND_WRITE_ZEROES, "WRITE_ZEROES"),
        (Flags::SEND_FAST_ZERO, "FAST_ZERO"),
        (Flags::SEND_CACHE, "CACHE"),
        (Flags::CAN_MULTI_CONN, "CAN_MULTI_CONN"),
    ];
    for (flag, name) in needed {
        if before.flags.contains(flag) && !now.flags.contains(flag) {
            return Err(format!("it does not offer {name} any more"));
        }
    }
    if before.framing == Framing::Extended && now.framing != Framing::Extended {
        return Err("it does not offer extended headers any more".to_owned());
    }
    if before.allocation.is_some() && now.allocation.is_none() {
        return Err("it does not offer block status any more".to_owned());
    }
    if now.blocks.min() > before.blocks.min() || now.blocks.max() < before.blocks.max() {
        return Err("its block sizes are narrower than they were".to_owned());
    }
    Ok(())
}

/// Connects and agrees on an export.
pub(crate) fn connect(uri: &Uri, options: NbdOptions) -> Result<Connected, OpenError> {
    let dialler = Dialler {
        within: CONNECT_WITHIN,
        each_address: ADDRESS_WITHIN,
        patience: Some(options.timeout),
        extended_headers: true,
    };
    let at = &uri.address;
    dialler.dial(uri).map_err(|error| {
        OpenError::Refused(match error {
            DialError::Connect(why) => format!("cannot connect to the NBD server at {at}: {why}"),
            DialError::Handshake(why) => format!("the NBD server at {at}: {why}"),
        })
    })
}

/// Says goodbye on a connection that is not used any more.
pub(crate) fn disconnect(fd: &OwnedFd, framing: Framing) {
    let mut out = Vec::new();
    put_disconnect(&mut out, framing);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // Best effort: a server notices a closed socket as well.
    let _ = rustix::net::send(fd, &out, flags);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_the_place_of_one_that_offered_no_more() {
        let flags = TransmissionFlags(0).with(TransmissionFlags::SEND_FLUSH, true);
        let blocks = BlockSizes::DEFAULT;
        let before =
            Agreed { size: 4096, flags, blocks, framing: Framing::Extended, allocation: Some(1) };
        assert_eq!(compatible(&before, &before), Ok(()));
        let more = flags.with(TransmissionFlags::SEND_FUA, true);
        let larger = Agreed { size: 8192, flags: more, allocation: Some(7), ..before };
        assert_eq!(compatible(&before, &larger), Ok(()));
        assert!(compatible(&larger, &before).is_err());
        let read_only = flags.with(TransmissionFlags::READ_ONLY, true);
        for worse in [
            Agreed { size: 4095, ..before },
            Agreed { flags: TransmissionFlags(0), ..before },
            Agreed { flags: read_only, ..before },
            Agreed { allocation: None, ..before },
            Agreed { framing: Framing::Structured, ..before },
            Agreed { blocks: BlockSizes::with_min(4096).unwrap(), ..before },
        ] {
            assert!(compatible(&before, &worse).is_err(), "{worse:?}");
        }
    }
}
