//! Lines of the log, which are events too, on live changes and their authors. If somebody changes one setting again and again, there is one
//! line a second with the number of changes, so that lines on other changes are not lost in a flood.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use parda_api::ChangedSetting;
use parda_http::{Of, Place, Who};

/// Time between two lines on one setting.
const PAUSE: Duration = Duration::from_secs(1);

/// Changes that were logged in the last second, and changes to be logged.
#[derive(Default)]
pub(crate) struct Audit(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    /// By volume and part of it, setting and author.
    last: HashMap<Key, Last>,
    /// Whether a thread is about to log the waiting changes.
    will: bool,
}

type Key = (Place, String, String);

struct Last {
    said: Instant,
    /// The change to be logged, from the value logged last to the one in force, and the number of changes that it stands for.
    waits: Option<(Change, u64)>,
}

/// A change of a setting.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) place: Place,
    pub(super) setting: ChangedSetting,
}

impl Audit {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a change at once, or within a second if its author has just changed the same setting.
    pub(super) fn say(self: &Arc<Self>, mut change: Change, who: &Who) {
        let key = (
            change.place.clone(),
            change.setting.setting.clone(),
            format!("{} at {}", who.name, who.at),
        );
        let now = Instant::now();
        let mut changes = self.changes();
        changes.last.retain(|_, last| last.waits.is_some() || now - last.said < PAUSE);
        let Some(last) = changes.last.get_mut(&key) else {
            changes.last.insert(key, Last { said: now, waits: None });
            drop(changes);
            return change.say(&who.name, &who.at, 1);
        };
        last.waits = Some(match last.waits.take() {
            Some((first, count)) => {
                change.setting.before = first.setting.before;
                (change, count + 1)
            }
            None => (change, 1),
        });
        if std::mem::replace(&mut changes.will, true) {
            return;
        }
        drop(changes);
        let audit = Arc::clone(self);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let spawned = thread.spawn(move || {
            std::thread::sleep(PAUSE);
            audit.flush();
        });
        if spawned.is_err() {
            self.flush();
        }
    }

    /// Logs all changes that wait.
    pub(crate) fn flush(&self) {
        let mut changes = self.changes();
        changes.will = false;
        let mut say = Vec::new();
        for ((.., who), last) in &mut changes.last {
            if let Some((change, count)) = last.waits.take() {
                last.said = Instant::now();
                say.push((change, count, who.clone()));
            }
        }
        drop(changes);
        for (change, count, who) in say {
            let (name, at) = who.rsplit_once(" at ").unwrap_or((&who, ""));
            change.say(name, at, count);
        }
    }
}

impl Change {
    /// Logs the change, which is an event too.
    fn say(&self, by: &str, at: &str, count: u64) {
        let Change { place: Place { volume, of }, setting } = self;
        let (disk, tenant) = match of {
            Of::Law => (None, None),
            Of::Disk(disk) => (Some(disk), None),
            Of::Tenant(tenant) => (None, Some(tenant)),
        };
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
    use super::*;
    use crate::events::tests::recorded;

    #[test]
    fn a_flood_of_changes_of_one_setting_is_a_line_and_hides_no_other() {
        let audit = Arc::new(Audit::default());
        // No thread logs them, so that the test sees all.
        audit.changes().will = true;
        let who = |name: &str| Who {
            name: name.to_owned(),
            at: "the unix socket".to_owned(),
            role: parda_api::Role::Admin,
        };
        let change = |disk: &str, before: u32, now: u32| Change {
            place: Place { volume: "array".to_owned(), of: Of::Disk(disk.to_owned()) },
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
