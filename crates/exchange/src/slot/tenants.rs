//! Tenants in a record: up to [`MOST_TENANTS`] entries, each number as a power of two.

use parda_control::{TenantId, TenantPart};

use super::power::{code, value};

/// Most tenants that a record has room for.
pub const MOST_TENANTS: usize = 10;

/// Bytes of an entry.
const ENTRY: usize = 16;

/// Bytes of all entries.
pub(super) const BYTES: usize = MOST_TENANTS * ENTRY;

/// The bit of a number that is not its own. In the second number: whether the tenant wants more. In the others: a bit of its
/// terms.
const WANTS: u16 = 1 << 15;

/// The numbers with a bit of the terms, the lowest bit first.
const TERMS: [usize; 5] = [0, 2, 3, 4, 5];

/// Writes entries. Entries beyond [`MOST_TENANTS`] are left out.
pub(super) fn put(to: &mut [u8], tenants: &[TenantPart]) {
    for (entry, tenant) in to.chunks_exact_mut(ENTRY).zip(tenants) {
        let TenantPart { id, shares, used, wants, rate, outstanding, wish, active, terms } =
            *tenant;
        let bit = |set: bool| if set { WANTS } else { 0 };
        let mut numbers = [shares, used, rate, outstanding, wish, active].map(code);
        numbers[1] |= bit(wants);
        TERMS.iter().enumerate().for_each(|(i, at)| numbers[*at] |= bit(terms >> i & 1 == 1));
        let (name, rest) = entry.split_at_mut(4);
        name.copy_from_slice(&id.0.to_le_bytes());
        for (to, number) in rest.chunks_exact_mut(2).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// Reads entries, up to the first without a tenant.
pub(super) fn get(from: &[u8]) -> Vec<TenantPart> {
    let entries = from.chunks_exact(ENTRY).map(|entry| {
        let (name, rest) = entry.split_at(4);
        let codes = rest.chunks_exact(2).map(|code| u16::from_le_bytes([code[0], code[1]]));
        let mut numbers = [0; 6];
        numbers.iter_mut().zip(codes).for_each(|(to, code)| *to = code);
        let [shares, used, rate, outstanding, wish, active] = numbers.map(value);
        let is = |at: usize| numbers[at] & WANTS != 0;
        let terms = TERMS.iter().rev().fold(0, |terms, at| terms << 1 | u8::from(is(*at)));
        let id = TenantId(u32::from_le_bytes(std::array::from_fn(|i| name[i])));
        TenantPart { id, shares, used, wants: is(1), rate, outstanding, wish, active, terms }
    });
    entries.take_while(|entry| entry.id.0 != 0).collect()
}
