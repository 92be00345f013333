//! What is answered to each path.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::dashboard;

/// How old an answer may be.
pub const FRESH: Duration = Duration::from_millis(250);

/// MIME type of metrics, as OpenMetrics 1.0 gives it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers that one look at the agent gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Metrics in OpenMetrics text.
    pub metrics: String,
    /// What is configured and not served now, one a line. Empty if all is served.
    pub lacking: String,
}

/// A look at the agent. It may block.
pub type Describe = Arc<dyn Fn() -> Pages + Send + Sync>;

/// The latest pages, and when they were had.
type Latest = Mutex<Option<(Instant, Arc<Pages>)>>;

/// State that the handlers of all paths have in common.
#[derive(Clone)]
struct Shared {
    describe: Describe,
    latest: Arc<Latest>,
}

impl Shared {
    /// The pages of now, or of a moment ago. They are had on a thread that may block.
    async fn pages(&self) -> Result<Arc<Pages>, StatusCode> {
        let shared = self.clone();
        let had = tokio::task::spawn_blocking(move || {
            // Who comes while another looks waits for that one.
            let mut latest = shared.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, pages)) = &*latest
                && at.elapsed() < FRESH
            {
                return Arc::clone(pages);
            }
            let began = Instant::now();
            let pages = Arc::new((shared.describe)());
            *latest = Some((began, Arc::clone(&pages)));
            pages
        });
        had.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}

pub(crate) fn router(describe: Describe) -> Router {
    Router::new()
        .route("/metrics", get(exposition))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readiness))
        .merge(dashboard::router())
        .with_state(Shared { describe, latest: Arc::default() })
}

async fn exposition(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let pages = shared.pages().await?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], pages.metrics.clone()).into_response())
}

async fn readiness(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let pages = shared.pages().await?;
    Ok(match pages.lacking.as_str() {
        "" => "ready\n".into_response(),
        lacking => (StatusCode::SERVICE_UNAVAILABLE, lacking.to_owned()).into_response(),
    })
}
