//! Credentials of SCRAM users, and requests of SASL on a listener without it.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::{CREDENTIAL, UNNAMED};
use ottla_wire::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_wire::messages::describe_user_scram_credentials::{DescribeUserScramCredentialsRequest, UserName};
use ottla_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_wire::messages::sasl_handshake::SaslHandshakeRequest;

use super::case::{Case, Expected, differ};
use super::exchange::Ask;

use Expected::Both;

/// A credential whose fields can be wrong.
#[derive(Clone, Copy)]
struct Credential {
    name: &'static str,
    mechanism: i8,
    iterations: i32,
    salt: &'static [u8],
    salted_password: &'static [u8],
}

const SOUND: Credential = Credential {
    name: "liar",
    mechanism: 1,
    iterations: 4_096,
    salt: &[7; 26],
    salted_password: &[9; 32],
};

pub fn cases() -> Vec<Case> {
    let mut cases = settings();
    cases.extend(deletions());
    cases.extend(descriptions());
    cases.extend(sasl());
    cases
}

fn alter(
    name: &str,
    expected: Expected,
    deletions: &[(&'static str, i8)],
    upsertions: &[Credential],
) -> Case {
    let request = AlterUserScramCredentialsRequest {
        deletions: deletions
            .iter()
            .map(|(name, mechanism)| ScramCredentialDeletion {
                name,
                mechanism: *mechanism,
            })
            .collect(),
        upsertions: upsertions
            .iter()
            .map(|credential| ScramCredentialUpsertion {
                name: credential.name,
                mechanism: credential.mechanism,
                iterations: credential.iterations,
                salt: credential.salt,
                salted_password: credential.salted_password,
            })
            .collect(),
    };
    let mut body = Vec::new();
    request.encode(&mut body, 0);
    let api_key = ApiKey::AlterUserScramCredentials;
    Case::new(format!("{api_key}: {name}"), expected, move |_| {
        Ask::new(api_key, 0, &body)
    })
}

fn settings() -> Vec<Case> {
    let set = |name: &str, expected, change: fn(&mut Credential)| {
        let mut credential = SOUND;
        change(&mut credential);
        alter(name, expected, &[], &[credential])
    };
    let unacceptable = Both("UNACCEPTABLE_CREDENTIAL");
    let unknown = Both("UNSUPPORTED_SASL_MECHANISM");
    let unnamed = differ("UNKNOWN_SERVER_ERROR", "UNACCEPTABLE_CREDENTIAL", &UNNAMED);
    let lenient = differ("NONE", "UNACCEPTABLE_CREDENTIAL", &CREDENTIAL);
    vec![
        alter("nothing", Both("no code"), &[], &[]),
        set("a sound one", Both("NONE"), |_| {}),
        set("the same again", Both("NONE"), |_| {}),
        set("no name", unacceptable, |credential| credential.name = ""),
        set("mechanism 0", unknown, |credential| credential.mechanism = 0),
        set("mechanism 3", unknown, |credential| credential.mechanism = 3),
        set("mechanism -1", unknown, |credential| credential.mechanism = -1),
        set("no iteration", unacceptable, |credential| {
            credential.iterations = 0
        }),
        set("4095 iterations", unacceptable, |credential| {
            credential.iterations = 4_095;
        }),
        set("16384 iterations", Both("NONE"), |credential| {
            credential.iterations = 16_384;
        }),
        set("16385 iterations", unacceptable, |credential| {
            credential.iterations = 16_385;
        }),
        set("a negative number of iterations", unacceptable, |credential| {
            credential.iterations = i32::MIN;
        }),
        set("no salt", lenient, |credential| credential.salt = &[]),
        set("no salted password", unnamed, |credential| {
            credential.salted_password = &[];
        }),
        set(
            "a salted password of the other mechanism",
            lenient,
            |credential| {
                credential.salted_password = &[9; 64];
            },
        ),
        alter("one user twice", Both("DUPLICATE_RESOURCE"), &[], &[SOUND; 2]),
        alter(
            "one user with both mechanisms",
            Both("DUPLICATE_RESOURCE"),
            &[],
            &[
                SOUND,
                Credential {
                    mechanism: 2,
                    salted_password: &[9; 64],
                    ..SOUND
                },
            ],
        ),
    ]
}

fn deletions() -> Vec<Case> {
    let set = SOUND;
    vec![
        alter(
            "removed and set",
            Both("DUPLICATE_RESOURCE"),
            &[("liar", 1)],
            &[set],
        ),
        alter(
            "removed twice",
            Both("DUPLICATE_RESOURCE"),
            &[("liar", 1); 2],
            &[],
        ),
        alter("removed", Both("NONE"), &[("liar", 1)], &[]),
        alter("removed again", Both("RESOURCE_NOT_FOUND"), &[("liar", 1)], &[]),
        alter(
            "removed of the other mechanism",
            Both("RESOURCE_NOT_FOUND"),
            &[("liar", 2)],
            &[],
        ),
        alter(
            "no name removed",
            Both("UNACCEPTABLE_CREDENTIAL"),
            &[("", 1)],
            &[],
        ),
        alter(
            "removed of mechanism 0",
            Both("UNSUPPORTED_SASL_MECHANISM"),
            &[("liar", 0)],
            &[],
        ),
    ]
}

fn descriptions() -> Vec<Case> {
    let describe = |name: &str, expected, users: &[&'static str]| {
        let names = users.iter().map(|name| UserName { name });
        let request = DescribeUserScramCredentialsRequest {
            users: Some(names.collect()),
        };
        let mut body = Vec::new();
        request.encode(&mut body, 0);
        let api_key = ApiKey::DescribeUserScramCredentials;
        Case::new(format!("{api_key}: {name}"), expected, move |_| {
            Ask::new(api_key, 0, &body)
        })
    };
    vec![
        describe("a stranger's", Both("NONE, RESOURCE_NOT_FOUND"), &["stranger"]),
        describe(
            "one twice",
            Both("NONE, DUPLICATE_RESOURCE"),
            &["stranger", "stranger"],
        ),
    ]
}

fn sasl() -> Vec<Case> {
    let case = |api_key: ApiKey, version: i16, body: Vec<u8>| {
        let name = format!("{api_key}: version {version} without SASL");
        Case::new(name, Both("ILLEGAL_SASL_STATE"), move |_| {
            Ask::new(api_key, version, &body)
        })
    };
    let mut cases = Vec::new();
    for version in 0..=1 {
        let mut body = Vec::new();
        SaslHandshakeRequest { mechanism: "PLAIN" }.encode(&mut body, version);
        cases.push(case(ApiKey::SaslHandshake, version, body));
    }
    for version in 0..=2 {
        let mut body = Vec::new();
        SaslAuthenticateRequest {
            auth_bytes: b"\0a\0b",
        }
        .encode(&mut body, version);
        cases.push(case(ApiKey::SaslAuthenticate, version, body));
    }
    cases
}
