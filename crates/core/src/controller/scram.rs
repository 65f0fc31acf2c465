//! Decisions about SCRAM credentials, and the records for them.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::MetadataRecord;
use ottla_wire::metadata_records::remove_user_scram_credential::RemoveUserScramCredentialRecord;
use ottla_wire::metadata_records::user_scram_credential::UserScramCredentialRecord;

use super::Decider;
use crate::config::{FirstUser, SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, SaslMechanism};
use crate::image::access::ScramKey;
use crate::image::record::RecordList;
use crate::refusal::Refusal;
use crate::sasl::keys::ScramHash;

/// Kafka's tools choose 26 bytes.
const SALT_BYTES_MAX: usize = 1_024;

/// At most this many changes per request: they are one batch of the metadata log.
const CHANGES_PER_REQUEST_MAX: usize = 10_000;

/// The credential that an empty log begins with.
pub(super) fn push_first_user(records: &mut RecordList, user: &FirstUser) {
    let mechanism = user
        .mechanism
        .scram_code()
        .expect("the mechanism is one of SCRAM's");
    let keys = ScramHash::of(user.mechanism).stored_keys(&user.salted_password);
    let record = UserScramCredentialRecord {
        name: &user.name,
        mechanism,
        salt: &user.salt,
        stored_key: &keys.stored_key,
        server_key: &keys.server_key,
        iterations: user.iterations,
    };
    records.push(MetadataRecord::UserScramCredential(record), 0);
}

/// A change of one credential.
pub struct ScramAlteration {
    pub user: String,
    pub mechanism: i8,
    pub change: ScramChange,
}

pub enum ScramChange {
    Delete,
    Set {
        iterations: i32,
        salt: Box<[u8]>,
        /// As secret as the password.
        salted_password: Box<[u8]>,
    },
}

/// The outcome of each user of a request.
pub type ScramResults = Vec<(String, Result<(), Refusal>)>;

impl Decider<'_> {
    /// Decides about every user of an AlterUserScramCredentials request, in the request's order.
    /// A user that occurs twice is refused.
    pub fn alter_scram_credentials(&self, alterations: &[ScramAlteration]) -> (RecordList, ScramResults) {
        let mut times = BTreeMap::<&str, usize>::new();
        for alteration in alterations {
            *times.entry(&alteration.user).or_default() += 1;
        }
        let is_too_much = alterations.len() > CHANGES_PER_REQUEST_MAX;
        let mut records = RecordList::default();
        let mut results = Vec::new();
        for alteration in alterations {
            // Answered once, at the place of its first change.
            let Some(times) = times.remove(&*alteration.user) else {
                continue;
            };
            let result = if is_too_much {
                let message = format!("more than {CHANGES_PER_REQUEST_MAX} changes in one request");
                Err(Refusal::new(ErrorCode::PolicyViolation, message))
            } else if times > 1 {
                let message = "A user credential cannot be altered twice in the same request";
                Err(Refusal::new(ErrorCode::DuplicateResource, message))
            } else {
                self.alter_scram_credential(alteration, &mut records)
            };
            results.push((alteration.user.clone(), result));
        }
        (records, results)
    }

    fn alter_scram_credential(
        &self,
        alteration: &ScramAlteration,
        records: &mut RecordList,
    ) -> Result<(), Refusal> {
        let ScramAlteration {
            user,
            mechanism: code,
            change,
        } = alteration;
        if user.is_empty() {
            return Err(unacceptable("Username must not be empty".to_owned()));
        }
        let mechanism = SaslMechanism::from_scram_code(*code).ok_or_else(|| {
            let message = format!("Unknown SCRAM mechanism {code}");
            Refusal::new(ErrorCode::UnsupportedSaslMechanism, message)
        })?;
        match change {
            ScramChange::Delete => {
                let key = ScramKey {
                    mechanism: *code,
                    user: user.as_str().into(),
                };
                // A record that removes what is not there would stop a controller of Apache Kafka.
                if !self.image.scram_credentials.contains_key(&key) {
                    let message = format!("{user} has no credential for {}", mechanism.name());
                    return Err(Refusal::new(ErrorCode::ResourceNotFound, message));
                }
                let record = RemoveUserScramCredentialRecord {
                    name: user,
                    mechanism: *code,
                };
                records.push(MetadataRecord::RemoveUserScramCredential(record), 0);
            }
            ScramChange::Set {
                iterations,
                salt,
                salted_password,
            } => {
                let hash = ScramHash::of(mechanism);
                check_credential(hash, *iterations, salt, salted_password)?;
                let keys = hash.stored_keys(salted_password);
                let record = UserScramCredentialRecord {
                    name: user,
                    mechanism: *code,
                    salt,
                    stored_key: &keys.stored_key,
                    server_key: &keys.server_key,
                    iterations: *iterations,
                };
                records.push(MetadataRecord::UserScramCredential(record), 0);
            }
        }
        Ok(())
    }
}

/// Kafka does not check the lengths: it stores a credential that no client can use.
fn check_credential(
    hash: ScramHash,
    iterations: i32,
    salt: &[u8],
    salted_password: &[u8],
) -> Result<(), Refusal> {
    if iterations < SCRAM_ITERATIONS_MIN {
        return Err(unacceptable(format!(
            "Too few iterations: {iterations}, at least {SCRAM_ITERATIONS_MIN} are needed"
        )));
    }
    if iterations > SCRAM_ITERATIONS_MAX {
        return Err(unacceptable(format!(
            "Too many iterations: {iterations}, at most {SCRAM_ITERATIONS_MAX} are allowed"
        )));
    }
    if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
        return Err(unacceptable(format!(
            "the salt has {} bytes, 1 to {SALT_BYTES_MAX} are allowed",
            salt.len()
        )));
    }
    let expected = hash.key_bytes();
    if salted_password.len() != expected {
        return Err(unacceptable(format!(
            "the salted password has {} bytes, the mechanism's has {expected}",
            salted_password.len()
        )));
    }
    Ok(())
}

fn unacceptable(message: String) -> Refusal {
    Refusal::new(ErrorCode::UnacceptableCredential, message)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, World};
    use super::*;

    fn set(user: &str, mechanism: i8, iterations: i32, salt: usize, password: usize) -> ScramAlteration {
        ScramAlteration {
            user: user.to_owned(),
            mechanism,
            change: ScramChange::Set {
                iterations,
                salt: vec![7; salt].into(),
                salted_password: vec![9; password].into(),
            },
        }
    }

    fn delete(user: &str, mechanism: i8) -> ScramAlteration {
        ScramAlteration {
            user: user.to_owned(),
            mechanism,
            change: ScramChange::Delete,
        }
    }

    fn alter(world: &mut World, alterations: &[ScramAlteration]) -> Vec<(String, ErrorCode)> {
        let mut controller = world.start();
        let results = controller.alter_scram_credentials(alterations, NOW).unwrap();
        let code =
            |result: Result<(), Refusal>| result.map_or_else(|refusal| refusal.code, |()| ErrorCode::None);
        results
            .into_iter()
            .map(|(user, result)| (user, code(result)))
            .collect()
    }

    #[track_caller]
    fn check(alterations: &[ScramAlteration], expected: ErrorCode) {
        let mut world = World::new("scram-check");
        let results = alter(&mut world, alterations);
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].1, expected);
        let stored = world.start().image().scram_credentials.len();
        assert_eq!(stored, usize::from(expected == ErrorCode::None));
    }

    #[test]
    fn a_credential_survives_a_restart_and_is_removed_once() {
        let mut world = World::new("scram-restart");
        let all = [set("alice", 1, 4_096, 26, 32), set("bob", 2, 16_384, 1, 64)];
        let both = [
            ("alice".to_owned(), ErrorCode::None),
            ("bob".to_owned(), ErrorCode::None),
        ];
        assert_eq!(alter(&mut world, &all), both);
        let image = world.start().image().clone();
        let key = ScramKey {
            mechanism: 1,
            user: "alice".into(),
        };
        let stored = &image.scram_credentials[&key];
        let hash = ScramHash::of(SaslMechanism::ScramSha256);
        let keys = hash.stored_keys(&[9; 32]);
        assert!(stored.stored_key == keys.stored_key && stored.server_key == keys.server_key);
        assert_eq!((&*stored.salt, stored.iterations), (&[7; 26][..], 4_096));
        assert_eq!(alter(&mut world, &[delete("alice", 1)]), both[..1]);
        assert_eq!(
            alter(&mut world, &[delete("alice", 1)])[0].1,
            ErrorCode::ResourceNotFound
        );
        assert_eq!(world.start().image().scram_credentials.len(), 1);
    }

    #[test]
    fn what_no_client_could_use_or_should_compute_is_refused() {
        check(&[set("u", 1, 4_096, 1_024, 32)], ErrorCode::None);
        let unacceptable = ErrorCode::UnacceptableCredential;
        for iterations in [i32::MIN, 0, 4_095, 16_385, i32::MAX] {
            check(&[set("u", 1, iterations, 26, 32)], unacceptable);
        }
        check(&[set("u", 1, 4_096, 0, 32)], unacceptable);
        check(&[set("u", 1, 4_096, 1_025, 32)], unacceptable);
        check(&[set("u", 1, 4_096, 26, 0)], unacceptable);
        check(&[set("u", 1, 4_096, 26, 64)], unacceptable);
        check(&[set("u", 2, 4_096, 26, 32)], unacceptable);
        check(&[set("", 1, 4_096, 26, 32)], unacceptable);
        check(&[delete("", 1)], unacceptable);
        for mechanism in [0, 3, -1, i8::MAX] {
            check(
                &[set("u", mechanism, 4_096, 26, 32)],
                ErrorCode::UnsupportedSaslMechanism,
            );
            check(&[delete("u", mechanism)], ErrorCode::UnsupportedSaslMechanism);
        }
        check(&[delete("u", 1)], ErrorCode::ResourceNotFound);
    }

    #[test]
    fn a_user_that_occurs_twice_is_refused_and_others_are_not() {
        let mut world = World::new("scram-twice");
        let results = alter(
            &mut world,
            &[
                delete("a", 1),
                set("a", 1, 4_096, 26, 32),
                set("b", 1, 4_096, 26, 32),
                set("c", 1, 4_096, 26, 32),
                set("c", 2, 4_096, 26, 64),
            ],
        );
        let expected = [
            ("a", ErrorCode::DuplicateResource),
            ("b", ErrorCode::None),
            ("c", ErrorCode::DuplicateResource),
        ];
        assert_eq!(results, expected.map(|(user, code)| (user.to_owned(), code)));
        assert_eq!(world.start().image().scram_credentials.len(), 1);
    }
}
