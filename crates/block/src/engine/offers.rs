//! Disks that clients find at each address.

use std::collections::{BTreeSet, HashMap};

use parda_address::{Address, ExportName};

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
    /// A disk is offered at these addresses, or offers something else there.
    pub(super) fn add(&mut self, key: usize, name: &ExportName, listen: &[Address]) {
        for address in listen {
            let place = self.at.entry(address.clone()).or_default();
            place.disks.insert((name.as_str().to_owned(), key));
            place.offer = None;
        }
    }

    /// A disk is not offered at these addresses any more.
    pub(super) fn remove(&mut self, key: usize, name: &ExportName, listen: &[Address]) {
        for address in listen {
            let Some(place) = self.at.get_mut(address) else { continue };
            place.disks.remove(&(name.as_str().to_owned(), key));
            place.offer = None;
            if place.disks.is_empty() {
                self.at.remove(address);
            }
        }
    }

    /// Offer of the listener at an address; `add` adds the disk with that key.
    pub(super) fn at(&mut self, address: &Address, add: impl Fn(&mut Offer, usize)) -> &Offer {
        let Some(Place { disks: keys, offer }) = self.at.get_mut(address) else {
            return &self.nothing;
        };
        offer.get_or_insert_with(|| {
            let mut offer = Offer::default();
            keys.iter().for_each(|(_, key)| add(&mut offer, *key));
            offer
        })
    }

    /// Offer to a connection whose listener is gone, or which needs none.
    pub(super) fn nothing(&self) -> &Offer {
        &self.nothing
    }
}
