//! Answers of the agent to its HTTP server.

mod audit;
mod change;
mod disks;
mod state;
pub(crate) mod values;
mod wait;

use std::path::Path;
use std::sync::{Arc, Mutex};

use parda_api as api;
use parda_http::{ApiRefusal, Pages};

pub(crate) use audit::Audit;

use crate::events::Recorder;
use crate::history::History;
use crate::http;
use crate::live::Live;
use crate::locked::locked;
use crate::metrics::Exposition;
use crate::status::Detail;
use crate::tokens::Tokens;
use crate::views::Views;
use crate::wakeup::Takeover;

/// The parts of the agent that its HTTP server uses.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) views: Arc<Views>,
    pub(crate) history: Arc<History>,
    pub(crate) events: Recorder,
    pub(crate) live: Arc<Live>,
    pub(crate) metrics: Arc<Mutex<Exposition>>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) tokens: Arc<Mutex<Tokens>>,
    pub(crate) agent: Takeover,
}

impl Api {
    /// Reads the file of tokens that the configuration names. If it cannot be read, the tokens stay as they are.
    pub(crate) fn read_tokens(&self, path: Option<&Path>) {
        let read = path.map_or_else(|| Ok(Tokens::default()), Tokens::read);
        self.views.about().tokens_fault = read.as_ref().err().cloned();
        match read {
            Ok(tokens) => *locked(&self.tokens) = tokens,
            Err(error) => {
                tracing::error!(event = "tokens_unreadable", "{error}; tokens are as before");
            }
        }
    }
}

impl parda_http::Agent for Api {
    fn pages(&self) -> Pages {
        let status = self.views.counters(Detail::Counters);
        let lacking = http::lacking(&status);
        let mut metrics = locked(&self.metrics);
        Pages { lacking, metrics: metrics.text(status).into() }
    }

    fn state(&self) -> api::State {
        let status = self.views.status(Detail::Counters);
        state::state(status, |volume| self.history.recent(volume))
    }

    fn history(&self, query: &api::HistoryQuery) -> Result<api::History, ApiRefusal> {
        self.history.answer(query)
    }

    fn events(&self, query: api::EventsQuery) -> api::Events {
        self.events.answer(query)
    }

    fn who(&self, secret: &str) -> Option<(String, api::Role)> {
        locked(&self.tokens).find(secret)
    }
}
