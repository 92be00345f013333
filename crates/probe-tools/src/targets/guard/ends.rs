//! Check of a target's first and last MiB, and the mark of targets that may be overwritten.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Why;

/// Length of either end of a target, in bytes. The ends are checked, and loads leave them out.
pub(crate) const EDGE: u64 = 1 << 20;

/// Line of which the mark consists, repeated to the length of a block.
const LINE: &[u8; 64] = b"parda probe --allow-writes: all of this is there to be written.\n";

/// Length of the mark in bytes. The mark is the first block of a target that may be overwritten.
const MARK: usize = 4096;

fn mark_block() -> Vec<u8> {
    LINE.repeat(MARK / LINE.len())
}

/// Fills a buffer from an offset of the target.
pub(crate) type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), Why>;

/// Checks both ends of a target. `Ok(true)` if both are zeroes, `Ok(false)` if the target has the
/// mark.
pub(crate) fn unmarked(bytes: u64, read: ReadAt<'_>) -> Result<bool, Why> {
    if bytes < 4 * EDGE {
        return Err(Why::Unmarked(format!("it has {bytes} bytes, and 4 MiB are the least")));
    }
    let mut edge = vec![0; EDGE as usize];
    read(0, &mut edge)?;
    let marked = edge[..MARK] == mark_block();
    if marked {
        edge[..MARK].fill(0);
    }
    let end = bytes - EDGE;
    for start in [0, end] {
        if start > 0 {
            read(start, &mut edge)?;
        }
        if let Some(at) = edge.iter().position(|byte| *byte != 0) {
            let at = start + at as u64;
            return Err(Why::Unmarked(format!(
                "it holds data at byte {at}, and only what begins and ends with a MiB of zeroes is plainly \
                 not in use; if none of it is needed, say so with: blkdiscard -z, or dd if=/dev/zero"
            )));
        }
    }
    Ok(!marked)
}

/// Writes the mark by `write`, which writes at the beginning of the target.
pub(crate) fn mark(write: &mut dyn FnMut(&[u8]) -> Result<(), Why>) -> Result<(), Why> {
    write(&mark_block())
}

/// Creates a file that may be overwritten: the mark, then data everywhere but in the two ends.
pub(crate) fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::create_new(path)?;
    let made = fill(&file, bytes);
    if made.is_err() {
        // An incomplete file is useless. The file did not exist before, so it may be removed.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let mut random = fastrand::Rng::new();
    let mut chunk = vec![0; EDGE as usize];
    chunk[..MARK].copy_from_slice(&mark_block());
    file.write_all(&chunk)?;
    for _ in 1..bytes / EDGE - 1 {
        random.fill(&mut chunk);
        file.write_all(&chunk)?;
    }
    chunk.fill(0);
    file.write_all_at(&chunk, bytes - EDGE)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(content: &[u8]) -> Result<bool, String> {
        let mut read = |at: u64, buffer: &mut [u8]| {
            buffer.copy_from_slice(&content[at as usize..][..buffer.len()]);
            Ok(())
        };
        unmarked(content.len() as u64, &mut read).map_err(|why| why.to_string())
    }

    #[test]
    fn zeroes_and_the_mark_are_good_and_a_single_bit_beside_them_is_not() {
        let mut content = vec![0; 4 << 20];
        assert_eq!(look(&content), Ok(true));
        content[2 << 20] = 1;
        assert_eq!(look(&content), Ok(true), "what lies between is not looked at");
        content[..MARK].copy_from_slice(&mark_block());
        assert_eq!(look(&content), Ok(false));
        for at in [0, 100, MARK - 1, MARK, EDGE as usize - 1, 3 << 20, (4 << 20) - 1] {
            let mut content = content.clone();
            content[at] ^= 0x10;
            let why = look(&content).unwrap_err();
            let expected = if at < MARK { 0 } else { at };
            assert!(why.contains(&format!("data at byte {expected},")), "{at}: {why}");
        }
        assert!(look(&content[..3 << 20]).unwrap_err().contains("4 MiB are the least"));
    }

    #[test]
    fn a_file_is_made_with_its_mark_and_never_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        create(&path, 5 << 20).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!((content.len(), look(&content)), (5 << 20, Ok(false)));
        assert!(content[1 << 20..4 << 20].chunks(4096).all(|c| c.iter().any(|b| *b != 0)));
        assert_eq!(create(&path, 5 << 20).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}
