//! Users that an empty directory begins with, in the syntax of `kafka-storage format --add-scram`:
//! `SCRAM-SHA-512=[name=alice,password=alice-secret,iterations=8192]`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::sasl::{SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, SaslMechanism};

const SHAPE: &str = "must be MECHANISM=[name=NAME,password=PASSWORD], with iterations=, or with salt= and \
                     saltedpassword= in base64 instead of the password";

/// A user's first SCRAM credential.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstUser {
    pub name: String,
    pub mechanism: SaslMechanism,
    pub iterations: i32,
    pub salt: Box<[u8]>,
    /// As secret as the password.
    pub salted_password: Box<[u8]>,
}

impl fmt::Debug for FirstUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FirstUser")
            .field("name", &self.name)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

impl FirstUser {
    /// Takes the milliseconds of the password's iterations.
    ///
    /// - `salt`: for a user without one of its own; never the same twice.
    /// - Errors: what is wrong, never the password.
    pub fn parse(text: &str, salt: impl FnOnce() -> Box<[u8]>) -> Result<FirstUser, String> {
        let (mechanism, fields) = text.trim().split_once('=').ok_or(SHAPE)?;
        let mechanism = SaslMechanism::from_name(mechanism)
            .filter(|mechanism| mechanism.is_scram())
            .ok_or_else(|| format!("must begin with SCRAM-SHA-256= or SCRAM-SHA-512=, not {mechanism}="))?;
        let fields = fields
            .strip_prefix('[')
            .and_then(|fields| fields.strip_suffix(']'))
            .ok_or(SHAPE)?;
        let mut fields = split(fields)?;
        let mut field = |key: &str| fields.remove(key).filter(|value| !value.is_empty());
        let name = field("name").ok_or("has no name")?;
        let iterations = match field("iterations") {
            None => SCRAM_ITERATIONS_MIN,
            Some(text) => text
                .parse()
                .ok()
                .filter(|iterations| (SCRAM_ITERATIONS_MIN..=SCRAM_ITERATIONS_MAX).contains(iterations))
                .ok_or_else(|| {
                    format!("iterations must be from {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}")
                })?,
        };
        let given_salt = field("salt").map(|text| bytes("salt", &text)).transpose()?;
        let (password, salted) = (field("password"), field("saltedpassword"));
        if let Some(unknown) = fields.keys().next() {
            return Err(format!("has an unknown field {unknown}"));
        }
        let (salt, salted_password) = match (password, salted, given_salt) {
            (Some(password), None, given) => {
                let salt = given.unwrap_or_else(salt);
                let salted = salted_password(mechanism, &password, &salt, iterations);
                (salt, salted)
            }
            (None, Some(salted), Some(salt)) => (salt, bytes("saltedpassword", &salted)?),
            _ => return Err(SHAPE.to_owned()),
        };
        if salted_password.len() != key_bytes(mechanism) {
            return Err(format!("saltedpassword must have {} bytes", key_bytes(mechanism)));
        }
        Ok(FirstUser {
            name,
            mechanism,
            iterations,
            salt,
            salted_password,
        })
    }
}

/// Splits `key=value,key="value"`. A quoted value may contain commas.
fn split(fields: &str) -> Result<BTreeMap<String, String>, String> {
    let mut rest = fields;
    let mut split = BTreeMap::new();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=').ok_or(SHAPE)?;
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or("has a quotation mark without an end")?,
            None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
        };
        rest = match behind.strip_prefix(',') {
            Some(next) => next,
            None if behind.is_empty() => behind,
            None => return Err(SHAPE.to_owned()),
        };
        let key = key.trim().to_ascii_lowercase();
        if split.insert(key.clone(), value.to_owned()).is_some() {
            return Err(format!("has {key} twice"));
        }
    }
    Ok(split)
}

fn bytes(field: &str, text: &str) -> Result<Box<[u8]>, String> {
    let bytes = BASE64.decode(text).ok().filter(|bytes| !bytes.is_empty());
    bytes
        .map(Vec::into_boxed_slice)
        .ok_or_else(|| format!("{field} is not base64"))
}

fn key_bytes(mechanism: SaslMechanism) -> usize {
    match mechanism {
        SaslMechanism::ScramSha512 => 64,
        SaslMechanism::ScramSha256 | SaslMechanism::Plain | SaslMechanism::OauthBearer => 32,
    }
}

fn salted_password(mechanism: SaslMechanism, password: &str, salt: &[u8], iterations: i32) -> Box<[u8]> {
    let algorithm = match mechanism {
        SaslMechanism::ScramSha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        SaslMechanism::ScramSha256 | SaslMechanism::Plain | SaslMechanism::OauthBearer => {
            pbkdf2::PBKDF2_HMAC_SHA256
        }
    };
    let iterations = u32::try_from(iterations).ok().and_then(NonZeroU32::new);
    let iterations = iterations.expect("at least 4096 iterations");
    let mut salted = vec![0; key_bytes(mechanism)];
    pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
    salted.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FirstUser, String> {
        FirstUser::parse(text, || b"random".as_slice().into())
    }

    #[track_caller]
    fn check_error(text: &str, part: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains("wonder"), "{error}");
    }

    // The salted password is RFC 7677's: pencil, 4096 iterations.
    #[test]
    fn a_password_is_salted_and_a_salted_one_taken_as_it_is() {
        let text = "SCRAM-SHA-256=[name=user,password=pencil,salt=W22ZaJ0SNY7soEsUEjb6gQ==]";
        let user = parse(text).unwrap();
        assert_eq!(
            (&*user.name, user.mechanism),
            ("user", SaslMechanism::ScramSha256)
        );
        assert_eq!((user.iterations, user.salt.len()), (4_096, 16));
        let salted = BASE64.encode(&user.salted_password);
        assert_eq!(salted, "xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0=");
        let text = format!(
            "SCRAM-SHA-256=[name=\"user\",iterations=4096,salt=\"W22ZaJ0SNY7soEsUEjb6gQ==\",saltedpassword=\"{salted}\"]"
        );
        assert_eq!(parse(&text).unwrap(), user);
        let other = parse(" SCRAM-SHA-512=[name=alice,iterations=8192,password=\"a, =b]\"] ").unwrap();
        assert_eq!((&*other.salt, other.salted_password.len()), (&b"random"[..], 64));
        assert_eq!(other.iterations, 8_192);
        assert!(!format!("{user:?}").contains("xKSV"));
    }

    #[test]
    fn a_malformed_user_is_refused_without_its_password() {
        check_error("alice", "must be");
        check_error("PLAIN=[name=alice,password=wonder]", "SCRAM-SHA-256");
        check_error("SCRAM-SHA-1=[name=alice,password=wonder]", "SCRAM-SHA-1");
        check_error("SCRAM-SHA-256=name=alice,password=wonder", "must be");
        check_error("SCRAM-SHA-256=[password=wonder]", "no name");
        check_error("SCRAM-SHA-256=[name=,password=wonder]", "no name");
        check_error("SCRAM-SHA-256=[name=alice]", "must be");
        check_error("SCRAM-SHA-256=[name=alice,password=]", "must be");
        check_error(
            "SCRAM-SHA-256=[name=alice,password=wonder,iterations=4095]",
            "4096 to 16384",
        );
        check_error(
            "SCRAM-SHA-256=[name=alice,password=wonder,iterations=many]",
            "4096 to 16384",
        );
        check_error(
            "SCRAM-SHA-256=[name=alice,password=wonder,salt=*]",
            "salt is not base64",
        );
        check_error("SCRAM-SHA-256=[name=alice,saltedpassword=AAAA]", "must be");
        check_error(
            "SCRAM-SHA-256=[name=alice,salt=AAAA,saltedpassword=AAAA]",
            "32 bytes",
        );
        check_error(
            "SCRAM-SHA-256=[name=alice,password=wonder,saltedpassword=AAAA]",
            "must be",
        );
        check_error(
            "SCRAM-SHA-256=[name=alice,password=wonder,realm=x]",
            "unknown field realm",
        );
        check_error(
            "SCRAM-SHA-256=[name=alice,name=bob,password=wonder]",
            "name twice",
        );
        check_error("SCRAM-SHA-256=[name=alice,password=\"wonder]", "quotation mark");
        check_error("SCRAM-SHA-256=[name=alice,password=\"wonder\"land]", "must be");
        check_error("SCRAM-SHA-256=[name]", "must be");
    }
}
