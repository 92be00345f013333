//! The exchange that a configuration names: opened for a control thread, examined for `parda check`.

use std::fmt::Display;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use parda_control::clock::VISIT_LIMIT;
use parda_control::{Bytes, Span};
use parda_exchange::etcd::{EtcdExchange, EtcdLimits, EtcdSettings};
use parda_exchange::fallback::WithFallback;
use parda_exchange::region::{Deadline, FileRegion, NbdRegion};
use parda_exchange::slots::SlotSettings;
use parda_exchange::udp::{KeySource, Keys, UdpExchange, UdpSettings};
use parda_exchange::{
    Exchange, Identity, Incarnation, PlaceFault, Site, SlotExchange, VolumeId, look,
};

use crate::config::{self, Etcd, Place, Slots, Transport, Udp, Volume, directory_of};

/// Time limit of one IO of the exchange.
const LIMIT: Duration = Duration::from_nanos(VISIT_LIMIT.0);

/// This host at one volume, as any exchange must know it.
pub(crate) struct Local<'a> {
    pub(crate) me: &'a Identity,
    /// Name under which the volume's hosts meet.
    pub(crate) volume: &'a str,
    pub(crate) period: Span,
}

/// The exchange that a configuration names. Nothing is opened yet: a volume that comes up later
/// than its agent is no reason not to start.
pub(crate) fn open(
    exchange: &config::Exchange,
    host: &Local<'_>,
) -> Result<Box<dyn Exchange>, String> {
    let first: Box<dyn Exchange> = match &exchange.transport {
        Transport::Slots(slots) => Box::new(open_slots(slots, host)?),
        Transport::Udp(udp) => Box::new(UdpExchange::new(UdpSettings {
            host: host.me.host.clone(),
            volume: VolumeId::of(host.volume),
            address: udp.address,
            reach: udp.reach.clone(),
            keys: udp.keys.clone(),
        })),
        Transport::Etcd(etcd) => {
            let opened = EtcdExchange::new(EtcdSettings {
                host: host.me.host.clone(),
                volume: host.volume.to_owned(),
                prefix: etcd.prefix.clone(),
                cluster: etcd.cluster.clone(),
                limits: EtcdLimits::of(host.period),
            });
            Box::new(opened.map_err(|e| format!("cannot start the exchange's thread: {e}"))?)
        }
    };
    let Some(slots) = &exchange.fallback else { return Ok(first) };
    let second = Box::new(open_slots(slots, host)?);
    Ok(Box::new(WithFallback::new(first, second, host.me.host.id())))
}

fn open_slots(exchange: &Slots, host: &Local<'_>) -> Result<SlotExchange, String> {
    let settings = SlotSettings {
        // A run of its own: its numbers begin anew. Under the old run the other hosts would take its records for old ones.
        me: Identity { host: host.me.host.clone(), incarnation: Incarnation::starting_now() },
        volume: VolumeId::of(host.volume),
        choice: exchange.choice,
        period: host.period,
        make: exchange.make.clone(),
    };
    let offset = exchange.offset.map(Bytes);
    let made = match &exchange.place {
        Place::Nbd(uri) => {
            let region =
                NbdRegion::new(uri.clone(), offset.unwrap_or(Bytes(0)), exchange.slots, LIMIT);
            SlotExchange::new(region.map_err(|e| e.to_string())?, settings)
        }
        Place::Path(path) => {
            let region = FileRegion::new(path, offset, exchange.slots);
            let bounded = Deadline::new(region.map_err(|e| e.to_string())?, LIMIT)
                .map_err(|e| format!("cannot start the exchange's thread: {e}"))?;
            SlotExchange::new(bounded, settings)
        }
    };
    made.map_err(|e| e.to_string())
}

/// Reads the keys, certificates and the password that an exchange needs.
///
/// # Errors
/// The first file that cannot be used.
pub(crate) fn read_secrets(exchange: &config::Exchange) -> Result<(), String> {
    if let Some(Udp { keys: KeySource::File(file), .. }) = exchange.udp() {
        Keys::read(file).map_err(|error| error.to_string())?;
    }
    let Some(etcd) = exchange.etcd() else { return Ok(()) };
    if let Some(tls) = &etcd.cluster.tls {
        tls.check().map_err(|error| error.to_string())?;
    }
    if let Some(login) = &etcd.cluster.login {
        parda_etcd::password::read(&login.password_file).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Reason why the exchange of a volume cannot be used; `None` if it can. Changes nothing. An NBD server
/// is asked only with TLS, to try its certificates.
#[must_use]
pub fn examine(volume: &Volume) -> Option<String> {
    let exchange = volume.exchange.as_ref()?;
    let fault = match &exchange.transport {
        Transport::Slots(slots) => examine_slots(volume, slots),
        Transport::Udp(udp) => parda_exchange::udp::examine(udp.address, &udp.reach)
            .map(|fault| format!("exchange {udp}: {fault}")),
        Transport::Etcd(etcd) => {
            let Etcd { cluster, prefix, .. } = etcd;
            parda_exchange::etcd::examine(cluster, prefix, volume.meets_as(), LIMIT).map(|fault| {
                format!("exchange {fault}; this host and the others do not hear each other")
            })
        }
    };
    fault.or_else(|| examine_slots(volume, exchange.fallback.as_ref()?))
}

/// Directory of a place that is not there.
fn no_directory(place: &Place) -> Option<&Path> {
    let Place::Path(path) = place else { return None };
    directory_of(path).filter(|directory| !directory.is_dir())
}

fn examine_slots(volume: &Volume, exchange: &Slots) -> Option<String> {
    if matches!(&exchange.place, Place::Nbd(uri) if uri.tls.is_none()) {
        return None;
    }
    let unheard = |fault: &dyn Display| {
        let so = "this host and the others do not hear each other";
        Some(format!("exchange {}: {fault}; {so}", exchange.place))
    };
    let site = Site::new(exchange.place.clone(), exchange.offset.map(Bytes)).ok()?;
    // On a path that is down this may hang, and a caller that waits would not start.
    let (answer, looked) = channel();
    let at = site.clone();
    std::thread::spawn(move || answer.send(look(&at, LIMIT)));
    let Ok(looked) = parda_awake::recv_timeout(&looked, LIMIT) else {
        return Some(format!("exchange {}: no answer within {LIMIT:?}", exchange.place));
    };
    let header = match looked {
        Ok(Ok(found)) => found.header,
        Ok(Err(PlaceFault::Missing | PlaceFault::Blank)) => {
            if let Some(directory) = no_directory(&exchange.place) {
                let directory = directory.display();
                return unheard(&format!("there is no directory {directory}: is it mounted?"));
            }
            let make = &exchange.make;
            return Some(format!(
                "exchange {}: not made yet. On one host, once: {make}",
                exchange.place
            ));
        }
        Ok(Err(fault)) => return unheard(&fault),
        Err(error) => return Some(error.to_string()),
    };
    let (found, configured) = (header.slots.get(), exchange.slots.get());
    match header.volume.filter(|named| named.id() != VolumeId::of(volume.meets_as())) {
        Some(other) => unheard(&PlaceFault::Volume(other.as_str().to_owned())),
        None if found != configured => unheard(&PlaceFault::Slots { found, configured }),
        None => match &exchange.place {
            Place::Path(path) => unheard(&config::refused(path, false)?),
            Place::Nbd(_) => None,
        },
    }
}
