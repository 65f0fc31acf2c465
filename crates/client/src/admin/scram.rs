//! SCRAM credentials of users (KIP-554): the password is salted here and never sent.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, ScramCredentialDeletion,
    ScramCredentialUpsertion,
};
use ottla_wire::messages::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, UserName,
};

use super::context::{Context, Destination, Versions, decode_with};
use super::topics::controller_moved;
use super::{Admin, Results, body, resource_error, resource_result};
use crate::config::{Password, SaslMechanism};
use crate::error::Error;
use crate::network::sasl::{nonce, salted_password};
use crate::pending::Pending;

/// Twice the minimum of RFC 5802 and the default of Kafka's own tools, because guessing passwords
/// has become cheaper.
const ROUNDS_DEFAULT: u32 = 8192;

/// A mechanism that a broker keeps credentials for (KIP-554).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256 = 1,
    /// SCRAM-SHA-512.
    Sha512 = 2,
}

impl ScramMechanism {
    fn sasl(self) -> SaslMechanism {
        match self {
            ScramMechanism::Sha256 => SaslMechanism::ScramSha256,
            ScramMechanism::Sha512 => SaslMechanism::ScramSha512,
        }
    }
}

/// A change of one user's credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScramCredential {
    /// Creates or replaces the user's credential of this mechanism.
    Set {
        /// Which of the user's credentials.
        mechanism: ScramMechanism,
        /// Salted by this client and never sent.
        password: Password,
        /// Kafka accepts 4096 to 16 384; `None`: 8192.
        rounds: Option<u32>,
    },
    /// Removes the user's credential of this mechanism.
    Delete {
        /// Which of the user's credentials.
        mechanism: ScramMechanism,
    },
}

/// Mechanism and rounds of a user's credentials.
pub type ScramDescription = BTreeMap<ScramMechanism, u32>;

impl Admin {
    /// Returns which credentials these users have; an empty list means all users. A user without
    /// any is `Err(ResourceNotFound)`.
    pub fn describe_scram_credentials(
        &self,
        users: Vec<String>,
    ) -> Pending<Results<String, ScramDescription>> {
        self.call("describe SCRAM credentials", |context| describe(context, users))
    }

    /// Changes credentials. Salting a password takes some milliseconds of the calling thread.
    pub fn alter_scram_credentials(
        &self,
        changes: Vec<(String, ScramCredential)>,
    ) -> Pending<Results<String, ()>> {
        let salted: Result<Vec<_>, Error> = changes
            .into_iter()
            .map(|(user, change)| Ok((user, Change::from(change)?)))
            .collect();
        match salted {
            Ok(changes) => self.call("alter SCRAM credentials", |context| alter(context, changes)),
            Err(error) => Pending::decided(Err(error)),
        }
    }
}

/// The wire form of a `ScramCredential`.
enum Change {
    Set {
        mechanism: ScramMechanism,
        rounds: u32,
        salt: Vec<u8>,
        salted_password: Vec<u8>,
    },
    Delete {
        mechanism: ScramMechanism,
    },
}

impl Change {
    fn from(credential: ScramCredential) -> Result<Change, Error> {
        let (mechanism, password, rounds) = match credential {
            ScramCredential::Delete { mechanism } => return Ok(Change::Delete { mechanism }),
            ScramCredential::Set {
                mechanism,
                password,
                rounds,
            } => (mechanism, password, rounds.unwrap_or(ROUNDS_DEFAULT)),
        };
        let count = NonZeroU32::new(rounds).ok_or_else(|| Error::InvalidArgument {
            message: "SCRAM needs at least one round".into(),
        })?;
        let salt = nonce().to_vec();
        let salted_password = salted_password(mechanism.sasl(), &password, &salt, count)?;
        Ok(Change::Set {
            mechanism,
            rounds,
            salt,
            salted_password,
        })
    }
}

async fn describe(context: Context, users: Vec<String>) -> Result<Results<String, ScramDescription>, Error> {
    let encode = move |version| {
        let names = || users.iter().map(|name| UserName { name }).collect();
        let request = DescribeUserScramCredentialsRequest {
            users: (!users.is_empty()).then(names),
        };
        body(|out| request.encode(out, version))
    };
    let api_key = ApiKey::DescribeUserScramCredentials;
    context
        .ask(Destination::Any, api_key, Versions::ALL, encode, |answer| {
            let response = decode_with(answer, DescribeUserScramCredentialsResponse::decode)?;
            let message = response.error_message;
            if let Some(error) = resource_error(response.error_code, message, || "SCRAM credentials".into()) {
                return Err(error);
            }
            let results = response.results.iter().map(|result| {
                let credentials = result.credential_infos.iter().filter_map(|info| {
                    let mechanisms = [ScramMechanism::Sha256, ScramMechanism::Sha512];
                    let mechanism = mechanisms
                        .into_iter()
                        .find(|known| *known as i8 == info.mechanism)?;
                    Some((mechanism, u32::try_from(info.iterations).unwrap_or(0)))
                });
                let what = || format!("user {}", result.user);
                let described = credentials.collect();
                let described = resource_result(described, result.error_code, result.error_message, what);
                (result.user.to_owned(), described)
            });
            Ok(results.collect())
        })
        .await
}

async fn alter(context: Context, changes: Vec<(String, Change)>) -> Result<Results<String, ()>, Error> {
    let encode = move |version| {
        let mut request = AlterUserScramCredentialsRequest::default();
        for (name, change) in &changes {
            match change {
                Change::Set {
                    mechanism,
                    rounds,
                    salt,
                    salted_password,
                } => request.upsertions.push(ScramCredentialUpsertion {
                    name,
                    mechanism: *mechanism as i8,
                    iterations: i32::try_from(*rounds).unwrap_or(i32::MAX),
                    salt,
                    salted_password,
                }),
                Change::Delete { mechanism } => request.deletions.push(ScramCredentialDeletion {
                    name,
                    mechanism: *mechanism as i8,
                }),
            }
        }
        body(|out| request.encode(out, version))
    };
    let api_key = ApiKey::AlterUserScramCredentials;
    context
        .ask(
            Destination::Controller,
            api_key,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, AlterUserScramCredentialsResponse::decode)?;
                controller_moved(response.results.iter().map(|result| &result.error_code))?;
                let results = response.results.iter().map(|result| {
                    let what = || format!("user {}", result.user);
                    let altered = resource_result((), result.error_code, result.error_message, what);
                    (result.user.to_owned(), altered)
                });
                Ok(results.collect())
            },
        )
        .await
}
