//! Path states of a multipath device. The kernel reports them to `dmsetup` only, which is present
//! wherever `multipathd` is.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::DevNum;
use crate::device::{Device, Queue};
use crate::sysfs;

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// The path carries IOs.
    Active,
    /// The path works, in a group that is not in use.
    Standby,
    /// The path has failed.
    Failed,
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathState::Active => "active",
            PathState::Standby => "standby",
            PathState::Failed => "failed",
        })
    }
}

/// States of a device's paths, in the order of `paths`.
pub(crate) fn states(device: &Device, paths: &[Queue]) -> Vec<PathState> {
    let told = device.multipath.as_deref().filter(|_| device.root == Path::new("/"));
    let told = told.and_then(ask).unwrap_or_default();
    paths.iter().map(|path| state(path, &told)).collect()
}

/// State according to the device mapper, unless the SCSI layer reports a worse one.
fn state(path: &Queue, told: &[(DevNum, PathState)]) -> PathState {
    let scsi = sysfs::read_any(&path.dir.join("device/state"));
    // NVMe's name for a running path is "live".
    if scsi.is_some_and(|state| state != "running" && state != "live") {
        return PathState::Failed;
    }
    let told = told.iter().find(|(number, _)| *number == path.number);
    told.map_or(PathState::Active, |(_, state)| *state)
}

/// Asks the device mapper for the states.
fn ask(name: &str) -> Option<Vec<(DevNum, PathState)>> {
    let answer = Command::new("dmsetup")
        .args(["status", "--noflush", "--target", "multipath", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(std::str::from_utf8(&answer.stdout).ok()?)
}

/// `0 4096 multipath 2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 1 2 8:32 A 0 0 1`: features, handler,
/// groups, the group used next, and each group with its state, its selector's numbers, how many
/// paths it has with how many numbers each, and each path with its state and its failures.
fn parse(status: &str) -> Option<Vec<(DevNum, PathState)>> {
    let mut words = status.split_whitespace().skip_while(|word| *word != "multipath").skip(1);
    let number = |words: &mut dyn Iterator<Item = &str>| words.next()?.parse::<usize>().ok();
    let skip =
        |words: &mut dyn Iterator<Item = &str>, n: usize| (0..n).all(|_| words.next().is_some());
    for _features_then_handler in 0..2 {
        let count = number(&mut words)?;
        skip(&mut words, count).then_some(())?;
    }
    let groups = number(&mut words)?;
    number(&mut words)?;
    let mut found = Vec::new();
    let mut standby_only = true;
    for _ in 0..groups {
        let group = words.next()?;
        let count = number(&mut words)?;
        skip(&mut words, count).then_some(())?;
        let (paths, numbers) = (number(&mut words)?, number(&mut words)?);
        for _ in 0..paths {
            let device: DevNum = words.next()?.parse().ok()?;
            let whole = words.next()? == "A";
            number(&mut words)?;
            skip(&mut words, numbers).then_some(())?;
            let state = match (whole, group) {
                (false, _) => PathState::Failed,
                (true, "A") => PathState::Active,
                (true, _) => PathState::Standby,
            };
            standby_only &= state != PathState::Active;
            found.push((device, state));
        }
    }
    // No group has been used yet: the first IO takes the first group with a path.
    if standby_only {
        for (_, state) in &mut found {
            if *state == PathState::Standby {
                *state = PathState::Active;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathState::{Active, Failed, Standby};

    fn states(status: &str) -> Option<Vec<PathState>> {
        Some(parse(status)?.into_iter().map(|(_, state)| state).collect())
    }

    #[test]
    fn a_path_is_active_in_the_group_in_use_and_waits_in_the_others() {
        let two = "0 2097152 multipath 2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 1 2 8:32 A 0 0 1 \n";
        assert_eq!(states(two), Some(vec![Active, Standby]));
        let one = "0 8 multipath 2 0 0 0 1 1 A 0 2 2 8:16 A 0 0 1 8:32 F 3 0 1";
        assert_eq!(states(one), Some(vec![Active, Failed]));
        let named = "san: 0 8 multipath 2 1 0 1 0 1 1 A 0 2 0 8:16 A 0 8:32 A 0";
        assert_eq!(states(named), Some(vec![Active, Active]));
    }

    #[test]
    fn before_the_first_io_no_group_is_in_use_and_all_count() {
        let fresh = "0 8 multipath 2 0 0 0 2 1 E 0 1 0 8:16 A 0 E 0 1 0 8:32 F 1";
        assert_eq!(states(fresh), Some(vec![Active, Failed]));
    }

    #[test]
    fn what_is_cut_short_says_nothing() {
        let whole = "0 8 multipath 2 0 0 0 1 1 A 0 2 2 8:16 A 0 0 1 8:32 F 3 0 1";
        for end in 0..whole.len() - 2 {
            let cut = &whole[..end];
            assert_eq!(states(cut), None, "{cut:?}");
        }
        assert_eq!(states("0 8 linear 8:16 0"), None);
    }
}
