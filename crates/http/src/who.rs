//! The sender of a request, and its rights.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parda_api::Role;

use crate::answer::Refused;
use crate::asked::Caller;
use crate::shared::Shared;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A process of this user. The mode of the socket says who may open it; a process that can has all rights.
    Unix(Option<u32>),
    Tcp(Option<SocketAddr>),
}

/// Adds the sender to the request, for the handlers. An unknown token is refused.
pub(crate) async fn identify(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let who = match peer.unwrap_or(Peer::Tcp(None)) {
        Peer::Unix(uid) => Caller {
            name: uid.map_or("a user".to_owned(), |uid| format!("uid {uid}")),
            at: "the unix socket".to_owned(),
            role: Role::Admin,
        },
        Peer::Tcp(address) => {
            let at = address.map_or("TCP".to_owned(), |address| address.to_string());
            match token(request.headers()).map(|secret| shared.agent.who(secret)) {
                None => Caller { name: "nobody".to_owned(), at, role: Role::Read },
                Some(Some((name, role))) => Caller { name, at, role },
                Some(None) => {
                    tracing::warn!(from = at, "a request with an unknown token was refused");
                    return unauthorized("the token is not known");
                }
            }
        }
    };
    request.extensions_mut().insert(who);
    next.run(request).await
}

/// Refuses requests without a known token.
pub(crate) async fn known_only(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    match token(request.headers()).map(|secret| shared.agent.who(secret)) {
        Some(Some(_)) => next.run(request).await,
        Some(None) => unauthorized("the token is not known"),
        None => unauthorized("this takes a token (http.tokens): authorization: Bearer SECRET"),
    }
}

/// The secret of a request, if it has one.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
}

fn unauthorized(message: &str) -> Response {
    let refused = Refused(StatusCode::UNAUTHORIZED, message.to_owned());
    ([(WWW_AUTHENTICATE, "Bearer")], refused).into_response()
}

/// Refuses requests without these rights.
pub(crate) async fn at_least(State(least): State<Role>, request: Request, next: Next) -> Response {
    let who = request.extensions().get::<Caller>();
    let needed = if least == Role::Admin { "admin" } else { "write" };
    match who {
        Some(Caller { role, .. }) if *role >= least => next.run(request).await,
        // A sender without the right that has a token needs another token.
        Some(Caller { name, .. }) if token(request.headers()).is_some() => {
            let message = format!("token {name}: this takes one with the role {needed}");
            Refused(StatusCode::FORBIDDEN, message).into_response()
        }
        _ => unauthorized(&format!(
            "this takes a token with the role {needed} (http.tokens), or the agent's unix socket"
        )),
    }
}
