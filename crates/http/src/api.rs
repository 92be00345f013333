//! `/api/v1`: what is now, what was, what happened.

mod query;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parda_api as api;
use serde::Serialize;
use utoipa::OpenApi;

use crate::shared::{Refusal, Shared};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "parda agent",
        description = "State, history and events of the agent of one host."
    ),
    paths(state, history, events),
    servers((url = "/"))
)]
struct Description;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/api/v1/state", get(state))
        .route("/api/v1/history", get(history))
        .route("/api/v1/events", get(events))
        .route("/api/v1/openapi.json", get(description))
}

/// Answer to what is refused.
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl From<StatusCode> for Refused {
    fn from(code: StatusCode) -> Refused {
        Refused(code, "the agent could not answer: see its log".to_owned())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        match refusal {
            Refusal::NotFound(error) => Refused(StatusCode::NOT_FOUND, error),
            Refusal::Invalid(error) => Refused(StatusCode::BAD_REQUEST, error),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(&api::Problem { error: self.1 })).into_response()
    }
}

/// A body of JSON, which no browser takes for anything else nor keeps.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => (HEADERS, text).into_response(),
            Err(error) => {
                tracing::error!("an answer cannot be written as JSON: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

const HEADERS: [(&str, &str); 3] = [
    ("content-type", "application/json"),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
];

/// The agent's own description of its API.
async fn description() -> impl IntoResponse {
    Json(Description::openapi())
}

/// What is now.
///
/// At most 250 ms old, however many ask. Rates and means are of the last whole second or control period.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = api::State)))]
async fn state(State(shared): State<Shared>) -> Result<impl IntoResponse, Refused> {
    let state = shared.state().await?;
    Ok(Json(api::State { role: api::Role::Read, ..api::State::clone(&state) }))
}

/// The last hour of a volume, second by second.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(api::HistoryQuery),
    responses(
        (status = 200, body = api::History),
        (status = 400, body = api::Problem, description = "A parameter is wrong, or the answer would be too long."),
        (status = 404, body = api::Problem, description = "There is no such volume, disk or host.")
    )
)]
async fn history(
    State(shared): State<Shared>,
    RawQuery(text): RawQuery,
) -> Result<impl IntoResponse, Refused> {
    let query = query::history(text.as_deref())?;
    Ok(Json(shared.ask(move |agent| agent.history(&query)).await??))
}

/// What happened, oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(api::EventsQuery),
    responses(
        (status = 200, body = api::Events),
        (status = 400, body = api::Problem, description = "A parameter is wrong.")
    )
)]
async fn events(
    State(shared): State<Shared>,
    RawQuery(text): RawQuery,
) -> Result<impl IntoResponse, Refused> {
    let query = query::events(text.as_deref())?;
    Ok(Json(shared.ask(move |agent| agent.events(query)).await?))
}
