//! `/api/v1`: state, history, events, and changes.

mod change;
mod query;

use axum::extract::{RawQuery, State};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{delete, get, patch, post};
use axum::{Extension, Router};
use parda_api as api;
use utoipa::OpenApi;

use self::change::{OVERRIDES, Paths, SETTINGS};
use crate::answer::{Json, Refused};
use crate::asked::Caller;
use crate::guard;
use crate::shared::Shared;
use crate::who;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "parda agent",
        description = "State, history and events of the agent of one host, and changes of its settings."
    ),
    paths(
        state,
        history,
        events,
        change::set,
        change::reset,
        change::add_disk,
        change::remove_disk,
        change::drain
    ),
    modifiers(&Paths),
    servers((url = "/"))
)]
pub(crate) struct Description;

pub(crate) fn router(shared: &Shared) -> Router<Shared> {
    let volume = "/api/v1/volumes/{volume}";
    let settings = SETTINGS.iter().fold(Router::new(), |router, (path, _)| {
        OVERRIDES.iter().fold(router.route(path, patch(change::set)), |router, (below, _)| {
            router.route(&format!("{path}{below}"), delete(change::reset))
        })
    });
    let changes = settings
        .route(&format!("{volume}/disks/{{disk}}"), delete(change::remove_disk))
        .route(&format!("{volume}/drain"), post(change::drain))
        .route_layer(from_fn_with_state(api::Role::Write, who::at_least))
        .route_layer(from_fn(guard::of_one_site));
    let files = Router::new()
        .route(&format!("{volume}/disks"), post(change::add_disk))
        .route_layer(from_fn_with_state(api::Role::Admin, who::at_least))
        .route_layer(from_fn(guard::of_one_site));
    Router::new()
        .merge(changes)
        .merge(files)
        .route("/api/v1/state", get(state))
        .route("/api/v1/history", get(history))
        .route("/api/v1/events", get(events))
        .route("/api/v1/openapi.json", get(description))
        .route_layer(from_fn_with_state(shared.clone(), who::identify))
}

/// The agent's own description of its API.
async fn description() -> impl IntoResponse {
    Json(Description::openapi())
}

/// State of the host: its volumes, disks and peers.
///
/// At most 250 ms old. Rates and means are of the last whole second or control period.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = api::State)))]
async fn state(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
) -> Result<impl IntoResponse, Refused> {
    let state = shared.state().await?;
    Ok(Json(api::State { role: who.role, ..api::State::clone(&state) }))
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

/// The latest events, oldest first.
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
