//! The web dashboard: a page that was built from `web/` (`make web`) and asks the API.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Path, MIME type and contents of each file.
const FILES: [(&str, &str, &[u8]); 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../page/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../page/app.js")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("../page/app.css")),
    ("/licenses.md", "text/plain; charset=utf-8", include_bytes!("../page/licenses.md")),
];

/// The page runs only its own script, asks only its own agent, and cannot be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // Another version of the agent has another script at the same path.
    (CACHE_CONTROL, "no-cache"),
];

/// Router for the paths of the page. No token is needed, as the page holds no data of the agent.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, contents)| {
        router.route(path, get(move || async move { file(kind, contents) }))
    })
}

fn file(kind: &'static str, contents: &'static [u8]) -> Response {
    (HEADERS, [(CONTENT_TYPE, kind)], contents).into_response()
}
