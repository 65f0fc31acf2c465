//! Authentication at the node: gives a connection's SASL machine the settings and users of this
//! moment.

use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;

use crate::config::OauthSettings;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::sasl::token_keys::TokenKeys;
use crate::sasl::{SaslContext, SaslServer, SaslStep};
use crate::time::Moment;

impl Node {
    /// Takes a request of a connection that is not authenticated, or authenticates again.
    ///
    /// - Shape: the listener has SASL.
    pub fn authenticate(
        &self,
        server: &mut SaslServer,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> SaslStep {
        let listener = &request.connection.listener_name;
        let step = self.with_sasl(listener, request.received, |context| {
            server.request(request, context, &mut reply.bytes)
        });
        if step != SaslStep::Serve || server.is_authenticated() {
            return step;
        }
        assert_eq!(
            request.api_key,
            ApiKey::ApiVersions,
            "served without authentication"
        );
        // Never on another thread, however long: only two words of it are read.
        match self.handle_whole(request, reply) {
            Handled::Replied => {
                // All versions begin with the error code.
                let code = reply.bytes.first_chunk().map(|code| i16::from_be_bytes(*code));
                if code == Some(ErrorCode::None.code()) {
                    server.answered_api_versions();
                }
                SaslStep::Replied
            }
            Handled::Close(reason) => SaslStep::Close(reason),
            Handled::NoReply | Handled::Pending(_) => unreachable!("ApiVersions is answered at once"),
        }
    }

    /// Takes a token without a header, of a client that shook hands in version 0.
    pub fn take_sasl_token(
        &self,
        server: &mut SaslServer,
        listener: &str,
        token: &[u8],
        now: Moment,
        reply: &mut ReplyBuffer,
    ) -> SaslStep {
        self.with_sasl(listener, now, |context| {
            server.token(token, context, &mut reply.bytes)
        })
    }

    /// The keys that tokens are verified by, which the shell fetches.
    pub fn token_keys(&self) -> &Arc<TokenKeys> {
        &self.security.token_keys
    }

    /// The settings of every listener that takes tokens.
    pub fn oauth_settings(&self) -> Vec<OauthSettings> {
        self.security.oauth_settings()
    }

    fn with_sasl(
        &self,
        listener: &str,
        now: Moment,
        step: impl FnOnce(&SaslContext<'_>) -> SaslStep,
    ) -> SaslStep {
        let security = self.security.of(listener);
        let Some(settings) = security.as_ref().and_then(|security| security.sasl.as_ref()) else {
            return SaslStep::Close(format!("listener {listener} has no SASL"));
        };
        let image = self.image();
        step(&SaslContext {
            settings,
            credentials: &image.scram_credentials,
            secrets: &self.security.secrets,
            token_keys: &self.security.token_keys,
            now,
            wall_clock: self.clock().timestamp(),
        })
    }
}
