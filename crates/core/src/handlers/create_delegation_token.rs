//! CreateDelegationToken, versions 1 to 3 (KIP-48). 2: flexible. 3: KIP-373, a token for another
//! principal. There are no tokens: every request is refused, with the error that Apache Kafka has
//! for it without `delegation.token.secret.key`.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_delegation_token::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse,
};

use super::token_calls::{NO_TOKENS, check_connection};
use crate::access::Caller;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const USER: &str = "User";
/// The first version whose answer names who asked.
const WITH_REQUESTER: i16 = 3;

/// Type and name, as in `User:alice`.
type Principal<'a> = (&'a str, &'a str);

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: CreateDelegationTokenRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let requester = principal(&request.connection.principal);
    let owner = owner(&body, requester);
    let (code, time) = match check(node, request, caller, &body, owner) {
        Err(code) => (code, -1),
        Ok(()) => (NO_TOKENS, 0),
    };
    let shown = if request.api_version < WITH_REQUESTER {
        ("", "")
    } else {
        requester
    };
    CreateDelegationTokenResponse {
        error_code: code.code(),
        principal_type: owner.0,
        principal_name: owner.1,
        token_requester_principal_type: shown.0,
        token_requester_principal_name: shown.1,
        issue_timestamp_ms: time,
        expiry_timestamp_ms: time,
        max_timestamp_ms: time,
        ..Default::default()
    }
    .encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

/// Checks in the order of Apache Kafka.
fn check(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: &CreateDelegationTokenRequest<'_>,
    owner: Principal<'_>,
) -> Result<(), ErrorCode> {
    check_connection(node, request)?;
    let owner = format!("{}:{}", owner.0, owner.1);
    if owner != *request.connection.principal {
        caller.token_for(&owner)?;
    }
    match body.renewers.iter().all(|renewer| renewer.principal_type == USER) {
        true => Ok(()),
        false => Err(ErrorCode::InvalidPrincipalType),
    }
}

/// Who the token would be for; the client itself if it names no other.
fn owner<'a>(body: &CreateDelegationTokenRequest<'a>, requester: Principal<'a>) -> Principal<'a> {
    match body.owner_principal_name {
        None | Some("") => requester,
        Some(name) => (body.owner_principal_type.unwrap_or_default(), name),
    }
}

fn principal(text: &str) -> Principal<'_> {
    text.split_once(':').unwrap_or((USER, text))
}

#[cfg(test)]
mod tests {
    use ottla_wire::api_key::ApiKey;
    use ottla_wire::messages::create_delegation_token::CreatableRenewers;
    use ottla_wire::messages::{describe_delegation_token, expire_delegation_token, renew_delegation_token};

    use super::*;
    use crate::access::acl::{Operation, Permission, ResourceType};
    use crate::handlers::access_tests::{acl, set_acls};
    use crate::handlers::metadata_tests::{Broker, read, versions};

    const NOT_ALLOWED: i16 = ErrorCode::DelegationTokenRequestNotAllowed as i16;
    const DISABLED: i16 = ErrorCode::DelegationTokenAuthDisabled as i16;
    const DENIED: i16 = ErrorCode::DelegationTokenAuthorizationFailed as i16;

    const LINES: [(&str, &str); 7] = [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:admin"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:9092,TLS://127.0.0.1:9093,LOGIN://127.0.0.1:9094",
        ),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("listener.name.login.sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        (
            "listener.name.login.scram-sha-256.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        ),
    ];

    fn broker(listener: &str, principal: &str) -> Broker {
        let mut broker = Broker::new(&LINES);
        broker.connect_by(listener);
        broker.connect_as(principal);
        broker
    }

    /// The error code, the owner, and who asked, of an answer in version 3.
    fn create(broker: &Broker, owner: Option<Principal<'_>>, renewer: &str) -> (i16, String, String) {
        let request = CreateDelegationTokenRequest {
            owner_principal_type: owner.map(|owner| owner.0),
            owner_principal_name: owner.map(|owner| owner.1),
            renewers: vec![CreatableRenewers {
                principal_type: renewer,
                principal_name: "carol",
            }],
            max_lifetime_ms: -1,
        };
        let bytes = broker.ask(ApiKey::CreateDelegationToken, 3, |body| request.encode(body, 3));
        let answer = read(&bytes, |reader| CreateDelegationTokenResponse::decode(reader, 3));
        let time = if answer.error_code == DISABLED { 0 } else { -1 };
        assert_eq!(
            [
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms
            ],
            [time; 3]
        );
        (
            answer.error_code,
            format!("{}:{}", answer.principal_type, answer.principal_name),
            format!(
                "{}:{}",
                answer.token_requester_principal_type, answer.token_requester_principal_name
            ),
        )
    }

    #[test]
    fn tokens_are_for_clients_that_have_authenticated() {
        for (listener, principal, expected) in [
            ("PLAINTEXT", "User:ANONYMOUS", NOT_ALLOWED),
            ("TLS", "User:ANONYMOUS", NOT_ALLOWED),
            ("TLS", "User:CN=alice", DISABLED),
            ("LOGIN", "User:alice", DISABLED),
        ] {
            let broker = broker(listener, principal);
            let answer = create(&broker, None, USER);
            assert_eq!(answer, (expected, principal.to_owned(), principal.to_owned()));
        }
    }

    #[test]
    fn a_token_for_another_principal_needs_a_permission() {
        let broker = broker("LOGIN", "User:alice");
        let alice = || "User:alice".to_owned();
        let of_bob = |code| (code, "User:bob".to_owned(), alice());
        let bob = Some((USER, "bob"));
        assert_eq!(
            create(&broker, Some((USER, "alice")), USER),
            (DISABLED, alice(), alice())
        );
        assert_eq!(
            create(&broker, Some((USER, "")), USER),
            (DISABLED, alice(), alice())
        );
        assert_eq!(create(&broker, bob, USER), of_bob(DENIED));
        let permission = |name| {
            acl(
                Permission::Allow,
                ResourceType::User,
                Operation::CreateTokens,
                name,
            )
        };
        set_acls(&broker, [permission("User:carol")]);
        assert_eq!(create(&broker, bob, USER), of_bob(DENIED));
        set_acls(&broker, [permission("User:bob")]);
        assert_eq!(create(&broker, bob, USER), of_bob(DISABLED));
    }

    #[test]
    fn only_users_renew_tokens() {
        let broker = broker("LOGIN", "User:alice");
        let invalid = ErrorCode::InvalidPrincipalType.code();
        assert_eq!(create(&broker, None, "Group").0, invalid);
        // What is checked before.
        assert_eq!(create(&broker, Some((USER, "bob")), "Group").0, DENIED);
    }

    #[test]
    fn every_version_of_every_api_about_tokens_is_answered() {
        for (broker, expected, time) in [
            (broker("PLAINTEXT", "User:ANONYMOUS"), NOT_ALLOWED, -1),
            (broker("LOGIN", "User:alice"), DISABLED, 0),
        ] {
            for version in versions(ApiKey::CreateDelegationToken) {
                let request = CreateDelegationTokenRequest::default();
                let bytes = broker.ask(ApiKey::CreateDelegationToken, version, |body| {
                    request.encode(body, version);
                });
                let answer = read(&bytes, |reader| {
                    CreateDelegationTokenResponse::decode(reader, version)
                });
                assert_eq!(answer.error_code, expected);
            }
            for version in versions(ApiKey::RenewDelegationToken) {
                let request = renew_delegation_token::RenewDelegationTokenRequest::default();
                let bytes = broker.ask(ApiKey::RenewDelegationToken, version, |body| {
                    request.encode(body, version);
                });
                let answer = read(&bytes, |reader| {
                    renew_delegation_token::RenewDelegationTokenResponse::decode(reader, version)
                });
                assert_eq!((answer.error_code, answer.expiry_timestamp_ms), (expected, time));
            }
            for version in versions(ApiKey::ExpireDelegationToken) {
                let request = expire_delegation_token::ExpireDelegationTokenRequest::default();
                let bytes = broker.ask(ApiKey::ExpireDelegationToken, version, |body| {
                    request.encode(body, version);
                });
                let answer = read(&bytes, |reader| {
                    expire_delegation_token::ExpireDelegationTokenResponse::decode(reader, version)
                });
                assert_eq!((answer.error_code, answer.expiry_timestamp_ms), (expected, time));
            }
            for version in versions(ApiKey::DescribeDelegationToken) {
                let request = describe_delegation_token::DescribeDelegationTokenRequest { owners: None };
                let bytes = broker.ask(ApiKey::DescribeDelegationToken, version, |body| {
                    request.encode(body, version);
                });
                let answer = read(&bytes, |reader| {
                    describe_delegation_token::DescribeDelegationTokenResponse::decode(reader, version)
                });
                assert_eq!((answer.error_code, answer.tokens.len()), (expected, 0));
            }
        }
    }
}
