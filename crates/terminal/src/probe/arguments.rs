//! Parsers for the values on the command line of `parda probe`.

use parda_probe::{LoadMix, Purpose};

use crate::quantity::{self, bytes, percent};

/// A disk is addressed in these.
const SECTOR: u64 = 512;
const LARGEST: u64 = 16 << 20;

/// More than any queue.
const DEEPEST: u32 = 4096;

/// As fio has it: `4k` is 4096 bytes, and so is `4KiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let must = || "must be a multiple of 512 bytes, up to 16m, such as 4k".to_owned();
    let possible = |bytes: &u64| (SECTOR..=LARGEST).contains(bytes) && bytes.is_multiple_of(SECTOR);
    bytes(text).ok().filter(possible).ok_or_else(must)
}

/// Parses a mix such as `8k,67,70`: size, percent of reads, percent at random offsets.
pub(super) fn mix(text: &str) -> Result<LoadMix, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let [bytes, read, random] = parts[..] else {
        return Err("must be size, read % and random %, such as 8k,67,70".to_owned());
    };
    Ok(LoadMix {
        size: size(bytes).map_err(|e| format!("{bytes}: {e}"))?,
        read_percent: percent(read).map_err(|e| format!("{read}: {e}"))?,
        random_percent: percent(random).map_err(|e| format!("{random}: {e}"))?,
    })
}

/// Such as `1-64`, or `16` alone.
pub(super) fn depths(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if 1 <= from && from <= to && to <= DEEPEST => Ok((from, to)),
        _ => Err(format!("must be like 1-64, from 1 to {DEEPEST} outstanding")),
    }
}

pub(super) fn purpose(text: &str) -> Result<Purpose, String> {
    quantity::named(text).map_err(|_| "must be depth, size, mix or repeat".to_owned())
}

/// The one published experiment that there is.
pub(super) fn experiment(name: &str) -> Result<String, String> {
    if name == "elling" {
        return Ok(name.to_owned());
    }
    Err(format!("no experiment is called `{name}`: there is elling"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_fios_and_ours() {
        for (text, bytes) in [("4k", 4096), ("512", 512), ("4KiB", 4096), ("1M", 1 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["0", "", "k", "1000", "4kB", "32m", "-4k", "99999999999999999999k"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mix_is_three_numbers() {
        let expected = LoadMix { size: 8192, read_percent: 67, random_percent: 70 };
        assert_eq!(mix("8k,67,70"), Ok(expected));
        assert_eq!(mix("8KiB,67%,70%"), Ok(expected));
        assert!(mix("8k,67").unwrap_err().contains("such as 8k,67,70"));
        assert_eq!(mix("8k,101,0"), Err("101: must be a whole percentage, 0 to 100".to_owned()));
    }

    #[test]
    fn depths_are_a_range_from_one_on() {
        assert_eq!(depths("1-64"), Ok((1, 64)));
        assert_eq!(depths("16"), Ok((16, 16)));
        for text in ["0-4", "8-4", "1-", "a-b", "1-9999"] {
            assert!(depths(text).is_err(), "{text}");
        }
    }
}
