//! Help with files that the process's user or the agent's unit keeps from it.

use std::io;
use std::path::Path;

/// What to do about a file that is read-only, if its mount is not. `directory`: that of the file, if its path says it.
#[must_use]
pub fn protected(directory: Option<&Path>) -> String {
    let directory = directory.unwrap_or(Path::new("/DIR, with its directory")).display();
    format!(
        ". Unless its mount is read-only, the agent's unit keeps it so: `systemctl edit parda`, and below [Service] \
         the line ReadWritePaths={directory}"
    )
}

/// What to do about an error of the system with a file or device, if the user or the agent's unit lacks the rights. `user` is the number of
/// the process's user: `User=` of a unit may be any, and a look for its name may wait for a network.
#[must_use]
pub fn rights(error: &io::Error, file: &Path, user: u32) -> Option<String> {
    let page = "/usr/share/doc/parda/docs/installing.md#disks";
    match error.raw_os_error()? {
        // EACCES. Of a device, what setfacl sets is lost when udev sets it up again.
        13 if file.starts_with("/dev") => {
            Some(format!(". User {user} lacks the rights: a udev rule gives them ({page})"))
        }
        13 => Some(format!(
            ". User {user} lacks the rights: `setfacl -m u:{user}:rw {}`, and x on its directories ({page})",
            file.display()
        )),
        // EROFS
        30 => Some(protected(file.parent().filter(|_| file.is_absolute()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(code: i32, file: &str) -> String {
        rights(&io::Error::from_raw_os_error(code), Path::new(file), 7077).unwrap_or_default()
    }

    #[test]
    fn an_error_names_the_command_or_the_line_that_mends_it() {
        assert!(
            help(13, "/data/a.img")
                .contains("User 7077 lacks the rights: `setfacl -m u:7077:rw /data/a.img`")
        );
        assert!(help(13, "/dev/mapper/a").contains("a udev rule"));
        assert!(help(30, "/data/vm/a.img").ends_with("the line ReadWritePaths=/data/vm"));
        assert!(help(30, "a.img").ends_with("the line ReadWritePaths=/DIR, with its directory"));
        assert_eq!(help(5, "/data/a.img"), "");
    }
}
