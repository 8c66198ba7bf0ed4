//! The page for trying models.

use std::hash::{BuildHasher, RandomState};

use axum::http::HeaderName;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("page.html");

/// The page. It runs only its own script, sends requests only to this server, and cannot be framed.
pub(super) async fn page() -> Response {
    // The keys are the system's random numbers.
    let random = || RandomState::new().hash_one(0);
    let nonce = format!("{:016x}{:016x}", random(), random());
    let mut text = PAGE.to_owned();
    for tag in ["<script", "<style"] {
        text = text.replace(&format!("{tag}>"), &format!("{tag} nonce=\"{nonce}\">"));
    }
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let headers: [(HeaderName, String); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (X_FRAME_OPTIONS, "DENY".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::PAGE;

    #[test]
    fn nothing_is_in_the_page_that_its_policy_forbids() {
        assert_eq!(
            (PAGE.matches("<script>").count(), PAGE.matches("<style>").count()),
            (1, 1)
        );
        for forbidden in [
            "<script ",
            "<style ",
            " style=\"",
            " onclick=\"",
            " onload=\"",
            "javascript:",
            "eval(",
            "https://",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
    }
}
