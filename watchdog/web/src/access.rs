//! Permissions of requests: the token, the cookie, and where a request comes from.
//!
//! A browser sends a cookie to every port of a host, so another user's server on loopback could collect ours. The cookie
//! therefore belongs to a path that only this server and its browser know.

use std::io;

use crate::request::WebRequest;
use crate::secret::Secret;

const COOKIE: &str = "agent_watchdog";

#[derive(Debug)]
pub(crate) struct AccessGuard {
    token: Secret,
    cookie: Secret,
    /// `/` with the digits of a secret and `/`: the path of all pages.
    base: String,
    hosts: [String; 3],
    act: bool,
}

/// A request with access.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission<'r> {
    /// It has the token: it gets the cookie.
    Token,
    /// A resource, by its path below the base.
    Page(&'r str),
    /// As `Page`, for a request that changes something.
    Change(&'r str),
}

/// Why there is no access: a status and a sentence.
pub(crate) type Denial = (u16, &'static str);

const NO_TOKEN: Denial = (401, "Open the address that `watchdogctl web` printed: this one lacks its token.");
const WRONG_TOKEN: Denial = (403, "This token is not valid: `watchdogctl web` prints a new one at each start.");

impl AccessGuard {
    pub(crate) fn new(port: u16, act: bool) -> io::Result<Self> {
        let base = format!("/{}/", Secret::random()?.text());
        let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
        Ok(Self { token: Secret::random()?, cookie: Secret::random()?, base, hosts, act })
    }

    /// The address for the user.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/?token={}", self.hosts[0], self.token.text())
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn may_act(&self) -> bool {
        self.act
    }

    /// The value of the header that sets the cookie.
    pub(crate) fn cookie(&self) -> String {
        format!("{COOKIE}={}; Path={}; HttpOnly; SameSite=Strict", self.cookie.text(), self.base)
    }

    /// The order matters: a request for a host name that is not ours learns nothing about the server.
    pub(crate) fn admit<'r>(&self, request: &'r WebRequest) -> Result<Admission<'r>, Denial> {
        let host = request.host.as_deref().unwrap_or_default();
        if !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return Err((403, "This host name is not allowed: use localhost or 127.0.0.1 with the printed port."));
        }
        let change = match request.method.as_str() {
            "GET" => false,
            "POST" => true,
            _ => return Err((405, "Only GET and POST are allowed.")),
        };
        if request.path == "/" && !change {
            return match request.parameter("token") {
                Some(token) if self.token.matches(&token) => Ok(Admission::Token),
                Some(_) => Err(WRONG_TOKEN),
                None => Err(NO_TOKEN),
            };
        }
        let Some(resource) = request.path.strip_prefix(&self.base) else { return Err(NO_TOKEN) };
        if !self.has_cookie(request) {
            return Err((401, "The session of this page has ended: open the address that `watchdogctl web` printed."));
        }
        // Another port of the same host is another site's page, too.
        if matches!(request.fetch_site.as_deref(), Some("cross-site" | "same-site")) {
            return Err((403, "Pages of other origins have no access."));
        }
        if !change {
            return Ok(Admission::Page(resource));
        }
        if request.origin.as_deref() != Some(format!("http://{host}").as_str()) {
            return Err((403, "Pages of other origins must not act."));
        }
        // A form of another page cannot send this type.
        if request.content_type.as_deref() != Some("application/json") {
            return Err((415, "The body must be application/json."));
        }
        if !self.act {
            return Err((403, "This page is read-only: start `watchdogctl web --act` to act."));
        }
        Ok(Admission::Change(resource))
    }

    fn has_cookie(&self, request: &WebRequest) -> bool {
        let cookies = request.cookie.as_deref().unwrap_or_default().split(';');
        let mut values = cookies.filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        values.any(|value| self.cookie.matches(value))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn guard() -> AccessGuard {
        AccessGuard::new(8080, true).unwrap()
    }

    fn request(guard: &AccessGuard, method: &str) -> WebRequest {
        let cookie = guard.cookie().split(';').next().unwrap().to_owned();
        WebRequest {
            method: method.into(),
            path: format!("{}act", guard.base()),
            host: Some("127.0.0.1:8080".into()),
            origin: Some("http://127.0.0.1:8080".into()),
            content_type: Some("application/json".into()),
            fetch_site: Some("same-origin".into()),
            cookie: Some(format!("other=1; {cookie}")),
            ..WebRequest::default()
        }
    }

    fn status(guard: &AccessGuard, request: &WebRequest) -> u16 {
        guard.admit(request).map_or_else(|(status, _)| status, |_| 200)
    }

    #[test]
    fn own_origin_reads_and_acts() {
        let guard = guard();
        assert_eq!(guard.admit(&request(&guard, "POST")), Ok(Admission::Change("act")));
        assert_eq!(guard.admit(&request(&guard, "GET")), Ok(Admission::Page("act")));
    }

    #[rstest]
    #[case::forged("evil.example:8080")]
    #[case::other_port("127.0.0.1:8081")]
    #[case::no_port("localhost")]
    #[case::suffix("127.0.0.1:8080.evil.example")]
    #[case::rebinding("localhost.evil.example:8080")]
    #[case::empty("")]
    fn other_host_is_refused(#[case] host: &str) {
        let guard = guard();
        for method in ["GET", "POST"] {
            let forged = WebRequest { host: Some(host.into()), ..request(&guard, method) };
            assert_eq!(status(&guard, &forged), 403, "{method}");
        }
        assert_eq!(status(&guard, &WebRequest { host: None, ..request(&guard, "GET") }), 403);
    }

    #[rstest]
    #[case("LOCALHOST:8080")]
    #[case("[::1]:8080")]
    fn loopback_names_are_allowed(#[case] host: &str) {
        let guard = guard();
        let origin = Some(format!("http://{host}"));
        let tunnelled = WebRequest { host: Some(host.into()), origin, ..request(&guard, "POST") };
        assert_eq!(status(&guard, &tunnelled), 200);
    }

    #[rstest]
    #[case(None)]
    #[case(Some("null"))]
    #[case(Some("http://127.0.0.1:8081"))]
    #[case(Some("https://127.0.0.1:8080"))]
    #[case(Some("http://localhost:8080"))]
    #[case(Some("http://evil.example"))]
    fn foreign_origin_does_not_act(#[case] origin: Option<&str>) {
        let guard = guard();
        let foreign = WebRequest { origin: origin.map(Into::into), ..request(&guard, "POST") };
        assert_eq!(status(&guard, &foreign), 403);
    }

    #[rstest]
    #[case("cross-site", 403)]
    #[case("same-site", 403)]
    #[case("none", 200)]
    fn foreign_page_does_not_read(#[case] site: &str, #[case] expected: u16) {
        let guard = guard();
        let foreign = WebRequest { fetch_site: Some(site.into()), ..request(&guard, "GET") };
        assert_eq!(status(&guard, &foreign), expected);
    }

    #[test]
    fn form_content_types_are_refused() {
        let guard = guard();
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let form = WebRequest { content_type: Some(kind.into()), ..request(&guard, "POST") };
            assert_eq!(status(&guard, &form), 415, "{kind}");
        }
        assert_eq!(status(&guard, &WebRequest { content_type: None, ..request(&guard, "POST") }), 415);
    }

    #[rstest]
    #[case("PUT")]
    #[case("DELETE")]
    #[case("OPTIONS")]
    #[case("TRACE")]
    #[case("get")]
    fn other_methods_are_refused(#[case] method: &str) {
        let guard = guard();
        assert_eq!(status(&guard, &request(&guard, method)), 405);
    }

    #[test]
    fn cookie_needs_its_path_and_value() {
        let guard = guard();
        let stale = format!("{COOKIE}={}", Secret::random().unwrap().text());
        for cookie in [None, Some(String::new()), Some(stale), Some(COOKIE.into())] {
            assert_eq!(status(&guard, &WebRequest { cookie, ..request(&guard, "GET") }), 401);
        }
        for path in ["/act", "/", "//", "/../act"] {
            assert_eq!(status(&guard, &WebRequest { path: path.into(), ..request(&guard, "GET") }), 401, "{path}");
        }
        let cookie = guard.cookie();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && cookie.contains(guard.base()), "{cookie}");
    }

    #[test]
    fn token_is_never_optional() {
        let guard = guard();
        let at = |query: String| WebRequest { path: "/".into(), cookie: None, query, ..request(&guard, "GET") };
        let token = guard.url().rsplit('=').next().unwrap().to_owned();
        assert_eq!(guard.admit(&at(format!("token={token}"))), Ok(Admission::Token));
        assert_eq!(status(&guard, &at(String::new())), 401);
        for wrong in ["", "0", &token[1..], &token.to_uppercase().replace(|c: char| c.is_numeric(), "A")] {
            assert_eq!(status(&guard, &at(format!("token={wrong}"))), 403, "{wrong}");
        }
    }

    #[test]
    fn read_only_server_does_not_act() {
        let guard = AccessGuard::new(8080, false).unwrap();
        assert_eq!(status(&guard, &request(&guard, "POST")), 403);
        assert_eq!(status(&guard, &request(&guard, "GET")), 200);
    }
}
