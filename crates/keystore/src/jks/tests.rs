//! JKS stores, whole and damaged.

use super::*;
use crate::testing::JksWriter;

/// A store with a key `alias` and a certificate `ca`.
fn store(version: u32) -> Vec<u8> {
    JksWriter::new(version)
        .key(
            "alias",
            b"a private key of 30 bytes ....",
            "key",
            &[b"leaf", b"issuer"],
        )
        .certificate("ca", b"root")
        .finish("störe")
}

#[test]
fn keys_and_certificates_are_read_from_both_versions() {
    for version in [1, 2] {
        let entries = read(&store(version), Some("störe")).unwrap();
        let aliases: Vec<&str> = entries.iter().map(|entry| entry.alias.as_str()).collect();
        assert_eq!(aliases, ["alias", "ca"]);
        let Content::Key { encrypted, chain } = &entries[0].content else {
            panic!("not a key");
        };
        assert_eq!(
            chain,
            &[
                CertificateDer::from(&b"leaf"[..]),
                CertificateDer::from(&b"issuer"[..])
            ]
        );
        let key = decrypt(encrypted, "key").unwrap();
        assert_eq!(key.secret_der(), b"a private key of 30 bytes ....");
        assert_eq!(decrypt(encrypted, "yek").unwrap_err(), Fault::WrongPassword);
        assert!(matches!(&entries[1].content, Content::Certificate(found) if found[..] == *b"root"));
    }
}

#[test]
fn a_wrong_password_and_any_changed_byte_are_noticed() {
    let store = store(2);
    let read_with = |store: &[u8], text: &str| read(store, Some(text)).map(|_| ());
    assert_eq!(read_with(&store, "store"), Err(Fault::WrongPassword));
    assert_eq!(read_with(&store, "störe"), Ok(()));
    for at in 0..store.len() {
        let mut changed = store.clone();
        changed[at] ^= 1;
        assert!(read_with(&changed, "störe").is_err(), "byte {at}");
    }
    assert!(
        read(&store, None).is_ok(),
        "as in Java, nothing is checked without a password"
    );
}

#[test]
fn lengths_beyond_the_file_are_malformed() {
    let store = store(2);
    for bytes in 0..store.len() {
        assert_eq!(
            read(&store[..bytes], None).map(|_| ()),
            Err(Fault::Malformed),
            "{bytes} bytes"
        );
    }
    for at in 8..store.len() - 4 {
        let mut hostile = store.clone();
        hostile[at..at + 4].fill(0xff);
        // Whatever it gives, it must not take memory for what is announced.
        let _ = read(&hostile, None);
    }
    for at in 0..40 {
        let _ = decrypt(&store[at..], "key");
    }
}
