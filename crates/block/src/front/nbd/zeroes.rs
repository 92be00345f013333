//! Whether data is all zeroes.

/// Whether all bytes are zero.
///
/// Other data differs within its first bytes, as a rule. Zeroes are compared with themselves,
/// shifted, by the C library: a few times faster than a copy.
pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    const HEAD: usize = 16;
    match bytes.split_at_checked(HEAD) {
        Some((head, rest)) => head == [0; HEAD] && *rest == bytes[..rest.len()],
        None => bytes.iter().all(|b| *b == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_enough() {
        for len in [0, 1, 15, 16, 17, 32, 511, 512, 4096] {
            let mut bytes = vec![0; len];
            assert!(all_zero(&bytes), "{len}");
            for at in 0..len {
                bytes[at] = 1;
                assert!(!all_zero(&bytes), "{len}: {at}");
                bytes[at] = 0;
            }
        }
    }
}
