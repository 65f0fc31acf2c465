//! The keys of SCRAM (RFC 5802, section 3): what a broker stores instead of a password.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac};

use crate::config::{SCRAM_ITERATIONS_MIN, SaslMechanism};
use crate::image::access::ScramCredential;

/// The hash function of a mechanism.
#[derive(Clone, Copy)]
pub struct ScramHash {
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
}

impl ScramHash {
    /// - Shape: `mechanism` is one of SCRAM's.
    pub fn of(mechanism: SaslMechanism) -> ScramHash {
        match mechanism {
            SaslMechanism::ScramSha256 => ScramHash {
                hmac: hmac::HMAC_SHA256,
                digest: &digest::SHA256,
            },
            SaslMechanism::ScramSha512 => ScramHash {
                hmac: hmac::HMAC_SHA512,
                digest: &digest::SHA512,
            },
            SaslMechanism::Plain | SaslMechanism::OauthBearer => {
                unreachable!("{} is no mechanism of SCRAM", mechanism.name())
            }
        }
    }

    /// The length of every key and of a proof.
    pub fn key_bytes(self) -> usize {
        self.digest.output_len()
    }

    pub fn mac(self, key: &[u8], message: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(self.hmac, key), message)
    }

    fn hash(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.digest, bytes)
    }

    /// Returns StoredKey and ServerKey of a salted password.
    pub fn stored_keys(self, salted_password: &[u8]) -> StoredKeys {
        let client_key = self.mac(salted_password, b"Client Key");
        StoredKeys {
            stored_key: self.hash(client_key.as_ref()).as_ref().into(),
            server_key: self.mac(salted_password, b"Server Key").as_ref().into(),
        }
    }

    /// Whether a client that sent `proof` knows the password behind `stored_key`.
    pub fn is_proof(self, stored_key: &[u8], message: &[u8], proof: &[u8]) -> bool {
        if stored_key.len() != self.key_bytes() || proof.len() != self.key_bytes() {
            return false;
        }
        let signature = self.mac(stored_key, message);
        let pairs = proof.iter().zip(signature.as_ref());
        let client_key: Vec<u8> = pairs.map(|(proof, signature)| proof ^ signature).collect();
        verify_slices_are_equal(self.hash(&client_key).as_ref(), stored_key).is_ok()
    }

    /// Whether a credential can be used at all: one that another program wrote may have keys of
    /// another length, or none.
    pub fn is_usable(self, credential: &ScramCredential) -> bool {
        credential.iterations >= SCRAM_ITERATIONS_MIN
            && !credential.salt.is_empty()
            && credential.stored_key.len() == self.key_bytes()
            && credential.server_key.len() == self.key_bytes()
    }
}

/// StoredKey and ServerKey.
pub struct StoredKeys {
    pub stored_key: Box<[u8]>,
    pub server_key: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use aws_lc_rs::pbkdf2;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    /// An exchange as it was on the wire.
    struct Recorded {
        mechanism: SaslMechanism,
        pbkdf2: pbkdf2::Algorithm,
        password: &'static str,
        salt: &'static str,
        iterations: u32,
        message: &'static str,
        proof: &'static str,
        signature: &'static str,
    }

    /// The example of RFC 7677, section 3, and one that Apache Kafka 4.3.0's ScramFormatter
    /// computed.
    const RECORDED: [Recorded; 2] = [
        Recorded {
            mechanism: SaslMechanism::ScramSha256,
            pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256,
            password: "pencil",
            salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
            iterations: 4_096,
            message: "n=user,r=rOprNGfwEbeRWgbNEkqO,\
                      r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
                      c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            proof: "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            signature: "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        },
        Recorded {
            mechanism: SaslMechanism::ScramSha512,
            pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512,
            password: "schlüssel",
            salt: "QSXCR+Q6sek8bf92",
            iterations: 8_192,
            message: "n=kate,r=fyko+d2lbbFgONRv9qkxdawL,\
                      r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=8192,\
                      c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
            proof: "qVOtE7LDq+6/iwUBzVntzJev5RiXtQeR9B3/mN5svyEL68wJCHxWR4MMMqtfiMOWVPRFkgZsWvTuDMWJLVRVcQ==",
            signature: "MJhggp6m9JLfW4jKTDlu2B26zTkxDO/ZPfqv0uBrAPk7XIxxWkLBjQKlWaVg9MlfDMrEc5OdB/rPXYyG6KklKQ==",
        },
    ];

    fn salted(recorded: &Recorded) -> Vec<u8> {
        let mut salted = vec![0; ScramHash::of(recorded.mechanism).key_bytes()];
        let iterations = NonZeroU32::new(recorded.iterations).unwrap();
        let salt = BASE64.decode(recorded.salt).unwrap();
        let password = recorded.password.as_bytes();
        pbkdf2::derive(recorded.pbkdf2, iterations, &salt, password, &mut salted);
        salted
    }

    #[test]
    fn recorded_proofs_are_proofs_and_our_signature_is_the_recorded_one() {
        for recorded in &RECORDED {
            let hash = ScramHash::of(recorded.mechanism);
            let keys = hash.stored_keys(&salted(recorded));
            let proof = BASE64.decode(recorded.proof).unwrap();
            let message = recorded.message.as_bytes();
            assert!(hash.is_proof(&keys.stored_key, message, &proof));
            let signature = hash.mac(&keys.server_key, message);
            assert_eq!(BASE64.encode(signature), recorded.signature);
        }
    }

    #[test]
    fn nothing_else_is_a_proof() {
        for recorded in &RECORDED {
            let hash = ScramHash::of(recorded.mechanism);
            let keys = hash.stored_keys(&salted(recorded));
            let proof = BASE64.decode(recorded.proof).unwrap();
            let message = recorded.message.as_bytes();
            let is_proof = |proof: &[u8]| hash.is_proof(&keys.stored_key, message, proof);
            for bit in 0..proof.len() * 8 {
                let mut changed = proof.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_proof(&changed));
            }
            assert!(!is_proof(&[]) && !is_proof(&proof[1..]) && !is_proof(&vec![0; proof.len()]));
            assert!(!is_proof(&[&proof[..], &[0]].concat()));
            assert!(!hash.is_proof(&keys.stored_key, &message[1..], &proof));
            // A record without keys: a client that sends nothing would otherwise prove it.
            assert!(!hash.is_proof(&[], message, &[]));
            assert!(!hash.is_proof(&keys.stored_key[1..], message, &proof));
        }
    }

    #[test]
    fn a_credential_with_keys_of_another_length_cannot_be_used() {
        let hash = ScramHash::of(SaslMechanism::ScramSha256);
        let credential = |salt: usize, stored: usize, server: usize, iterations| ScramCredential {
            salt: vec![1; salt].into(),
            stored_key: vec![1; stored].into(),
            server_key: vec![1; server].into(),
            iterations,
        };
        assert!(hash.is_usable(&credential(1, 32, 32, 4_096)));
        for unusable in [
            credential(0, 32, 32, 4_096),
            credential(1, 0, 32, 4_096),
            credential(1, 64, 32, 4_096),
            credential(1, 32, 31, 4_096),
            credential(1, 32, 32, 4_095),
            credential(1, 32, 32, -1),
        ] {
            assert!(!hash.is_usable(&unusable));
        }
    }
}
