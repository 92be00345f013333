//! Refusal of requests by their headers alone.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::answer::Refused;

/// Refuses a request whose `Host` is neither an address nor `localhost`. A page of another site may have a name made to resolve to this
/// address (DNS rebinding). Such a page sends its own name there.
pub(crate) async fn by_address(request: Request, next: Next) -> Response {
    if names_an_address(request.headers()) {
        return next.run(request).await;
    }
    let message = "the header Host names neither an address nor localhost: ask by the address";
    Refused(StatusCode::FORBIDDEN, message.to_owned()).into_response()
}

/// Refuses a request that comes in plain text from another host.
pub(crate) async fn without_tls() -> Refused {
    let message = "the API is not for other hosts without TLS: ask at a unix socket or loopback";
    Refused(StatusCode::FORBIDDEN, message.to_owned())
}

/// Refuses a change that a page of another site asks for.
pub(crate) async fn of_one_site(request: Request, next: Next) -> Response {
    if is_of_one_site(request.headers()) {
        return next.run(request).await;
    }
    let message = "the request comes from a page of another site".to_owned();
    Refused(StatusCode::FORBIDDEN, message).into_response()
}

/// Whether the headers that browsers add name no other site.
fn is_of_one_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let fetched = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let host = text("host").unwrap_or_default();
    let origin = text("origin").is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(_, authority)| authority == host && !host.is_empty())
    });
    fetched && origin
}

fn names_an_address(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).into_iter();
    let (host, None) = (hosts.next(), hosts.next()) else { return false };
    // HTTP/1.0 has no `Host`, and no browser speaks it.
    let Some(host) = host else { return true };
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = authority.host();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(hosts: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        names_an_address(&headers)
    }

    #[test]
    fn a_page_of_another_site_is_known_by_its_headers() {
        let of_one_site = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            is_of_one_site(&headers)
        };
        let host = ("host", "127.0.0.1:9843");
        assert!(of_one_site(&[host]));
        assert!(of_one_site(&[host, ("origin", "http://127.0.0.1:9843")]));
        assert!(of_one_site(&[host, ("sec-fetch-site", "same-origin")]));
        for other in ["http://evil.example", "null", "http://127.0.0.1:9844", ""] {
            assert!(!of_one_site(&[host, ("origin", other)]), "{other}");
        }
        assert!(!of_one_site(&[host, ("sec-fetch-site", "cross-site")]));
        assert!(!of_one_site(&[host, ("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn a_name_that_may_lead_anywhere_is_refused() {
        for good in ["127.0.0.1", "127.0.0.1:9843", "[::1]:9843", "localhost", "LOCALHOST:1"] {
            assert!(admitted(&[good]), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:9843",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "",
            "::",
        ] {
            assert!(!admitted(&[bad]), "{bad}");
        }
        assert!(admitted(&[]), "HTTP/1.0");
        assert!(!admitted(&["localhost", "evil.example"]));
    }
}
