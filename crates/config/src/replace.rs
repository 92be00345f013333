//! Replacement of a file as a whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

/// Replaces a file, or makes it: after a crash it is the old one or the new one. A link is replaced
/// itself. The file has these mode bits, and the owner and group if they are given.
///
/// # Errors
/// The file beside it, `PATH.parda-new`, cannot be written or take its name.
pub fn replace(path: &Path, text: &str, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".parda-new");
    // A crash may have left one there. A link is removed, not followed.
    let _ = fs::remove_file(&new);
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    if let Err(error) = written() {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    // The new name is durable once the directory is.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_with_its_mode_and_what_is_beside_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["a.toml", "a.toml.new"].map(|name| dir.path().join(name));
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, "one", 0o600, None).unwrap();
        assert_eq!(mode(), 0o600);
        fs::write(&other, "a draft").unwrap();
        // What a crash left, and a link that leads elsewhere.
        symlink(&other, dir.path().join("a.toml.parda-new")).unwrap();
        replace(&path, "two", 0o644, None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(mode(), 0o644);
        assert_eq!(fs::read_to_string(&other).unwrap(), "a draft");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
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
