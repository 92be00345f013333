//! Disks that clients find at each address.

use std::collections::{BTreeSet, HashMap};

use parda_address::Address;
use slab::Slab;

use super::Disk;
use crate::conn::Offer;

/// Offers of all listeners. Each is made when a client asks for it: disks may come and go by thousands meanwhile.
#[derive(Default)]
pub(super) struct Offers {
    at: HashMap<Address, Place>,
    nothing: Offer,
}

#[derive(Default)]
struct Place {
    /// Names and keys of disks: they open in any order, and clients see them in the same order each time.
    disks: BTreeSet<(String, usize)>,
    /// Nothing after a change.
    offer: Option<Offer>,
}

impl Offers {
    /// A disk is offered where it says.
    pub(super) fn add(&mut self, key: usize, disk: &Disk) {
        for address in &disk.listen {
            let place = self.at.entry(address.clone()).or_default();
            place.disks.insert((disk.name.as_str().to_owned(), key));
            place.offer = None;
        }
    }

    /// A disk is not offered any more.
    pub(super) fn remove(&mut self, key: usize, disk: &Disk) {
        for address in &disk.listen {
            let Some(place) = self.at.get_mut(address) else { continue };
            place.disks.remove(&(disk.name.as_str().to_owned(), key));
            place.offer = None;
            if place.disks.is_empty() {
                self.at.remove(address);
            }
        }
    }

    /// Offer of the listener at an address.
    pub(super) fn at(&mut self, address: &Address, disks: &Slab<Disk>) -> &Offer {
        let Some(Place { disks: keys, offer }) = self.at.get_mut(address) else {
            return &self.nothing;
        };
        offer.get_or_insert_with(|| {
            let mut offer = Offer::default();
            for (key, disk) in keys.iter().filter_map(|(_, key)| Some((*key, disks.get(*key)?))) {
                offer.add(key, &disk.name, &disk.description, disk.geometry);
            }
            offer
        })
    }

    /// Offer to a connection whose listener is gone, or which needs none.
    pub(super) fn nothing(&self) -> &Offer {
        &self.nothing
    }
}
