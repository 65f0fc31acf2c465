//! The public keys of an identity provider (RFC 7517), and the algorithms that they verify.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::Value;

/// Keys of one provider that are kept; the rest is ignored.
const KEYS_MAX: usize = 256;

/// How a token may be signed. Only with a private key: a broker that took symmetric ones could be
/// given a public key as the secret, and `none` is no signature.
#[derive(Clone, Copy)]
pub(super) enum SignatureAlgorithm {
    Rsa(&'static RsaParameters),
    Ec(&'static EcdsaVerificationAlgorithm, &'static str),
}

impl SignatureAlgorithm {
    /// By its name in a token's header (RFC 7518, 3.1).
    pub fn from_name(name: &str) -> Option<SignatureAlgorithm> {
        Some(match name {
            "RS256" => SignatureAlgorithm::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => SignatureAlgorithm::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => SignatureAlgorithm::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => SignatureAlgorithm::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => SignatureAlgorithm::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => SignatureAlgorithm::Rsa(&RSA_PSS_2048_8192_SHA512),
            "ES256" => SignatureAlgorithm::Ec(&ECDSA_P256_SHA256_FIXED, "P-256"),
            "ES384" => SignatureAlgorithm::Ec(&ECDSA_P384_SHA384_FIXED, "P-384"),
            _ => return None,
        })
    }
}

/// The keys that were published at one place.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JsonWebKeys(Vec<JsonWebKey>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonWebKey {
    id: Option<String>,
    /// The only algorithm that the key is for, if it says one.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Ec { curve: String, point: Vec<u8> },
}

impl JsonWebKeys {
    /// Reads a JWK set. Keys of other types and for other uses are left out.
    pub fn parse(text: &str) -> Result<JsonWebKeys, String> {
        let document: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let keys = document.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("is not a JWK set: it has no list of keys")?;
        let usable: Vec<JsonWebKey> = keys.iter().filter_map(JsonWebKey::read).take(KEYS_MAX).collect();
        if usable.is_empty() {
            return Err(format!(
                "has no key of RSA, P-256 or P-384 for signatures among {}",
                keys.len()
            ));
        }
        Ok(JsonWebKeys(usable))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that a token names, or, if it names none, the only one that fits.
    pub(super) fn find(
        &self,
        id: Option<&str>,
        name: &str,
        algorithm: SignatureAlgorithm,
    ) -> Option<&JsonWebKey> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.fits(name, algorithm))
            .filter(|key| id.is_none() || key.id.as_deref() == id);
        let found = fitting.next()?;
        (id.is_some() || fitting.next().is_none()).then_some(found)
    }
}

impl JsonWebKey {
    fn read(value: &Value) -> Option<JsonWebKey> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let bytes = |name: &str| BASE64.decode(text(name)?).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match text("kty")? {
            "RSA" => Material::Rsa {
                modulus: bytes("n")?,
                exponent: bytes("e")?,
            },
            "EC" => {
                let field_bytes = match text("crv")? {
                    "P-256" => 32,
                    "P-384" => 48,
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != field_bytes || y.len() != field_bytes {
                    return None;
                }
                Material::Ec {
                    curve: text("crv")?.to_owned(),
                    // SEC 1, 2.3.3: uncompressed.
                    point: [&[4], &x[..], &y].concat(),
                }
            }
            _ => return None,
        };
        Some(JsonWebKey {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            material,
        })
    }

    fn fits(&self, name: &str, algorithm: SignatureAlgorithm) -> bool {
        let is_of_kind = match (&self.material, algorithm) {
            (Material::Rsa { .. }, SignatureAlgorithm::Rsa(_)) => true,
            (Material::Ec { curve, .. }, SignatureAlgorithm::Ec(_, wanted)) => curve == wanted,
            _ => false,
        };
        is_of_kind && self.algorithm.as_deref().is_none_or(|only| only == name)
    }

    /// Whether the owner of this key has signed `message`.
    pub(super) fn is_signature(
        &self,
        algorithm: SignatureAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        match (&self.material, algorithm) {
            (Material::Rsa { modulus, exponent }, SignatureAlgorithm::Rsa(parameters)) => {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, message, signature).is_ok()
            }
            (Material::Ec { point, .. }, SignatureAlgorithm::Ec(algorithm, _)) => {
                UnparsedPublicKey::new(algorithm, point)
                    .verify(message, signature)
                    .is_ok()
            }
            _ => false,
        }
    }
}
