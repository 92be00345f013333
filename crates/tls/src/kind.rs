//! Kinds of keys in certificates, and those that this agent can use.

use std::fmt;

/// Keys of this agent that can be used.
pub(crate) const OURS: &str =
    "RSA of 2048, 3072 or 4096 bits, ECDSA on P-256 or P-384, and Ed25519";

/// Keys of peers and CAs whose signatures can be checked.
pub(crate) const THEIRS: &str = "RSA of 2048 to 8192 bits, ECDSA on P-256 or P-384, and Ed25519";

/// Kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RSA with a modulus of so many bits.
    Rsa(usize),
    /// RSA that is for signatures of PSS alone.
    RsaPss,
    /// ECDSA on a curve.
    Ecdsa(&'static str),
    Ed25519,
    /// Another one, by its name.
    Other(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA of {bits} bits"),
            Self::RsaPss => write!(f, "RSA-PSS"),
            Self::Ecdsa(curve) => write!(f, "ECDSA on {curve}"),
            Self::Ed25519 => write!(f, "Ed25519"),
            Self::Other(name) => write!(f, "{name}"),
        }
    }
}

/// Object identifiers of kinds of keys.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

/// Curves, of which the first two are known.
const CURVES: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], "P-256"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], "P-384"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x23], "P-521"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x0a], "secp256k1"),
];

/// Kinds that their object identifiers name in full.
const OTHERS: [(&[u8], Kind); 4] = [
    (&[0x2b, 0x65, 0x70], Kind::Ed25519),
    (&[0x2b, 0x65, 0x71], Kind::Other("Ed448")),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01], Kind::Other("DSA")),
    (RSA_PSS, Kind::RsaPss),
];

impl Kind {
    /// The kind of a key, from the contents of a `SubjectPublicKeyInfo`.
    pub(crate) fn of(info: &[u8]) -> Kind {
        Kind::parsed(info).unwrap_or(Kind::Other("of an unknown kind"))
    }

    fn parsed(info: &[u8]) -> Option<Kind> {
        let (algorithm, rest) = element(info)?;
        let (name, parameters) = element(algorithm)?;
        if name == RSA {
            // A bit string, of which the first byte tells how many bits of the last are not used: a modulus and an exponent.
            let (bits, _) = element(rest)?;
            let (numbers, _) = element(bits.get(1..)?)?;
            let (modulus, _) = element(numbers)?;
            let modulus = &modulus[modulus.iter().take_while(|byte| **byte == 0).count()..];
            let unused = modulus.first()?.leading_zeros() as usize;
            return Some(Kind::Rsa(modulus.len() * 8 - unused));
        }
        if name == EC {
            let curve = element(parameters).map(|(curve, _)| curve);
            let known = CURVES.iter().find(|(name, _)| Some(*name) == curve);
            return Some(Kind::Ecdsa(known.map_or("another curve", |(_, name)| name)));
        }
        OTHERS.iter().find(|(other, _)| *other == name).map(|(_, kind)| *kind)
    }

    /// Whether signatures by such a key can be checked.
    pub(crate) fn is_checked(self) -> bool {
        matches!(self, Self::Rsa(2048..=8192) | Self::Ecdsa("P-256" | "P-384") | Self::Ed25519)
    }
}

/// Contents of an element of DER.
pub(crate) fn contents(bytes: &[u8]) -> Option<&[u8]> {
    element(bytes).map(|(contents, _)| contents)
}

/// Contents of an element of DER, and what comes behind it.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, mut rest) = bytes.get(1..)?.split_first()?;
    let mut len = usize::from(len);
    if len >= 0x80 {
        let digits = rest.get(..len - 0x80).filter(|digits| digits.len() <= 4)?;
        rest = &rest[digits.len()..];
        len = digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit));
    }
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_key_are_of_an_unknown_kind() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0xff]] {
            assert_eq!(Kind::of(bytes), Kind::Other("of an unknown kind"));
        }
    }
}
