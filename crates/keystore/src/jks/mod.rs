//! Java's own key store format, JKS: what `keytool` made before Java 9, and still makes on request.
//!
//! Numbers are big-endian. Magic, version (1 or 2), number of entries; an entry is a tag, an alias,
//! a date and a private key with its chain (tag 1), or a certificate (tag 2). At the end, a SHA-1
//! over the password and everything before it. A private key is encrypted with a key stream of
//! SHA-1 digests, and followed by a digest that proves the password.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::der::{self, Elements};

pub const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// JCEKS, which is encrypted differently.
pub const JCEKS_MAGIC: [u8; 4] = [0xce, 0xce, 0xce, 0xce];

const KEY_TAG: u32 = 1;
const CERTIFICATE_TAG: u32 = 2;

/// Written between the password and the content when the digest of a store is computed.
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// 1.3.6.1.4.1.42.2.17.1.1, the encryption of private keys.
const KEY_PROTECTOR: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];

const SALT_BYTES: usize = SHA1_OUTPUT_LEN;

/// One entry of a store.
#[derive(Debug)]
pub struct Entry {
    pub alias: String,
    pub content: Content,
}

#[derive(Debug)]
pub enum Content {
    Key {
        /// EncryptedPrivateKeyInfo; see [`decrypt`].
        encrypted: Vec<u8>,
        chain: Vec<CertificateDer<'static>>,
    },
    Certificate(CertificateDer<'static>),
}

/// Why a store or a key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Malformed,
    WrongPassword,
}

/// Reads all entries in the order of the file.
///
/// - `password`: without one the store's digest is not checked, as in Java.
pub fn read(store: &[u8], password: Option<&str>) -> Result<Vec<Entry>, Fault> {
    let split = store.len().checked_sub(SHA1_OUTPUT_LEN).ok_or(Fault::Malformed)?;
    let (content, digest) = store.split_at(split);
    let mut reader = Reader { rest: content };
    let magic = reader.bytes(4)?;
    let version = reader.number()?;
    if magic != MAGIC || !(1..=2).contains(&version) {
        return Err(Fault::Malformed);
    }
    if let Some(password) = password {
        let expected = sha1(&[&wide(password), WHITENER, content]);
        verify_slices_are_equal(&expected, digest).map_err(|_| Fault::WrongPassword)?;
    }
    let count = reader.number()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push(reader.entry(version)?);
    }
    if reader.rest.is_empty() {
        Ok(entries)
    } else {
        Err(Fault::Malformed)
    }
}

/// Opens a private key.
pub fn decrypt(encrypted: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, Fault> {
    let sealed = protected(encrypted).map_err(|_| Fault::Malformed)?;
    let key_bytes = sealed
        .len()
        .checked_sub(SALT_BYTES + SHA1_OUTPUT_LEN)
        .ok_or(Fault::Malformed)?;
    let (salt, rest) = sealed.split_at(SALT_BYTES);
    let (cipher, check) = rest.split_at(key_bytes);
    let password = wide(password);
    let mut plain = Vec::with_capacity(key_bytes);
    let mut digest: [u8; SHA1_OUTPUT_LEN] = salt.try_into().expect("the salt is as long as a digest");
    for block in cipher.chunks(SHA1_OUTPUT_LEN) {
        digest = sha1(&[&password, &digest]);
        plain.extend(block.iter().zip(digest).map(|(byte, mask)| byte ^ mask));
    }
    verify_slices_are_equal(&sha1(&[&password, &plain]), check).map_err(|_| Fault::WrongPassword)?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(plain)))
}

/// The protected bytes of an EncryptedPrivateKeyInfo.
fn protected(encrypted: &[u8]) -> Result<&[u8], der::Malformed> {
    let mut info = Elements::new(encrypted).expect(der::SEQUENCE)?.elements();
    let mut algorithm = info.expect(der::SEQUENCE)?.elements();
    if algorithm.expect(der::OBJECT_IDENTIFIER)?.content != KEY_PROTECTOR {
        return Err(der::Malformed);
    }
    Ok(info.expect(der::OCTET_STRING)?.content)
}

/// A password as Java hashes it: UTF-16, big-endian.
fn wide(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn sha1(parts: &[&[u8]]) -> [u8; SHA1_OUTPUT_LEN] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    let digest = context.finish();
    digest.as_ref().try_into().expect("a SHA-1 has 20 bytes")
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, Fault> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes(
            bytes.try_into().expect("four bytes were taken"),
        ))
    }

    /// Bytes behind their length.
    fn block(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.number()?;
        self.bytes(length as usize)
    }

    /// Text behind its length of two bytes, in Java's modified UTF-8.
    fn text(&mut self) -> Result<String, Fault> {
        let length = self.bytes(2)?;
        let length = u16::from_be_bytes(length.try_into().expect("two bytes were taken"));
        Ok(String::from_utf8_lossy(self.bytes(usize::from(length))?).into_owned())
    }

    fn entry(&mut self, version: u32) -> Result<Entry, Fault> {
        let tag = self.number()?;
        let alias = self.text()?;
        self.bytes(size_of::<i64>())?;
        let content = match tag {
            KEY_TAG => {
                let encrypted = self.block()?.to_vec();
                let count = self.number()?;
                let mut chain = Vec::new();
                for _ in 0..count {
                    chain.push(self.certificate(version)?);
                }
                Content::Key { encrypted, chain }
            }
            CERTIFICATE_TAG => Content::Certificate(self.certificate(version)?),
            _ => return Err(Fault::Malformed),
        };
        Ok(Entry { alias, content })
    }

    fn certificate(&mut self, version: u32) -> Result<CertificateDer<'static>, Fault> {
        // Since version 2 a certificate tells its type.
        if version == 2 && self.text()? != "X.509" {
            return Err(Fault::Malformed);
        }
        Ok(CertificateDer::from(self.block()?.to_vec()))
    }
}

#[cfg(test)]
mod tests;
