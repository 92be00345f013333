//! Replacement of a file as a whole.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::Path;

/// Replaces a file, or makes it: after a crash it is the old one or the new one. A link stays, and the
/// file that it leads to is replaced. The file has these mode bits, and the owner and group if they are
/// given.
///
/// # Errors
/// A file of a random name beside it cannot be written, or cannot take its name.
pub fn replace(path: &Path, text: &str, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".parda-").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    if let Some((user, group)) = owner {
        fchown(&new, Some(user), Some(group))?;
    }
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(&path).map_err(|error| error.error)?;
    // The new name is durable once the directory is.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_is_replaced_with_its_mode_and_what_is_beside_it_or_leads_to_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other, link] = ["a", "a.new", "link"].map(|name| dir.path().join(name));
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, "one", 0o600, None).unwrap();
        assert_eq!(mode(), 0o600);
        fs::write(&other, "a draft").unwrap();
        symlink("a", &link).unwrap();
        replace(&link, "two", 0o644, None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(mode(), 0o644);
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&other).unwrap(), "a draft");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_cannot_be_replaced_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        fs::create_dir(&path).unwrap();
        replace(&path, "text", 0o600, None).unwrap_err();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
