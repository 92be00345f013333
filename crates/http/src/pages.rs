//! Pages for monitoring: metrics, health, readiness.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::dashboard;
use crate::shared::Shared;

/// MIME type of metrics, as OpenMetrics 1.0 gives it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn router() -> Router<Shared> {
    looks().merge(open())
}

/// Pages with names of volumes and disks.
pub(crate) fn looks() -> Router<Shared> {
    Router::new().route("/metrics", get(exposition)).route("/readyz", get(readiness))
}

/// Pages without such names.
pub(crate) fn open() -> Router<Shared> {
    dashboard::router().route("/healthz", get(|| async { "alive\n" }))
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
