//! OAUTHBEARER as configured (KIP-255, KIP-768).

use std::sync::Arc;

/// Which tokens authenticate a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OauthSettings {
    /// Where the identity provider's public keys are: a URL of `file`, `http` or `https`.
    pub keys_url: Arc<str>,
    /// How often keys from a server are fetched again.
    pub refresh_ms: u64,
    /// The first and the longest pause after a fetch that has failed.
    pub retry_ms: (u64, u64),
    /// One of them must be in the claim `aud`; empty: it is not looked at.
    pub audiences: Vec<String>,
    /// What the claim `iss` must be; `None`: it is not looked at.
    pub issuer: Option<String>,
    /// The name of the claim with the user.
    pub subject_claim: String,
    /// The name of the claim with the scopes.
    pub scope_claim: String,
    /// By how much the clocks of provider and broker may differ.
    pub skew_seconds: u64,
}
