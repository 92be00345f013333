//! Lines of the log, which are events too, on live changes and their authors. Repeated changes of one setting make one line a second, with
//! the number of changes. A flood of them thus hides no line on other changes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use parda_api::ChangedSetting;
use parda_http::{Caller, ChangeTarget};

use crate::locked::locked;

/// Time between two lines on one setting.
const PAUSE: Duration = Duration::from_secs(1);

/// Changes of settings that were logged in the last second, and changes to be logged.
#[derive(Default)]
pub(crate) struct Audit(Mutex<HashMap<Key, Last>>);

/// Volume and part of it, setting and author.
type Key = (ChangeTarget, String, String);

struct Last {
    said: Instant,
    /// The change to be logged, from the value logged last to the one in force. The number is that of the changes merged into it.
    waits: Option<(Change, u64)>,
}

/// A change of a setting.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) place: ChangeTarget,
    pub(super) setting: ChangedSetting,
}

impl Audit {
    /// Logs a change at once, or with the next [`Audit::flush`] if its author has just changed the same setting.
    pub(super) fn say(&self, mut change: Change, who: &Caller) {
        let author = format!("{} at {}", who.name, who.at);
        let key = (change.place.clone(), change.setting.setting.clone(), author);
        let mut changes = locked(&self.0);
        let Some(last) = changes.get_mut(&key) else {
            changes.insert(key, Last { said: Instant::now(), waits: None });
            drop(changes);
            return change.say(&who.name, &who.at, 1);
        };
        let mut count = 1;
        if let Some((first, before)) = last.waits.take() {
            change.setting.before = first.setting.before;
            count += before;
        }
        last.waits = Some((change, count));
    }

    /// Logs all changes that wait. Called each second.
    pub(crate) fn flush(&self) {
        let mut say = Vec::new();
        let now = Instant::now();
        locked(&self.0).retain(|(.., who), last| match last.waits.take() {
            Some((change, count)) => {
                last.said = now;
                say.push((change, count, who.clone()));
                true
            }
            None => now - last.said < PAUSE,
        });
        for (change, count, who) in say {
            let (name, at) = who.rsplit_once(" at ").unwrap_or((&who, ""));
            change.say(name, at, count);
        }
    }
}

impl Change {
    /// Logs the change, which is an event too.
    fn say(&self, by: &str, at: &str, count: u64) {
        let Change { place: ChangeTarget { volume, of }, setting } = self;
        let (disk, tenant) = of.names();
        let ChangedSetting { setting, before, in_force, from, took_effect, configured: _ } =
            setting;
        let later = if *took_effect { "" } else { ", not in force yet" };
        let often = if count > 1 { format!(", in {count} changes") } else { String::new() };
        tracing::info!(
            volume,
            disk,
            tenant,
            by,
            at,
            event = "live_change",
            "{setting} = {in_force} (before: {before}), {}{later}{often}",
            from.words()
        );
    }
}

#[cfg(test)]
mod tests {
    use parda_http::Of;

    use super::*;
    use crate::events::tests::recorded;

    #[test]
    fn a_flood_of_changes_of_one_setting_is_a_line_and_hides_no_other() {
        let audit = Audit::default();
        let who = |name: &str| Caller {
            name: name.to_owned(),
            at: "the unix socket".to_owned(),
            role: parda_api::Role::Admin,
        };
        let change = |disk: &str, before: u32, now: u32| Change {
            place: ChangeTarget { volume: "array".to_owned(), of: Of::Disk(disk.to_owned()) },
            setting: ChangedSetting {
                setting: "shares".to_owned(),
                before: before.into(),
                in_force: now.into(),
                configured: before.into(),
                from: parda_api::ValueFrom::State,
                took_effect: true,
            },
        };
        let recorder = recorded(|| {
            for shares in 1..100 {
                audit.say(change("vm1", shares, shares + 1), &who("uid 0"));
            }
            audit.say(change("vm2", 5, 6), &who("uid 0"));
            audit.say(change("vm1", 100, 7), &who("ops"));
            audit.flush();
            audit.flush();
        });
        let told = recorder.answer(parda_api::EventsQuery::default()).events;
        let told: Vec<_> = told.iter().map(|event| event.message.as_str()).collect();
        let by = |name: &str| format!(" by={name} at=the unix socket");
        assert_eq!(
            told,
            [
                format!("shares = 2 (before: 1), kept in the state file{}", by("uid 0")),
                format!("shares = 6 (before: 5), kept in the state file{}", by("uid 0")),
                format!("shares = 7 (before: 100), kept in the state file{}", by("ops")),
                format!(
                    "shares = 100 (before: 2), kept in the state file, in 98 changes{}",
                    by("uid 0")
                ),
            ]
        );
    }
}
