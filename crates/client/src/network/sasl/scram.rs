//! SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password without sending it.

use std::num::NonZeroU32;

use super::{SaslStep, shown};
use crate::config::{Password, SaslMechanism, SaslSettings};
use crate::error::Error;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// 144 bits, as 24 printable characters.
pub const NONCE_BYTES: usize = 18;

/// A nonce from the system's randomness. It must never repeat: a repeated nonce allows a replay of
/// an old exchange.
pub fn nonce() -> [u8; NONCE_BYTES] {
    let mut bytes = [0; NONCE_BYTES];
    rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// RFC 5802 and RFC 7677 require at least 4096 rounds, and Kafka's client refuses fewer: few rounds
/// make it easy to guess the password.
const ROUNDS_MIN: u32 = 4096;

/// The rounds run on the client's driver thread. Kafka's tools create credentials of at most 16384
/// rounds; a million leaves room for the 600 000 that OWASP recommends, and takes less than a
/// second.
const ROUNDS_MAX: u32 = 1_000_000;

/// Kafka's salts have 20 to 40 bytes.
const SALT_BYTES_MAX: usize = 1024;

struct Algorithm {
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
}

impl Algorithm {
    fn of(mechanism: SaslMechanism) -> Algorithm {
        match mechanism {
            SaslMechanism::ScramSha512 => Algorithm {
                hmac: hmac::HMAC_SHA512,
                digest: &digest::SHA512,
                pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512,
            },
            SaslMechanism::Plain | SaslMechanism::ScramSha256 | SaslMechanism::OauthBearer => Algorithm {
                hmac: hmac::HMAC_SHA256,
                digest: &digest::SHA256,
                pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256,
            },
        }
    }

    fn salt(&self, password: &Password, salt: &[u8], rounds: NonZeroU32) -> Vec<u8> {
        let mut salted = vec![0; self.digest.output_len()];
        pbkdf2::derive(
            self.pbkdf2,
            rounds,
            salt,
            password.reveal().as_bytes(),
            &mut salted,
        );
        salted
    }
}

/// What a broker stores to verify a password: `Hi(password, salt, rounds)` of RFC 5802.
///
/// - Errors: `MissingFeature` in a build without `tls` (without_scram.rs).
pub fn salted_password(
    mechanism: SaslMechanism,
    password: &Password,
    salt: &[u8],
    rounds: NonZeroU32,
) -> Result<Vec<u8>, Error> {
    Ok(Algorithm::of(mechanism).salt(password, salt, rounds))
}

/// The client's side of one exchange.
pub struct Scram {
    algorithm: Algorithm,
    password: Password,
    nonce: String,
    first_bare: String,
    state: ScramState,
}

enum ScramState {
    Start,
    /// `client-first` is sent.
    First,
    /// `client-final` is sent; with the signature by which the broker proves that it knows the
    /// password.
    Final {
        server_signature: hmac::Tag,
    },
    Over,
}

impl Scram {
    pub fn new(settings: &SaslSettings, nonce: [u8; NONCE_BYTES]) -> Scram {
        Scram::with_nonce(settings, BASE64.encode(nonce))
    }

    fn with_nonce(settings: &SaslSettings, nonce: String) -> Scram {
        // Name and password are sent as UTF-8 without SASLprep: Kafka does not apply it, at either
        // end.
        let name = settings.username.replace('=', "=3D").replace(',', "=2C");
        Scram {
            algorithm: Algorithm::of(settings.mechanism),
            password: settings.password.clone(),
            first_bare: format!("n={name},r={nonce}"),
            nonce,
            state: ScramState::Start,
        }
    }

    pub fn next(&mut self, challenge: Option<&[u8]>) -> Result<SaslStep, String> {
        let state = std::mem::replace(&mut self.state, ScramState::Over);
        match (state, challenge) {
            (ScramState::Start, None) => {
                self.state = ScramState::First;
                Ok(SaslStep::Send(format!("n,,{}", self.first_bare).into_bytes()))
            }
            (ScramState::First, Some(challenge)) => self.answer(text(challenge)?),
            (ScramState::Final { server_signature }, Some(challenge)) => {
                check_final(text(challenge)?, &server_signature)?;
                Ok(SaslStep::Done)
            }
            _ => Err("the broker's SCRAM answer comes out of turn".to_owned()),
        }
    }

    /// Builds `client-final` from `server-first`.
    fn answer(&mut self, server_first: &str) -> Result<SaslStep, String> {
        let challenge = Challenge::parse(server_first, &self.nonce)?;
        let algorithm = &self.algorithm;
        let salted = algorithm.salt(&self.password, &challenge.salt, challenge.rounds);
        let sign = |key: &[u8], message: &[u8]| hmac::sign(&hmac::Key::new(algorithm.hmac, key), message);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(algorithm.digest, client_key.as_ref());
        // "biws" is the header "n,,": no channel binding.
        let without_proof = format!("c=biws,r={}", challenge.nonce);
        let message = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = sign(stored_key.as_ref(), message.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server_key = sign(&salted, b"Server Key");
        self.state = ScramState::Final {
            server_signature: sign(server_key.as_ref(), message.as_bytes()),
        };
        let last = format!("{without_proof},p={}", BASE64.encode(&proof));
        Ok(SaslStep::Send(last.into_bytes()))
    }
}

/// `server-first`: nonce, salt and rounds.
struct Challenge<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    rounds: NonZeroU32,
}

impl<'a> Challenge<'a> {
    fn parse(message: &'a str, own_nonce: &str) -> Result<Challenge<'a>, String> {
        if let Some(error) = message.strip_prefix("e=") {
            return Err(format!("the broker refused SCRAM: {}", shown(error)));
        }
        let mut parts = message.split(',');
        let mut part = |prefix: &str| parts.next().and_then(|part| part.strip_prefix(prefix));
        let (Some(nonce), Some(salt), Some(rounds)) = (part("r="), part("s="), part("i=")) else {
            return Err("the broker's first SCRAM message lacks nonce, salt or rounds".to_owned());
        };
        if !nonce.starts_with(own_nonce) || nonce.len() == own_nonce.len() {
            return Err("the broker's SCRAM nonce does not continue this client's".to_owned());
        }
        let salt = BASE64
            .decode(salt)
            .ok()
            .filter(|salt| !salt.is_empty() && salt.len() <= SALT_BYTES_MAX)
            .ok_or("the broker's SCRAM salt is malformed")?;
        let asked: u32 = rounds
            .parse()
            .map_err(|_| "the broker's SCRAM rounds are not a number")?;
        let rounds = NonZeroU32::new(asked)
            .filter(|rounds| (ROUNDS_MIN..=ROUNDS_MAX).contains(&rounds.get()))
            .ok_or_else(|| {
                format!("the broker asks for {asked} rounds of SCRAM; this client does {ROUNDS_MIN} to {ROUNDS_MAX}")
            })?;
        Ok(Challenge { nonce, salt, rounds })
    }
}

fn check_final(message: &str, expected: &hmac::Tag) -> Result<(), String> {
    let first = message.split(',').next().unwrap_or_default();
    if let Some(error) = first.strip_prefix("e=") {
        return Err(format!("the broker refused SCRAM: {}", shown(error)));
    }
    let signature = first
        .strip_prefix("v=")
        .and_then(|text| BASE64.decode(text).ok())
        .unwrap_or_default();
    // Without this check a man in the middle could impersonate the broker.
    verify_slices_are_equal(&signature, expected.as_ref())
        .map_err(|_| "the broker's SCRAM signature is wrong: it does not know the password itself".to_owned())
}

fn text(challenge: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(challenge).map_err(|_| "the broker's SCRAM message is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mechanism: SaslMechanism, username: &str, password: &str) -> SaslSettings {
        SaslSettings {
            mechanism,
            username: username.into(),
            password: Password::new(password),
            oauth: None,
        }
    }

    fn pencil(nonce: &str) -> Scram {
        Scram::with_nonce(
            &settings(SaslMechanism::ScramSha256, "user", "pencil"),
            nonce.to_owned(),
        )
    }

    fn sent(step: Result<SaslStep, String>) -> String {
        match step.unwrap() {
            SaslStep::Send(bytes) => String::from_utf8(bytes).unwrap(),
            SaslStep::Done => panic!("done too early"),
        }
    }

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_rfc() {
        let mut scram = pencil(NONCE);
        assert_eq!(sent(scram.next(None)), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(
            sent(scram.next(Some(FIRST.as_bytes()))),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(scram.next(Some(LAST.as_bytes())), Ok(SaslStep::Done));
        assert!(scram.next(Some(LAST.as_bytes())).is_err());
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_detected() {
        for last in [
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=",
            "v=",
            "",
            "v=6rri",
            "x",
            "e=other-error",
        ] {
            let mut scram = pencil(NONCE);
            scram.next(None).unwrap();
            scram.next(Some(FIRST.as_bytes())).unwrap();
            assert!(scram.next(Some(last.as_bytes())).is_err(), "{last}");
        }
    }

    #[track_caller]
    fn check_first_error(challenge: &str, expected: &str) {
        let mut scram = pencil(NONCE);
        scram.next(None).unwrap();
        let error = scram.next(Some(challenge.as_bytes())).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn hostile_challenges_are_refused() {
        check_first_error(&FIRST.replace("i=4096", "i=4095"), "4095 rounds");
        check_first_error(&FIRST.replace("i=4096", "i=1000001"), "1000001 rounds");
        check_first_error(&FIRST.replace("i=4096", "i=0"), "0 rounds");
        check_first_error(&FIRST.replace("i=4096", "i=99999999999"), "not a number");
        check_first_error(&FIRST.replace("r=rOp", "r=xOp"), "nonce");
        check_first_error(
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "nonce",
        );
        check_first_error(&FIRST.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s="), "salt");
        check_first_error(&FIRST.replace("gQ==", "gQ="), "salt");
        check_first_error("", "lacks");
        check_first_error("m=ext,r=a", "lacks");
        check_first_error("e=unknown-user", "refused SCRAM: unknown-user");
    }

    #[test]
    fn no_damaged_message_is_accepted_or_panics() {
        let damages = |message: &str| -> Vec<Vec<u8>> {
            let bytes = message.as_bytes();
            let cut = (0..bytes.len()).map(|end| bytes[..end].to_vec());
            let changed = (0..bytes.len()).flat_map(|at| {
                [b'=', b',', b'0', b'A', 0x80, 0].map(|byte| {
                    let mut changed = bytes.to_vec();
                    changed[at] = byte;
                    changed
                })
            });
            cut.chain(changed).filter(|damaged| damaged != bytes).collect()
        };
        for last in damages(LAST) {
            let mut scram = pencil(NONCE);
            scram.next(None).unwrap();
            scram.next(Some(FIRST.as_bytes())).unwrap();
            assert!(scram.next(Some(&last)).is_err(), "{last:?}");
        }
        for first in damages(FIRST) {
            let mut scram = pencil(NONCE);
            scram.next(None).unwrap();
            // Another salt or nonce is not an error by itself: it leads to a proof that the
            // broker's signature does not match.
            if scram.next(Some(&first)).is_ok() {
                assert!(scram.next(Some(LAST.as_bytes())).is_err(), "{first:?}");
            }
        }
    }

    #[test]
    fn separators_in_names_are_escaped() {
        let settings = settings(SaslMechanism::ScramSha512, "a=b,c", "p");
        let mut scram = Scram::with_nonce(&settings, "x".to_owned());
        assert_eq!(sent(scram.next(None)), "n,,n=a=3Db=2Cc,r=x");
    }

    /// Computed with Apache Kafka 4.3.0's ScramFormatter for the same nonces, salt and 8192 rounds.
    #[test]
    fn sha_512_as_kafka_computes_it() {
        let settings = settings(SaslMechanism::ScramSha512, "kate", "schlüssel");
        let mut scram = Scram::with_nonce(&settings, "fyko+d2lbbFgONRv9qkxdawL".to_owned());
        scram.next(None).unwrap();
        let first = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=8192";
        let last = sent(scram.next(Some(first.as_bytes())));
        assert_eq!(
            last.split(",p=").nth(1).unwrap(),
            "qVOtE7LDq+6/iwUBzVntzJev5RiXtQeR9B3/mN5svyEL68wJCHxWR4MMMqtfiMOWVPRFkgZsWvTuDMWJLVRVcQ=="
        );
        assert_eq!(
            scram.next(Some(
                b"v=MJhggp6m9JLfW4jKTDlu2B26zTkxDO/ZPfqv0uBrAPk7XIxxWkLBjQKlWaVg9MlfDMrEc5OdB/rPXYyG6KklKQ=="
            )),
            Ok(SaslStep::Done)
        );
    }

    #[test]
    fn a_salt_is_read_only_as_it_is_written() {
        let salt = |text: &str| {
            Challenge::parse(&format!("r=ab,s={text},i=4096"), "a").map(|challenge| challenge.salt)
        };
        assert_eq!(salt("Zg=="), Ok(b"f".to_vec()));
        assert_eq!(salt("Zm9vYg=="), Ok(b"foob".to_vec()));
        for text in [
            "", "Z", "Zg", "Zg=", "Zh==", "Zm8", "Zm9v=", "Zm9v====", "Zm 9", "Zm9-",
        ] {
            assert!(salt(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce(), nonce());
    }
}
