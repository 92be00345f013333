//! Threads that look for lost servers, because connecting blocks.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use parda_address::Uri;
use parda_awake::Instant;
use parda_nbd::client::Agreed;

use crate::backend::NbdOptions;
use crate::backend::connect::{compatible, connect};
use crate::disk_id::DiskId;
use crate::mailbox::{Mailer, News};

/// Delay of the first attempt to connect again. Each later attempt waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest delay of an attempt: a server that is back is found within this.
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Interval at which the log reports that a server is still away.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Disk of a server, as others know it.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) volume: String,
    pub(crate) name: String,
    pub(crate) disk: DiskId,
    pub(crate) mailer: Mailer,
}

/// What a search for a lost server has to know.
#[derive(Clone)]
pub(super) struct Search {
    pub(super) owner: Owner,
    pub(super) uri: Uri,
    pub(super) options: NbdOptions,
    pub(super) agreed: Agreed,
    /// Place for the reason of a failed search, as long as a request waits.
    pub(super) away: Weak<Mutex<Option<String>>>,
}

impl Search {
    /// Looks for the server of a connection; [`News::Reconnected`] brings it. `failures`: how many
    /// connections before were lost without an answer.
    pub(super) fn begin(self, lane: usize, failures: u32) {
        let volume = self.owner.volume.clone();
        let thread = std::thread::Builder::new().name("parda-reconnect".into());
        if let Err(error) = thread.spawn(move || self.run(lane, failures)) {
            tracing::error!(volume, %error, "cannot look for the lost NBD server");
        }
    }

    fn run(self, lane: usize, failures: u32) {
        let mut pause = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LAST_PAUSE);
        let (mut tries, mut said) = (0u64, None::<Instant>);
        let began = Instant::now();
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
                        let disk = self.owner.disk;
                        self.owner.mailer.send(News::Reconnected { disk, lane, connected });
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
                said = Some(Instant::now());
                let (volume, disk, away) = (&self.owner.volume, &self.owner.name, began.elapsed());
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

    fn note(&self, why: Option<&str>) {
        if let Some(away) = self.away.upgrade() {
            *away.lock().unwrap_or_else(PoisonError::into_inner) = why.map(str::to_owned);
        }
    }
}

/// A factor from 0.5 to 1, so that many who lost one server do not come back at one moment.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::thread::current().id());
    0.5 + (random % 1024) as f64 / 2048.0
}
