//! Check that the volumes of a pool meet in one exchange.

use parda_config::{Document, Error};
use parda_exchange::SlotChoice;
use parda_exchange::udp::{KeySource, PeerAddress, UdpReach};

use super::exchange::{Exchange, Slots};
use super::udp::Udp;
use super::volume::Volume;

/// Whether two volumes belong to one pool.
pub(super) fn are_one_pool(one: &Volume, other: &Volume) -> bool {
    one.pool.as_ref().zip(other.pool.as_ref()).is_some_and(|(one, other)| one.name == other.name)
}

/// Checks that the volumes of each pool meet: by an exchange of the same kind, in the same place.
pub(super) fn pools(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        let (Some(pool), at) = (&volume.pool, doc.part(format!("volume.{i}"))) else { continue };
        let same_name = |other: &&Volume| other.pool.is_none() && other.name == pool.name;
        if let Some(other) = volumes.iter().find(same_name) {
            let message = format!(
                "is the name of volume {}, which is not in the pool: its hosts could be taken for members",
                other.name
            );
            return Err(at.error("pool", message));
        }
        let members = volumes.iter().filter(|other| are_one_pool(volume, other)).count();
        let slots = volume.exchange.as_ref().and_then(Exchange::slots).map(|slots| slots.slots);
        let slots = slots.map_or(usize::MAX, |slots| slots.get() as usize);
        let pool = &pool.name;
        let message = format!(
            "has {slots} slots for the {members} volumes of pool {pool} on this host alone"
        );
        at.refuse_if(slots < members, "exchange", message)?;
        let mates = volumes[..i].iter().filter(|other| are_one_pool(volume, other));
        let met = mates.filter_map(|other| Some((other, other.exchange.as_ref()?)));
        for (mate, other) in met {
            let Some(own) = &volume.exchange else { continue };
            if let Some((key, why)) = apart(own, other) {
                let rule = "of the same pool: its volumes meet in one exchange";
                return Err(at.error(key, format!("{why} volume {}, {rule}", mate.name)));
            }
        }
    }
    Ok(())
}

/// Reason why two volumes of one host do not meet, with the key that is wrong.
fn apart(own: &Exchange, other: &Exchange) -> Option<(&'static str, String)> {
    let another = || Some(("exchange", "is not the exchange of".to_owned()));
    if let (Some(own), Some(other)) = (own.slots(), other.slots()) {
        let place = |slots: &Slots| (slots.place.clone(), slots.offset, slots.slots);
        if place(own) != place(other) {
            return another();
        }
        if own.choice == other.choice && own.choice != SlotChoice::Automatic {
            return Some(("exchange.slot", "is the slot of".to_owned()));
        }
    }
    match (own.udp(), other.udp(), own.etcd(), other.etcd()) {
        (Some(own), Some(other), ..) => misses(own, other),
        (None, None, Some(own), Some(other)) if own.prefix == other.prefix => None,
        (None, None, None, None) if own.slots().is_some() == other.slots().is_some() => None,
        _ => another(),
    }
}

/// Reason why a volume's datagrams do not reach the other one.
fn misses(own: &Udp, other: &Udp) -> Option<(&'static str, String)> {
    match (&own.reach, &other.reach) {
        (UdpReach::Group { .. }, UdpReach::Group { .. }) if own.address == other.address => None,
        (UdpReach::Peers(to), UdpReach::Peers(back)) => {
            // Two files may hold the same keys.
            if (own.keys == KeySource::Loopback) != (other.keys == KeySource::Loopback) {
                return Some(("exchange.key_file", "is there or missing, unlike with".to_owned()));
            }
            // The addresses of a name are not known here.
            let misses = |peers: &[PeerAddress], of: &Udp| {
                peers
                    .iter()
                    .all(|peer| matches!(peer, PeerAddress::Address(at) if *at != of.address))
            };
            if misses(to, other) {
                return Some((
                    "exchange.peers",
                    format!("lacks {}, the address of", other.address),
                ));
            }
            let why = || format!("needs {} among the peers of", own.address);
            misses(back, own).then(|| ("exchange.udp", why()))
        }
        _ => Some(("exchange.udp", "is in another group than".to_owned())),
    }
}
