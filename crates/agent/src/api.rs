//! What the agent answers to HTTP.

mod state;

use std::sync::Arc;

use parda_api as api;
use parda_http::{Pages, Refusal};

use crate::events::Recorder;
use crate::history::History;
use crate::status::Detail;
use crate::views::Views;
use crate::{http, metrics};

/// The agent as its HTTP server asks it.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) views: Arc<Views>,
    pub(crate) history: Arc<History>,
    pub(crate) events: Recorder,
}

impl parda_http::Agent for Api {
    fn pages(&self) -> Pages {
        let status = self.views.status(Detail::Whole);
        Pages { lacking: http::lacking(&status), metrics: metrics::text(status).into() }
    }

    fn state(&self) -> api::State {
        let status = self.views.status(Detail::Counters);
        state::state(status, |volume| self.history.recent(volume))
    }

    fn history(&self, query: &api::HistoryQuery) -> Result<api::History, Refusal> {
        self.history.tell(query)
    }

    fn events(&self, query: api::EventsQuery) -> api::Events {
        self.events.tell(query)
    }
}
