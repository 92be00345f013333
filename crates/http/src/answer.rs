//! Answers in JSON, and refusals.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parda_api as api;
use serde::Serialize;

use crate::asked::ApiRefusal;

/// Answer to a request that is refused.
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl From<StatusCode> for Refused {
    fn from(code: StatusCode) -> Refused {
        Refused(code, "the agent could not answer: see its log".to_owned())
    }
}

impl From<ApiRefusal> for Refused {
    fn from(refusal: ApiRefusal) -> Refused {
        match refusal {
            ApiRefusal::NotFound(error) => Refused(StatusCode::NOT_FOUND, error),
            ApiRefusal::Invalid(error) => Refused(StatusCode::BAD_REQUEST, error),
            ApiRefusal::Conflict(error) => Refused(StatusCode::CONFLICT, error),
            ApiRefusal::Failed(error) => Refused(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(&api::Problem { error: self.1 })).into_response()
    }
}

/// Refusals of requests that change something, as the description of the API has them.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code, reason = "for the description alone")]
pub(crate) enum Refusals {
    /// The request is wrong, or not allowed.
    #[response(status = "4XX")]
    Refused(api::Problem),
    /// The change cannot be kept: a full disk, for one.
    #[response(status = 500)]
    Failed(api::Problem),
}

/// A body of JSON, with headers that keep browsers from storing it or taking it for another type.
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
