//! Credentials of users that do not exist.
//!
//! Kafka ends an exchange with an unknown user after its first message, which tells a stranger who
//! exists. Here an unknown user gets a salt like any other, the same one each time, and fails at
//! the proof like a wrong password.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;

use crate::config::{SCRAM_ITERATIONS_MIN, SaslMechanism};
use crate::image::access::{ScramCredential, ScramKey};

/// The bits of a salt that Kafka's tools choose. They write it as a number to the base 36.
const KAFKA_SALT_BITS: u32 = 130;

/// The longest salt that is imitated.
const SALT_BYTES_MAX: usize = 64;

/// What salts look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SaltForm {
    /// 25 or 26 digits and lower-case letters; rarely fewer.
    Kafka,
    /// Any bytes, this many.
    Bytes(usize),
}

impl SaltForm {
    fn of(salt: &[u8]) -> SaltForm {
        let is_base_36 = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        if (23..=26).contains(&salt.len()) && salt.iter().all(is_base_36) {
            SaltForm::Kafka
        } else {
            SaltForm::Bytes(salt.len().min(SALT_BYTES_MAX))
        }
    }
}

/// What the credentials of a mechanism look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CredentialForm {
    iterations: i32,
    salt: SaltForm,
}

/// Those that Kafka's tools create.
const KAFKA_FORM: CredentialForm = CredentialForm {
    iterations: SCRAM_ITERATIONS_MIN,
    salt: SaltForm::Kafka,
};

/// The most common form by mechanism.
#[derive(Debug, PartialEq, Eq)]
struct Forms {
    sha_256: CredentialForm,
    sha_512: CredentialForm,
}

impl Forms {
    fn of(credentials: &BTreeMap<ScramKey, ScramCredential>) -> Forms {
        let most_common = |mechanism: SaslMechanism| {
            let mut counts = BTreeMap::<CredentialForm, usize>::new();
            for (_, credential) in credentials
                .iter()
                .filter(|(key, _)| Some(key.mechanism) == mechanism.scram_code())
            {
                let form = CredentialForm {
                    iterations: credential.iterations,
                    salt: SaltForm::of(&credential.salt),
                };
                *counts.entry(form).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            most.map_or(KAFKA_FORM, |(form, _)| form)
        };
        Forms {
            sha_256: most_common(SaslMechanism::ScramSha256),
            sha_512: most_common(SaslMechanism::ScramSha512),
        }
    }
}

/// Invents credentials.
#[derive(Debug)]
pub struct Decoys {
    key: hmac::Key,
    forms: ArcSwap<Forms>,
}

impl Decoys {
    /// - `secret`: the same after a restart; another one would give unknown users other salts, and
    ///   known users their old ones.
    pub fn new(secret: &[u8], credentials: &BTreeMap<ScramKey, ScramCredential>) -> Decoys {
        Decoys {
            key: hmac::Key::new(hmac::HMAC_SHA512, secret),
            forms: ArcSwap::from_pointee(Forms::of(credentials)),
        }
    }

    /// Takes over the form of changed credentials.
    pub fn follow(&self, credentials: &BTreeMap<ScramKey, ScramCredential>) {
        self.forms.store(Arc::new(Forms::of(credentials)));
    }

    /// Returns the credential of a user that does not exist. No password fits it.
    pub(super) fn credential(&self, mechanism: SaslMechanism, user: &str) -> ScramCredential {
        let forms = self.forms.load();
        let (form, key_bytes) = match mechanism {
            SaslMechanism::ScramSha512 => (forms.sha_512, 64),
            SaslMechanism::ScramSha256 | SaslMechanism::Plain | SaslMechanism::OauthBearer => {
                (forms.sha_256, 32)
            }
        };
        let salt_bits = self.hash("salt", mechanism, user);
        let keys = self.hash("keys", mechanism, user);
        let salt = match form.salt {
            SaltForm::Kafka => base_36(&salt_bits).into_bytes(),
            SaltForm::Bytes(length) => salt_bits[..length].to_vec(),
        };
        ScramCredential {
            salt: salt.into(),
            stored_key: keys[..key_bytes].into(),
            server_key: keys[..key_bytes].into(),
            iterations: form.iterations,
        }
    }

    fn hash(&self, purpose: &str, mechanism: SaslMechanism, user: &str) -> [u8; SALT_BYTES_MAX] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [purpose, mechanism.name(), user] {
            context.update(part.as_bytes());
            context.update(&[0]);
        }
        let tag = context.sign();
        tag.as_ref().try_into().expect("SHA-512 has 64 bytes")
    }
}

/// The first [`KAFKA_SALT_BITS`] bits as a number to the base 36.
fn base_36(bits: &[u8; SALT_BYTES_MAX]) -> String {
    const BYTES: usize = KAFKA_SALT_BITS.div_ceil(8) as usize;
    let mut number: [u8; BYTES] = bits[..BYTES].try_into().expect("there are enough bits");
    number[0] &= 0xff >> (BYTES as u32 * 8 - KAFKA_SALT_BITS);
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            *byte = (value / 36) as u8;
            rest = value % 36;
        }
        digits.push(char::from_digit(rest, 36).expect("less than 36"));
    }
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA_256: SaslMechanism = SaslMechanism::ScramSha256;

    fn stored(mechanism: i8, user: &str, salt: &[u8], iterations: i32) -> (ScramKey, ScramCredential) {
        let key = ScramKey {
            mechanism,
            user: user.into(),
        };
        let credential = ScramCredential {
            salt: salt.into(),
            stored_key: [1; 32].into(),
            server_key: [2; 32].into(),
            iterations,
        };
        (key, credential)
    }

    #[test]
    fn an_unknown_user_has_one_salt_for_ever_and_for_each_mechanism() {
        let decoys = Decoys::new(b"secret", &BTreeMap::new());
        let mallory = decoys.credential(SHA_256, "mallory");
        assert!(Decoys::new(b"secret", &BTreeMap::new()).credential(SHA_256, "mallory") == mallory);
        let others = [
            decoys.credential(SHA_256, "mallor"),
            decoys.credential(SaslMechanism::ScramSha512, "mallory"),
            Decoys::new(b"other", &BTreeMap::new()).credential(SHA_256, "mallory"),
        ];
        assert!(
            others
                .iter()
                .all(|other| other.salt != mallory.salt && other.stored_key != mallory.stored_key)
        );
        assert_eq!((mallory.stored_key.len(), others[1].stored_key.len()), (32, 64));
    }

    #[test]
    fn salts_look_like_those_of_kafkas_tools_when_there_are_none_to_imitate() {
        let decoys = Decoys::new(b"secret", &BTreeMap::new());
        let mut lengths = BTreeMap::<usize, usize>::new();
        for number in 0..1_000 {
            let credential = decoys.credential(SHA_256, &format!("user{number}"));
            assert_eq!(SaltForm::of(&credential.salt), SaltForm::Kafka);
            assert_eq!(credential.iterations, 4_096);
            *lengths.entry(credential.salt.len()).or_default() += 1;
        }
        // 36^25 / 2^130 = 0.594: that share has at most 25 digits.
        assert!((540..650).contains(&lengths[&25]), "{lengths:?}");
        assert!((360..460).contains(&lengths[&26]), "{lengths:?}");
    }

    #[test]
    fn salts_and_iterations_are_those_that_most_stored_credentials_have() {
        let salt = b"0123456789abcdefghijklmno";
        let mut credentials = BTreeMap::from([
            stored(1, "a", &[200; 18], 8_192),
            stored(1, "b", &[201; 18], 8_192),
            stored(1, "c", salt, 4_096),
            stored(2, "a", salt, 16_384),
        ]);
        let decoys = Decoys::new(b"secret", &BTreeMap::new());
        let look = |decoys: &Decoys, mechanism| {
            let credential = decoys.credential(mechanism, "mallory");
            (credential.iterations, SaltForm::of(&credential.salt))
        };
        assert_eq!(look(&decoys, SHA_256), (4_096, SaltForm::Kafka));
        decoys.follow(&credentials);
        assert_eq!(look(&decoys, SHA_256), (8_192, SaltForm::Bytes(18)));
        assert_eq!(
            look(&decoys, SaslMechanism::ScramSha512),
            (16_384, SaltForm::Kafka)
        );
        // One of a kilobyte is not imitated in full.
        credentials.extend((0..5).map(|number| stored(1, &number.to_string(), &[7; 1_024], 5_000)));
        decoys.follow(&credentials);
        assert_eq!(look(&decoys, SHA_256), (5_000, SaltForm::Bytes(64)));
    }

    #[test]
    fn numbers_are_written_to_the_base_36() {
        let mut bits = [0; SALT_BYTES_MAX];
        assert_eq!(base_36(&bits), "");
        bits[16] = 37;
        assert_eq!(base_36(&bits), "11");
        // 2^130 - 1, as Java's BigInteger writes it.
        assert_eq!(base_36(&[0xff; SALT_BYTES_MAX]), "1omfro7zwmumr3umxudzyj6scf");
    }
}
