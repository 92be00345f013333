//! Pages for monitoring: metrics, health, readiness.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::dashboard;
use crate::shared::Shared;
use crate::text_format::{OPENMETRICS, TEXT, wants_openmetrics};

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

async fn exposition(
    State(shared): State<Shared>,
    headers: HeaderMap,
) -> Result<Response, StatusCode> {
    let (kind, text) = match wants_openmetrics(&headers) {
        true => (OPENMETRICS, shared.pages().await?.pages.metrics.clone()),
        false => (TEXT, shared.metrics_as_text().await?),
    };
    Ok(([(header::CONTENT_TYPE, kind), (header::VARY, "accept")], text).into_response())
}

async fn readiness(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let looked = shared.pages().await?;
    Ok(match looked.pages.lacking.as_str() {
        "" => "ready\n".into_response(),
        lacking => (StatusCode::SERVICE_UNAVAILABLE, lacking.to_owned()).into_response(),
    })
}
