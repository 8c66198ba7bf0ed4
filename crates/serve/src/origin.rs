//! Checks of a request's origin. A browser sends requests of any page to any address: requests of foreign pages
//! (cross-site request forgery), and, after a foreign page's name was made to resolve to this server (DNS rebinding),
//! requests that look like those of the server's own pages.

use std::net::IpAddr;

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Request, Version};

use crate::{Failure, Reason, ServerOptions};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Content types that a page may send to any address without a preflight request.
const SIMPLE: [&str; 3] = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// Fails for a request that a foreign page may have sent. Only needed if there are no tokens to identify the client.
pub(crate) fn check<B>(options: &ServerOptions, request: &Request<B>) -> Result<(), Failure> {
    let hosts = hosts(request)?;
    // A certificate is only valid for the server's own names, and browsers use HTTP/2 only with TLS.
    if !options.has_tls() && request.version() != Version::HTTP_2 {
        known(&options.allowed_hosts, &hosts)?;
    }
    own(options, request, &hosts)?;
    let path = request.uri().path();
    let controls = path.starts_with("/v2/repository/models/") && request.method() == Method::POST;
    match controls && is_simple(request.headers()) {
        true => Err(Failure::new(
            Reason::Forbidden,
            "models are loaded and unloaded by requests whose Content-Type is application/json, or that have no body",
        )),
        false => Ok(()),
    }
}

/// The names under which the client addresses the server.
fn hosts<B>(request: &Request<B>) -> Result<Vec<Authority>, Failure> {
    let invalid = || Failure::invalid("the header Host names no host");
    let mut hosts: Vec<Authority> = request.uri().authority().cloned().into_iter().collect();
    for host in request.headers().get_all(HOST) {
        // HTTP/1.1 allows an empty host.
        if !host.is_empty() {
            hosts.push(Authority::try_from(host.as_bytes()).map_err(|_| invalid())?);
        }
    }
    Ok(hosts)
}

fn known(allowed: &[String], hosts: &[Authority]) -> Result<(), Failure> {
    let is_known = |host: &Authority| {
        let name = name(host);
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        // Names under localhost also resolve to this machine.
        let last = name.rsplit('.').next().unwrap_or_default();
        is_address || last.eq_ignore_ascii_case("localhost") || is_listed(allowed, name) || is_listed(allowed, "*")
    };
    match hosts.iter().find(|host| !is_known(host)) {
        None => Ok(()),
        Some(host) => Err(Failure::new(
            Reason::Forbidden,
            format!(
                "this server does not know that it is called {0:?}: ask by its IP address or as localhost, or let it be started with \
                 --allowed-host {0}",
                name(host)
            ),
        )),
    }
}

/// Fails for a request of a page that is not the server's own.
fn own<B>(options: &ServerOptions, request: &Request<B>, hosts: &[Authority]) -> Result<(), Failure> {
    let headers = request.headers();
    let says = |name: &HeaderName, value: &str| headers.get(name).is_some_and(|found| found == value);
    let refused = || {
        Err(Failure::new(
            Reason::Forbidden,
            "the pages of others may ask nothing here",
        ))
    };
    // Browsers set this header themselves, whatever a proxy does to Host.
    if headers.contains_key(FETCH_SITE) {
        let is_link = request.method() == Method::GET && says(&FETCH_MODE, "navigate") && says(&FETCH_DEST, "document");
        return match says(&FETCH_SITE, "same-origin") || says(&FETCH_SITE, "none") || is_link {
            true => Ok(()),
            false => refused(),
        };
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let origin = origin.and_then(|(scheme, rest)| Some((scheme, rest.parse::<Authority>().ok()?)));
    let is_own = origin.is_some_and(|(scheme, origin)| {
        let port = |of: &Authority| of.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let is_same = |host: &Authority| name(host).eq_ignore_ascii_case(name(&origin)) && port(host) == port(&origin);
        hosts.iter().any(is_same) || is_listed(&options.allowed_hosts, name(&origin))
    });
    match is_own {
        true => Ok(()),
        false => refused(),
    }
}

/// The name without the port, and without the final dot of a fully qualified name.
fn name(host: &Authority) -> &str {
    let name = host.host();
    name.strip_suffix('.').unwrap_or(name)
}

fn is_listed(allowed: &[String], name: &str) -> bool {
    allowed.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_simple(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let kind = kind.split(';').next().unwrap_or_default().trim();
    SIMPLE.iter().any(|simple| kind.eq_ignore_ascii_case(simple))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = "/v2/repository/models/a/load";

    /// Whether an HTTP/1.1 request with these headers is accepted.
    fn passes(allowed: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let options = ServerOptions {
            allowed_hosts: allowed.split_whitespace().map(str::to_owned).collect(),
            ..ServerOptions::default()
        };
        check(&options, &request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn unknown_names_are_refused_and_addresses_are_not() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8000",
            "[::1]:8000",
            "192.0.2.7:80",
            "localhost",
            "LOCALHOST:1",
            "localhost.:1",
            "a.localhost",
            "models.example:8000",
            "Models.Example.",
            "",
        ] {
            assert!(passes("models.example", "GET", "/v2", &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "1.2.3",
            "::1",
            "a b",
            "models.example.evil",
            "*",
        ] {
            assert!(!passes("models.example", "GET", "/v2", &[("host", host)]), "{host}");
            assert!(
                !passes("models.example", "GET", "/v2", &[("host", "localhost"), ("host", host)]),
                "{host}"
            );
            assert!(!passes("models.example", "POST", LOAD, &[("host", host)]), "{host}");
        }
        assert!(passes("*", "GET", "/v2", &[("host", "evil.example")]) && passes("", "GET", "/v2", &[]));
        assert!(!passes("", "GET", "http://evil.example/v2", &[("host", "localhost")]));
    }

    #[test]
    fn pages_of_others_ask_for_nothing() {
        let host = ("host", "127.0.0.1:8000");
        for path in ["/v2/models/a/infer", LOAD] {
            for foreign in [
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("origin", "http://127.0.0.1"),
                ("origin", "http://127.0.0.1:3000"),
                ("origin", "http://localhost:8000"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-site", "new"),
            ] {
                assert!(!passes("", "POST", path, &[host, foreign]), "{foreign:?}");
                assert!(!passes("", "GET", "/v2", &[host, foreign]), "{foreign:?}");
            }
            for own in [
                ("origin", "http://127.0.0.1:8000"),
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "none"),
                ("content-type", "application/json"),
                ("origin", "https://models.example"),
            ] {
                assert!(passes("models.example", "POST", path, &[host, own]), "{own:?}");
            }
        }
        // A link on another site may open the page, but no frame may.
        let link = |dest| {
            [
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ]
        };
        assert!(passes("", "GET", "/", &link("document")));
        assert!(!passes("", "GET", "/", &link("iframe")) && !passes("", "POST", LOAD, &link("document")));
        assert!(passes(
            "",
            "POST",
            LOAD,
            &[("host", "localhost:80"), ("origin", "http://localhost")]
        ));
        // As behind a proxy that addresses this server by another name.
        assert!(passes(
            "",
            "POST",
            LOAD,
            &[host, ("origin", "https://a.example"), ("sec-fetch-site", "same-origin")]
        ));
    }

    #[test]
    fn models_are_not_controlled_by_what_any_page_may_send() {
        let host = ("host", "localhost");
        for simple in [
            "text/plain",
            "Text/Plain; charset=utf-8",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=a",
        ] {
            assert!(!passes("", "POST", LOAD, &[host, ("content-type", simple)]), "{simple}");
            assert!(
                passes("", "POST", "/v2/models/a/infer", &[host, ("content-type", simple)]),
                "{simple}"
            );
        }
        assert!(passes("", "POST", LOAD, &[host]));
    }
}
