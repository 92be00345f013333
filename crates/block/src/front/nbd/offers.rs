//! Disks that clients find at each address.

use std::collections::{BTreeMap, HashMap};

use parda_address::Address;

use super::conn::Offer;
use crate::client::Offered;

/// Offers of all listeners. Each is made when a client asks for it: disks may come and go by thousands meanwhile.
#[derive(Default)]
pub(super) struct Offers {
    at: HashMap<Address, Place>,
    nothing: Offer,
}

#[derive(Default)]
struct Place {
    /// Disks by name and key: they open in any order, and clients see them in the same order each time.
    disks: BTreeMap<(String, usize), Offered>,
    /// Nothing after a change.
    offer: Option<Offer>,
}

impl Offers {
    /// A disk is offered at these addresses, or offers something else there.
    pub(super) fn add(&mut self, key: usize, offered: &Offered, listen: &[Address]) {
        for address in listen {
            let place = self.at.entry(address.clone()).or_default();
            place.disks.insert(place_of(key, offered), offered.clone());
            place.offer = None;
        }
    }

    /// A disk is not offered at these addresses any more.
    pub(super) fn remove(&mut self, key: usize, offered: &Offered, listen: &[Address]) {
        for address in listen {
            let Some(place) = self.at.get_mut(address) else { continue };
            place.disks.remove(&place_of(key, offered));
            place.offer = None;
            if place.disks.is_empty() {
                self.at.remove(address);
            }
        }
    }

    /// Offer of the listener at an address.
    pub(super) fn at(&mut self, address: &Address) -> &Offer {
        let Some(Place { disks, offer }) = self.at.get_mut(address) else { return &self.nothing };
        offer.get_or_insert_with(|| {
            let mut offer = Offer::default();
            disks.iter().for_each(|((_, key), offered)| offer.add(*key, offered));
            offer
        })
    }

    /// Offer to a connection whose listener is gone, or which needs none.
    pub(super) fn nothing(&self) -> &Offer {
        &self.nothing
    }
}

fn place_of(key: usize, offered: &Offered) -> (String, usize) {
    (offered.name.as_str().to_owned(), key)
}
