//! Key stores and trust stores in every form, and what is said about the others.

use super::super::testing::{Authority, Files, JksWriter, settings};
use super::*;

const LOCATION: &str = "ssl.keystore.location";
const TRUST: &str = "ssl.truststore.location";

#[track_caller]
fn check_refused<T>(result: Result<T, ConfigError>, key: &str, part: &str) {
    let Err(error) = result else {
        panic!("not refused: {part}");
    };
    assert_eq!(error.key, key, "{error}");
    let text = error.to_string();
    assert!(text.contains(part) && text.contains("listener OUTSIDE"), "{text}");
    for secret in ["wonderland", "BEGIN"] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn key_store(lines: &[(&str, &str)]) -> Result<Vec<Identity>, ConfigError> {
    identities(&settings(lines))
}

#[test]
fn a_key_and_its_chain_are_read_from_pem_files_and_from_the_settings() {
    let authority = Authority::named("ca");
    let signed = authority.sign("a", |_| {});
    let files = Files::new();
    let path = files.write(
        "both.pem",
        format!("{}{}", signed.pem(), authority.certificate.pem()),
    );
    let (key, chain) = (
        signed.key.serialize_pem(),
        signed.certificate.pem().replace('\n', " "),
    );
    let of_file = key_store(&[("ssl.keystore.type", "PEM"), (LOCATION, &path)]).unwrap();
    let inline = [
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.key", key.as_str()),
        ("ssl.keystore.certificate.chain", chain.as_str()),
    ];
    let of_settings = key_store(&inline).unwrap();
    assert_eq!(
        of_file[0].chain,
        [
            signed.certificate.der().clone(),
            authority.certificate.der().clone()
        ]
    );
    assert_eq!(of_settings[0].chain, [signed.certificate.der().clone()]);
    assert_eq!(of_file[0].key, of_settings[0].key);
    assert_eq!(of_file[0].key.secret_der(), signed.key.serialized_der());
    check_refused(
        key_store(&inline[..2]),
        "ssl.keystore.key",
        "must be set together",
    );
    check_refused(key_store(&inline[1..]), "ssl.keystore.type", "must be PEM");
    let both = [&inline[..], &[(LOCATION, &path)]].concat();
    check_refused(
        key_store(&both),
        "ssl.keystore.key",
        "together with ssl.keystore.location",
    );
    let with_password = [&inline[..], &[("ssl.keystore.password", "wonderland")]].concat();
    check_refused(
        key_store(&with_password),
        "ssl.keystore.password",
        "ssl.key.password",
    );
    check_refused(key_store(&[]), LOCATION, "needs a private key");
}

#[test]
fn the_content_decides_between_jks_and_pkcs12_and_the_type_separates_pem() {
    let signed = Authority::named("ca").sign("a", |_| {});
    let files = Files::new();
    let store = JksWriter::new(2)
        .key(
            "b",
            signed.key.serialized_der(),
            "wonderland",
            &[signed.certificate.der()],
        )
        .key(
            "a",
            signed.key.serialized_der(),
            "wonderland",
            &[signed.certificate.der()],
        )
        .finish("wonderland");
    let jks = files.write("a.jks", &store);
    let pem = files.write("a.pem", signed.pem());
    let read = |kind: &str, path: &str| {
        key_store(&[
            ("ssl.keystore.type", kind),
            (LOCATION, path),
            ("ssl.keystore.password", "wonderland"),
        ])
    };
    for kind in ["JKS", "PKCS12", "pkcs12"] {
        let found = read(kind, &jks).unwrap();
        let aliases: Vec<&str> = found.iter().map(|identity| identity.alias.as_str()).collect();
        assert_eq!(aliases, ["a", "b"], "in the order of their names");
    }
    check_refused(
        read("PEM", &jks),
        LOCATION,
        "set ssl.keystore.type to JKS or PKCS12",
    );
    check_refused(read("JKS", &pem), LOCATION, "set ssl.keystore.type to PEM");
    check_refused(
        read("BKS", &pem),
        "ssl.keystore.type",
        "is not PEM, PKCS12 or JKS",
    );
    check_refused(read("JKS", &files.write("x", [0xce; 40])), LOCATION, "JCEKS");
    check_refused(
        read("JKS", &files.write("x", "junk")),
        LOCATION,
        "is neither PEM nor",
    );
    check_refused(read("JKS", &files.write("x", "")), LOCATION, "is neither PEM nor");
    check_refused(
        read("JKS", &files.write("x", [0x30, 3, 2, 1])),
        LOCATION,
        "PKCS12",
    );
    check_refused(read("JKS", &files.write("x", &store[..60])), LOCATION, "JKS");
    check_refused(read("JKS", "/does/not/exist"), LOCATION, "/does/not/exist");
    check_refused(read("JKS", "/dev"), LOCATION, "cannot be read");
}

#[test]
fn passwords_of_stores_and_of_keys_are_told_apart() {
    let signed = Authority::named("ca").sign("a", |_| {});
    let files = Files::new();
    let writer = |password: &str| {
        JksWriter::new(2).key(
            "a",
            signed.key.serialized_der(),
            password,
            &[signed.certificate.der()],
        )
    };
    let path = files.write("a.jks", writer("wonderland").finish("store"));
    let read = |more: &[(&str, &str)]| key_store(&[&[(LOCATION, path.as_str())], more].concat());
    let store = ("ssl.keystore.password", "store");
    let found = read(&[store, ("ssl.key.password", "wonderland")]).unwrap();
    assert_eq!(found[0].key.secret_der(), signed.key.serialized_der());
    check_refused(read(&[store]), "ssl.key.password", "does not open the key a");
    check_refused(read(&[]), "ssl.keystore.password", "is not set");
    check_refused(
        read(&[("ssl.keystore.password", "wonderland")]),
        LOCATION,
        "its password does not open",
    );
    let no_keys = JksWriter::new(2)
        .certificate("c", signed.certificate.der())
        .finish("store");
    let path = files.write("c.jks", no_keys);
    check_refused(
        key_store(&[(LOCATION, &path), store]),
        LOCATION,
        "has no private key",
    );
    let no_chain = JksWriter::new(2).key("a", b"key", "store", &[]).finish("store");
    let path = files.write("n.jks", no_chain);
    check_refused(
        key_store(&[(LOCATION, &path), store]),
        LOCATION,
        "no certificate for the key a",
    );
}

#[test]
fn trusted_certificates_are_read_in_every_form() {
    let authority = Authority::named("ca");
    let signed = authority.sign("a", |_| {});
    let (ca, leaf) = (authority.certificate.der(), signed.certificate.der());
    let files = Files::new();
    let jks = JksWriter::new(2)
        .certificate("ca", ca)
        .key("a", b"key", "x", &[leaf, ca])
        .finish("wonderland");
    let jks = files.write("t.jks", jks);
    let pem = authority.certificate.pem();
    let path = files.write("t.pem", &pem);
    let read = |lines: &[(&str, &str)]| trusted(&settings(lines));
    assert_eq!(read(&[]).unwrap(), None);
    let password = ("ssl.truststore.password", "wonderland");
    // A store of keys trusts the certificates of its keys.
    let both = Some(vec![ca.clone(), leaf.clone()]);
    assert_eq!(read(&[(TRUST, &jks), password]).unwrap(), both);
    assert_eq!(
        read(&[(TRUST, &jks)]).unwrap(),
        both,
        "Java reads it without a password, too"
    );
    let is_pem = ("ssl.truststore.type", "PEM");
    let one = Some(vec![ca.clone()]);
    assert_eq!(read(&[(TRUST, &path), is_pem]).unwrap(), one);
    let inline = ("ssl.truststore.certificates", pem.as_str());
    assert_eq!(read(&[inline, is_pem]).unwrap(), one);
    check_refused(read(&[inline]), "ssl.truststore.type", "must be PEM");
    check_refused(read(&[inline, is_pem, (TRUST, &path)]), inline.0, "together with");
    check_refused(read(&[inline, is_pem, password]), password.0, "with PEM");
    check_refused(read(&[(TRUST, &path), is_pem, password]), password.0, "with PEM");
    check_refused(
        read(&[(TRUST, &jks), ("ssl.truststore.password", "x")]),
        TRUST,
        "its password does not open",
    );
    let empty = files.write("e.jks", JksWriter::new(2).finish("x"));
    check_refused(read(&[(TRUST, &empty)]), TRUST, "keytool -importcert");
    let no_certificate = files.write("k.pem", signed.key.serialize_pem());
    check_refused(
        read(&[(TRUST, &no_certificate), is_pem]),
        TRUST,
        "has no certificate",
    );
    // Java would find nothing in it, and trust no client.
    let pkcs12 = files.write("t.p12", [0x30, 3, 2, 1]);
    check_refused(read(&[(TRUST, &pkcs12)]), password.0, "is not set");
}

/// A file made by keytool of OpenJDK 17 or by OpenSSL 3.0; the password of all is `changeit`.
fn made_elsewhere(name: &str) -> String {
    format!(
        "{}/../keystore/tests/keystores/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn stores_of_keytool_and_openssl_are_read() {
    let leaf = std::fs::read_to_string(made_elsewhere("leaf.pem")).unwrap();
    let leaf = pem::certificates(&leaf).unwrap();
    let key = std::fs::read(made_elsewhere("key.der")).unwrap();
    let keys = |name: &str, more: &[(&str, &str)]| {
        let path = made_elsewhere(name);
        let own = [(LOCATION, path.as_str()), ("ssl.keystore.password", "changeit")];
        key_store(&[&own, more].concat())
    };
    let own_password = [("ssl.key.password", "secret42")];
    let of_jks = keys("keytool.jks", &own_password);
    let mut all = vec![of_jks];
    if cfg!(feature = "java-keystores") {
        let names = ["keytool.p12", "openssl.p12", "openssl-legacy.p12"];
        all.extend(names.map(|name| keys(name, &[])));
        check_refused(
            keys("keytool.p12", &own_password),
            "ssl.key.password",
            "must equal the password of the store",
        );
        let path = made_elsewhere("openssl.p12");
        let wrong = [(LOCATION, path.as_str()), ("ssl.keystore.password", "wonderland")];
        check_refused(key_store(&wrong), LOCATION, "its password does not open");
    }
    for found in all {
        let found = found.unwrap();
        assert_eq!((found.len(), found[0].alias.as_str()), (1, "fixture"));
        assert_eq!((&found[0].chain, found[0].key.secret_der()), (&leaf, &key[..]));
    }
    let path = made_elsewhere("encrypted.pem");
    let encrypted = [
        ("ssl.keystore.type", "PEM"),
        (LOCATION, path.as_str()),
        ("ssl.key.password", "changeit"),
    ];
    assert_eq!(key_store(&encrypted).unwrap()[0].key.secret_der(), key);
    check_refused(key_store(&encrypted[..2]), "ssl.key.password", "is not set");

    let trust = |name: &str| {
        let path = made_elsewhere(name);
        trusted(&settings(&[
            (TRUST, &path),
            ("ssl.truststore.password", "changeit"),
        ]))
    };
    assert_eq!(trust("trust.jks").unwrap(), Some(leaf.clone()));
    if cfg!(feature = "java-keystores") {
        for name in ["trust.p12", "keytool.p12"] {
            assert_eq!(trust(name).unwrap(), Some(leaf.clone()), "{name}");
        }
        // Without the mark that keytool gives to trusted certificates; Java finds none in it.
        check_refused(trust("openssl-trust.p12"), TRUST, "has no trusted certificate");
    }
}
