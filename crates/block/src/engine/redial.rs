//! Disks behind other NBD servers: their time-outs, and the threads that look for lost servers,
//! because connecting blocks.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use parda_address::Uri;
use parda_control::{Instant, Span};
use parda_nbd::client::Agreed;

use super::{Disk, Engine};
use crate::backend::connect::{compatible, connect};
use crate::backend::upstream::Lost;
use crate::backend::{Backend, NbdOptions};
use crate::disk_id::DiskId;
use crate::mailbox::{Command, Mailer};
use crate::stats::VmStats;

/// How long the first attempt to connect again is put off. Each that follows waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How long an attempt is put off at most: a server that is back is found within this.
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// How often the log says that a server is still away.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How often a volume that ends looks whether it still waits for anybody but silent servers.
const LOOK_EVERY: Span = Span::from_millis(250);

impl Engine {
    /// Looks for the connections of a new disk that are not opened yet.
    pub(super) fn dial_the_rest(&self, key: usize) {
        let Backend::Nbd(up) = &self.disks[key].backend else { return };
        for lane in up.unopened() {
            self.redial(key, lane, 0);
        }
    }

    /// When a volume that ends looks whether it waits for silent servers alone.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.stop_by.map(|_| self.now() + LOOK_EVERY)
    }

    /// Does what is due at servers behind disks.
    pub(super) fn upstream_timers(&mut self, now: Instant) {
        let mut i = 0;
        while let Some(&index) = self.stirred.get(i) {
            i += 1;
            let Some(disk) = self.disks.get_mut(index) else { continue };
            let Backend::Nbd(up) = &mut disk.backend else { continue };
            if up.resume(now, &mut self.work) {
                let (volume, disk) = (&self.name, disk.name.as_str());
                tracing::info!(volume, disk, event = "server_back", "the NBD server is back");
            }
            let lost = up.timers(now, &mut self.work);
            self.upstream_lost(index, lost);
        }
    }

    /// Takes note of what a server may have lost, and looks for a lost connection.
    pub(super) fn upstream_lost(&mut self, index: usize, lost: Option<Lost>) {
        let disk = &mut self.disks[index];
        let Backend::Nbd(up) = &mut disk.backend else { return };
        let losses = up.take_losses();
        (0..losses).for_each(|_| disk.losses.lost());
        let Some(Lost { lane, why, failures }) = lost else { return };
        // Connections that end again and again are not worth a line each.
        if failures == 0 || failures.is_power_of_two() {
            let (volume, disk) = (&self.name, disk.name.as_str());
            let unflushed = if losses > 0 {
                ": writes that were not flushed may be lost, and the next flush will say so"
            } else {
                ""
            };
            tracing::warn!(
                volume,
                disk,
                error = why,
                failures,
                event = "server_lost",
                "lost the NBD server{unflushed}"
            );
        }
        self.redial(index, lane, failures);
    }

    fn redial(&self, disk: usize, lane: usize, failures: u32) {
        let Backend::Nbd(up) = &self.disks[disk].backend else { return };
        let search = Search {
            volume: self.name.clone(),
            name: self.disks[disk].name.to_string(),
            uri: up.uri.clone(),
            options: up.options,
            agreed: up.agreed,
            away: Arc::downgrade(&self.disks[disk].away),
        };
        let (mailer, disk) = (self.mailer.clone(), self.disks[disk].id);
        let spawned = std::thread::Builder::new()
            .name("parda-reconnect".into())
            .spawn(move || search.run(failures, disk, lane, &mailer));
        if let Err(error) = spawned {
            tracing::error!(volume = self.name, %error, "cannot look for the lost NBD server");
        }
    }

    /// Whether a volume that ends waits for nothing but servers that are away or silent.
    pub(super) fn only_silent_servers(&self, now: Instant) -> bool {
        let silent = |disk: usize| match &self.disks[disk].backend {
            Backend::Nbd(up) => up.is_silent(now),
            Backend::File(_) | Backend::Memory(_) => false,
        };
        let mut requests = self.work.requests.iter().map(|(_, request)| request);
        // Those that were not dispatched wait for room in the window, behind the others.
        let some = requests.clone().any(|request| request.id.is_some());
        some && requests.all(|request| request.id.is_none() || silent(request.disk))
    }
}

/// State of the search for a server that was lost.
struct Search {
    volume: String,
    name: String,
    uri: Uri,
    options: NbdOptions,
    agreed: Agreed,
    /// Where to say why it is not found, as long as anybody waits for it.
    away: Weak<Mutex<Option<String>>>,
}

impl Search {
    fn run(self, failures: u32, disk: DiskId, lane: usize, mailer: &Mailer) {
        let mut pause = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LAST_PAUSE);
        let (mut tries, mut said) = (0u64, None::<std::time::Instant>);
        let began = std::time::Instant::now();
        loop {
            std::thread::sleep(pause.mul_f64(jitter()));
            pause = (2 * pause).min(LAST_PAUSE);
            if self.away.strong_count() == 0 {
                return;
            }
            tries += 1;
            let error = match connect(&self.uri, self.options) {
                Ok(connected) => match compatible(&self.agreed, &connected.agreed) {
                    Ok(()) => {
                        self.note(None);
                        mailer.send(Command::Reconnected { disk, lane, connected });
                        return;
                    }
                    Err(why) => format!("it is not what it was: {why}"),
                },
                Err(error) => error.to_string(),
            };
            self.note(Some(&error));
            // The first time as soon as IOs have failed for it; a restart is not worth a line.
            let due =
                said.map_or(began.elapsed() >= self.options.hold, |at| at.elapsed() >= SAID_EVERY);
            if due {
                said = Some(std::time::Instant::now());
                let (volume, disk, away) = (&self.volume, &self.name, began.elapsed());
                tracing::warn!(
                    volume,
                    disk,
                    tries,
                    ?away,
                    error,
                    "still looking for the NBD server"
                );
            }
        }
    }
}

impl Search {
    fn note(&self, why: Option<&str>) {
        if let Some(away) = self.away.upgrade() {
            *away.lock().unwrap_or_else(PoisonError::into_inner) = why.map(str::to_owned);
        }
    }
}

impl Disk {
    /// Its counters, and the reason why its server is not found, if it is looked for.
    pub(super) fn stats(&self) -> VmStats {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner).clone();
        VmStats { away, ..self.stats.clone() }
    }
}

/// A factor from 0.5 to 1, so that many who lost one server do not come back at one moment.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::thread::current().id());
    0.5 + (random % 1024) as f64 / 2048.0
}
