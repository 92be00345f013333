//! Names of volumes, disks and VMs.

use parda_config::{Error, TablePart};

/// Refuses a name that is empty, or that is a directory in a URL of the API.
pub(super) fn check_name(at: &TablePart<'_>, key: &str, name: &str) -> Result<(), Error> {
    at.refuse_if(name.is_empty(), key, "must not be empty")?;
    let message = "is a directory in a URL, so that the API could not name it: choose another name";
    at.refuse_if(matches!(name, "." | ".."), key, message)
}

/// Refuses names of a list that are empty, or stand twice. `list`: path of the list.
pub(super) fn are_names(at: &TablePart<'_>, list: &str, names: &[&str]) -> Result<(), Error> {
    for (i, name) in names.iter().enumerate() {
        let key = format!("{list}.{i}.name");
        check_name(at, &key, name)?;
        let message = "is also the name of another VM: names must differ";
        at.refuse_if(names[..i].contains(name), &key, message)?;
    }
    Ok(())
}
