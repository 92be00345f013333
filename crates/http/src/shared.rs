//! State that the handlers of all paths have in common.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use parda_api as api;

use crate::asked::{Agent, Pages};
use crate::text_format::text_of;

/// Largest age of an answer that is shared by requests.
pub const FRESH: Duration = Duration::from_millis(250);

/// A value that is computed again when it is older than [`FRESH`].
#[derive(Debug)]
struct Latest<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Latest<T> {
    fn new() -> Arc<Self> {
        Arc::new(Latest(Mutex::new(None)))
    }

    /// Drops the value, so that the next request computes a new one.
    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The value, at most [`FRESH`] old. Requests that come while it is computed wait for the result.
    fn get(&self, look: impl FnOnce() -> T) -> Arc<T> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, value)) = &*latest
            && at.elapsed() < FRESH
        {
            return Arc::clone(value);
        }
        let began = Instant::now();
        let value = Arc::new(look());
        *latest = Some((began, Arc::clone(&value)));
        value
    }
}

/// Pages, and their metrics in text format 0.0.4 once a scraper has asked for that.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) pages: Pages,
    text: OnceLock<Bytes>,
}

/// State that the handlers of all paths have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) agent: Arc<dyn Agent>,
    pages: Arc<Latest<Rendered>>,
    state: Arc<Latest<api::State>>,
}

impl Shared {
    pub(crate) fn new(agent: Arc<dyn Agent>) -> Shared {
        Shared { agent, pages: Latest::new(), state: Latest::new() }
    }

    pub(crate) async fn pages(&self) -> Result<Arc<Rendered>, StatusCode> {
        let shared = self.clone();
        apart(move || shared.look()).await
    }

    /// Metrics in text format 0.0.4.
    pub(crate) async fn metrics_as_text(&self) -> Result<Bytes, StatusCode> {
        let shared = self.clone();
        apart(move || {
            let Rendered { pages, text } = &*shared.look();
            text.get_or_init(|| text_of(&String::from_utf8_lossy(&pages.metrics)).into()).clone()
        })
        .await
    }

    fn look(&self) -> Arc<Rendered> {
        self.pages.get(|| Rendered { pages: self.agent.pages(), text: OnceLock::new() })
    }

    pub(crate) async fn state(&self) -> Result<Arc<api::State>, StatusCode> {
        let shared = self.clone();
        apart(move || shared.state.get(|| shared.agent.state())).await
    }

    /// Calls the agent to change something. Later requests see the change.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Agent) -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        let shared = self.clone();
        self.ask(move |agent| {
            let done = change(agent);
            shared.state.forget();
            shared.pages.forget();
            done
        })
        .await
    }

    /// Asks the agent on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Agent) -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        let agent = Arc::clone(&self.agent);
        apart(move || question(&*agent)).await
    }
}

/// Runs work that may block on a thread of its own.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StatusCode> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
