//! Transport of the exchange, and its faults: delay, loss and partitions, as hosts see them.

use std::time::Duration;

use parda_config::Amount;
use serde::Deserialize;

/// Upper bound of a delay. Hosts take each other for absent long before.
const MOST_DELAY: Duration = Duration::from_secs(60 * 60);

/// Largest number of members of a scenario's etcd.
pub const MOST_MEMBERS: u8 = 7;

/// Medium in which the hosts of a scenario exchange reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeetingTransport {
    /// In slots on the array.
    #[default]
    File,
    /// Datagrams from host to host.
    Udp,
    /// Keys of an etcd.
    Etcd,
}

/// A change to all members of the etcd at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EtcdEvent {
    /// Members are stopped (SIGSTOP).
    Hang,
    /// Stopped members continue (SIGCONT).
    Resume,
    /// Members are killed. Their data stays.
    Kill,
    /// Killed members start again.
    Start,
}

/// State of the etcd, whose members are all alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtcdState {
    /// All members run and answer.
    #[default]
    Serves,
    /// All members are stopped.
    Hangs,
    /// All members are dead.
    Dead,
}

impl EtcdState {
    /// The state after an event. `None` if the event makes no sense in this state.
    #[must_use]
    pub fn after(self, event: EtcdEvent) -> Option<EtcdState> {
        match (self, event) {
            (EtcdState::Serves, EtcdEvent::Hang) => Some(EtcdState::Hangs),
            (EtcdState::Hangs, EtcdEvent::Resume) | (EtcdState::Dead, EtcdEvent::Start) => {
                Some(EtcdState::Serves)
            }
            (EtcdState::Serves | EtcdState::Hangs, EtcdEvent::Kill) => Some(EtcdState::Dead),
            _ => None,
        }
    }
}

/// Settings of the exchange, in `[exchange]`, and in `exchange = { … }` of a host and of an event. An absent key leaves the
/// setting as it was; the first settings are those of [`Hearing::default`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeSettings {
    /// The transport; the array's slots if absent. Allowed in `[exchange]` only, as are
    /// `members` and `slots`. [`Scenario::transport`] is taken from it.
    ///
    /// [`Scenario::transport`]: crate::Scenario::transport
    pub transport: Option<MeetingTransport>,
    /// Number of members of the etcd; 1 if absent.
    pub members: Option<u8>,
    /// Number of slots. [`Scenario::exchange_slots`] is taken from it.
    ///
    /// [`Scenario::exchange_slots`]: crate::Scenario::exchange_slots
    pub slots: Option<u32>,
    /// Age of what a read returns: see [`Hearing::delay`].
    #[serde(default, with = "parda_config::quantity")]
    pub delay: Option<Duration>,
    /// Fraction of visits that fail: see [`Hearing::loss`]. A percentage.
    pub loss: Option<Amount>,
    /// Whether the exchange can be read and written at all: see [`Hearing::reachable`].
    pub reachable: Option<bool>,
    /// Whether the host's publications reach the exchange: see [`Hearing::writable`].
    pub writable: Option<bool>,
    /// Side of a partition: see [`Hearing::side`].
    pub side: Option<String>,
}

/// State of a host's access to the exchange, and the hosts that it finds there.
#[derive(Clone, Debug, PartialEq)]
pub struct Hearing {
    /// Age of what a read returns: the slots as they were this long ago.
    pub delay: Duration,
    /// Probability that a visit fails, 0 to 1.
    pub loss: f64,
    /// Whether the exchange can be read and written. If not, every visit fails at once.
    pub reachable: bool,
    /// Whether the host's writes to the exchange work. If not, each fails at once, and reads still work.
    pub writable: bool,
    /// Side of a partition. A host finds only hosts of its own side. All hosts begin on the side named
    /// `""`.
    pub side: String,
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing {
            delay: Duration::ZERO,
            loss: 0.0,
            reachable: true,
            writable: true,
            side: String::new(),
        }
    }
}

impl Hearing {
    /// The same state with the settings present in `settings` replaced.
    #[must_use]
    pub fn changed(&self, by: &ExchangeSettings) -> Hearing {
        Hearing {
            delay: by.delay.unwrap_or(self.delay),
            loss: by.loss.map_or(self.loss, |loss| loss.percent() / 100.0),
            reachable: by.reachable.unwrap_or(self.reachable),
            writable: by.writable.unwrap_or(self.writable),
            side: by.side.clone().unwrap_or_else(|| self.side.clone()),
        }
    }
}

impl ExchangeSettings {
    /// The first invalid key and what is wrong with its value, on this transport.
    pub(crate) fn fault(
        &self,
        transport: MeetingTransport,
    ) -> Option<(&'static str, &'static str)> {
        let is_etcd = transport == MeetingTransport::Etcd;
        let percentage = self.loss.is_none_or(|loss| (0.0..=100.0).contains(&loss.percent()));
        let members = self.members.is_none_or(|members| (1..=MOST_MEMBERS).contains(&members));
        let of_etcd = "is not for etcd, which a host reaches or does not: use reachable";
        let faults = [
            (!percentage, "loss", "must be a percentage, 0% to 100%"),
            (self.delay.is_some_and(|delay| delay > MOST_DELAY), "delay", "must be at most 1h"),
            (!members, "members", "must be from 1 to 7"),
            (!is_etcd && self.members.is_some(), "members", "is for transport = \"etcd\""),
            (
                transport != MeetingTransport::File && self.slots.is_some(),
                "slots",
                "is for transport = \"file\": nothing else has slots",
            ),
            (is_etcd && self.side.is_some(), "side", of_etcd),
            (is_etcd && self.writable.is_some(), "writable", of_etcd),
        ];
        let mut faults = faults.into_iter().filter(|(is, ..)| *is);
        faults.next().map(|(_, key, message)| (key, message))
    }
}
