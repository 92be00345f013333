//! Metadata contexts, of which there is one: `base:allocation`.

use crate::wire::Reader;

/// The context that tells which parts of an export are allocated and which read as zeroes.
pub const ALLOCATION: &str = "base:allocation";

/// The number that our server gives it in replies to BLOCK_STATUS.
pub const ALLOCATION_ID: u32 = 1;

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(crate) struct Queries<'a> {
    pub(crate) name: &'a [u8],
    count: u32,
    data: &'a [u8],
}

impl<'a> Queries<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let name_len = Reader(reader.take(4)?).u32();
        let name = reader.take(name_len as usize)?;
        let count = Reader(reader.take(4)?).u32();
        let queries = Self { name, count, data: reader.0 };
        // The count is not trusted: the queries must be there, and nothing after them.
        for _ in 0..count {
            let len = Reader(reader.take(4)?).u32();
            reader.take(len as usize)?;
        }
        reader.0.is_empty().then_some(queries)
    }

    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut reader = Reader(self.data);
        std::iter::from_fn(move || {
            let len = Reader(reader.take(4)?).u32();
            reader.take(len as usize)
        })
    }

    /// Whether a list of contexts with these queries names `base:allocation`: without a query a
    /// list has all, and `base:` asks for all of that name space.
    pub(crate) fn lists_allocation(&self) -> bool {
        self.count == 0 || self.iter().any(|q| q == b"base:" || q == ALLOCATION.as_bytes())
    }

    /// Whether these queries choose `base:allocation`, which must be named in full.
    pub(crate) fn chooses_allocation(&self) -> bool {
        self.iter().any(|q| q == ALLOCATION.as_bytes())
    }
}

/// The data of an option that asks for these contexts of an export.
#[must_use]
pub fn queries(export: &str, contexts: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    let string = |data: &mut Vec<u8>, s: &str| {
        data.extend_from_slice(&(s.len() as u32).to_be_bytes());
        data.extend_from_slice(s.as_bytes());
    };
    string(&mut data, export);
    data.extend_from_slice(&(contexts.len() as u32).to_be_bytes());
    contexts.iter().for_each(|context| string(&mut data, context));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_whole_or_not_at_all() {
        let data = queries("vm1", &["qemu:dirty-bitmap:b", ALLOCATION]);
        let parsed = Queries::parse(&data).unwrap();
        assert_eq!(parsed.name, b"vm1");
        assert!(parsed.lists_allocation() && parsed.chooses_allocation());
        for cut in 0..data.len() {
            assert!(Queries::parse(&data[..cut]).is_none(), "{cut}");
        }
        assert!(Queries::parse(&[&data[..], &[0]].concat()).is_none());
        // A count that no data stands behind.
        let mut lies = queries("", &[]);
        lies[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Queries::parse(&lies).is_none());
    }

    #[test]
    fn a_name_space_can_be_listed_but_not_chosen() {
        for (contexts, lists, chooses) in [
            (&[][..], true, false),
            (&["base:"], true, false),
            (&["base:allocation"], true, true),
            (&["base:allocation2", "x:", ""], false, false),
        ] {
            let data = queries("e", contexts);
            let parsed = Queries::parse(&data).unwrap();
            let found = (parsed.lists_allocation(), parsed.chooses_allocation());
            assert_eq!(found, (lists, chooses), "{contexts:?}");
        }
    }
}
