//! Path states of a multipath device. The kernel reports them to `dmsetup` only, which is present
//! wherever `multipathd` is.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::DevNum;
use crate::device::{Device, Queue};
use crate::sysfs;

/// State of a path.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PathState {
    /// The path carries IOs.
    Active,
    /// The path works, in a group that is not in use.
    Standby,
    /// The path has failed.
    Failed,
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
/// groups, the group used next, and each group. A group has its state, its selector's numbers, and
/// its number of paths with the count of numbers of each. Each path has its state and its failures.
fn parse(status: &str) -> Option<Vec<(DevNum, PathState)>> {
    let words = status.split_whitespace().skip_while(|word| *word != "multipath").skip(1);
    let mut words = Words(words);
    words.skip_counted()?;
    words.skip_counted()?;
    let groups = words.number()?;
    let _next_group = words.number()?;
    let mut found = Vec::new();
    for _ in 0..groups {
        words.group(&mut found)?;
    }
    // No group has been used yet: the first IO takes the first group with a path.
    if found.iter().all(|(_, state)| *state != PathState::Active) {
        let waiting = found.iter_mut().filter(|(_, state)| *state == PathState::Standby);
        waiting.for_each(|(_, state)| *state = PathState::Active);
    }
    Some(found)
}

/// Words of a status. `None` where they end.
struct Words<I>(I);

impl<'a, I: Iterator<Item = &'a str>> Words<I> {
    fn number(&mut self) -> Option<usize> {
        self.0.next()?.parse().ok()
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        (0..n).try_for_each(|_| self.0.next().map(drop))
    }

    /// Skips a number and as many words as it says.
    fn skip_counted(&mut self) -> Option<()> {
        let count = self.number()?;
        self.skip(count)
    }

    fn group(&mut self, found: &mut Vec<(DevNum, PathState)>) -> Option<()> {
        let in_use = self.0.next()? == "A";
        self.skip_counted()?;
        let (paths, numbers) = (self.number()?, self.number()?);
        for _ in 0..paths {
            let device: DevNum = self.0.next()?.parse().ok()?;
            let works = self.0.next()? == "A";
            let _failures = self.number()?;
            self.skip(numbers)?;
            let state = match (works, in_use) {
                (false, _) => PathState::Failed,
                (true, true) => PathState::Active,
                (true, false) => PathState::Standby,
            };
            found.push((device, state));
        }
        Some(())
    }
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
