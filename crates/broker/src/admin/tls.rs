//! The metrics of listeners with TLS.

use std::sync::Arc;

use super::exposition::Page;
use crate::net::handshake::{HandshakeCounts, Outcome};
use crate::tls::listener::TlsListener;

/// What is read of listeners with TLS.
#[derive(Clone)]
pub struct TlsView {
    pub listeners: Vec<Arc<TlsListener>>,
    pub handshakes: Arc<HandshakeCounts>,
}

pub fn write_metrics(page: &mut Page, view: &TlsView) {
    const HANDSHAKES: &str = "ottla_tls_handshakes_total";
    page.metric(HANDSHAKES, "counter", "TLS handshakes by their end.");
    for outcome in Outcome::ALL {
        let count = view.handshakes.get(outcome);
        page.sample(HANDSHAKES, &[("outcome", outcome.name())], count);
    }
    let kinds = view.handshakes.kinds();
    const SPOKEN: &str = "ottla_tls_sessions_total";
    page.metric(
        SPOKEN,
        "counter",
        "TLS handshakes that are done, by version and cipher suite.",
    );
    for (spoken, count) in &kinds.spoken {
        let labels = [("version", spoken.version()), ("cipher", &spoken.cipher())];
        page.sample(SPOKEN, &labels, *count);
    }
    const REFUSALS: &str = "ottla_tls_refusals_total";
    page.metric(
        REFUSALS,
        "counter",
        "TLS handshakes with the outcome `refused`, by their cause.",
    );
    for (cause, count) in &kinds.refusals {
        page.sample(REFUSALS, &[("cause", cause)], *count);
    }
    const EXPIRY: &str = "ottla_tls_certificate_expiry_seconds";
    page.metric(
        EXPIRY,
        "gauge",
        "When the listener's certificate expires, in seconds of Unix time.",
    );
    const FAILING: &str = "ottla_tls_reload_failing";
    for listener in &view.listeners {
        if let Some(not_after) = listener.not_after() {
            page.sample(EXPIRY, &[("listener", listener.name())], not_after);
        }
    }
    page.metric(
        FAILING,
        "gauge",
        "Whether the files of the listener have changed and cannot be used (1).",
    );
    for listener in &view.listeners {
        let is_failing = u8::from(listener.is_failing());
        page.sample(FAILING, &[("listener", listener.name())], is_failing);
    }
}
