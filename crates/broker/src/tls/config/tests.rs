//! Settings, stores and verifiers of a listener, refused and accepted.

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};

use super::super::testing::{Authority, Files, settings};
use super::*;

fn load(lines: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    TlsSettings::read(settings(lines), false).and_then(|settings| settings.load())
}

#[track_caller]
fn check_refused(lines: &[(&str, &str)], key: &str, part: &str) {
    let error = load(lines).unwrap_err();
    assert_eq!(error.key, key, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

struct Fixture {
    authority: Authority,
    pem: String,
    ca: String,
    _files: Files,
}

fn fixture() -> Fixture {
    let authority = Authority::named("ca");
    let files = Files::new();
    Fixture {
        pem: files.write("a.pem", authority.sign("a", |_| {}).pem()),
        ca: files.write("ca.pem", authority.certificate.pem()),
        authority,
        _files: files,
    }
}

impl Fixture {
    fn lines<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", self.pem.as_str()),
        ];
        [&own, more].concat()
    }

    fn trusting<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let trust = [
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", self.ca.as_str()),
        ];
        self.lines(&[&trust, more].concat())
    }
}

fn suites_of(loaded: &Loaded) -> Vec<String> {
    let suites = &loaded.config.crypto_provider().cipher_suites;
    suites.iter().map(suite_name).collect()
}

#[test]
fn versions_and_suites_are_those_of_the_settings() {
    let fixture = fixture();
    let all = suites_of(&load(&fixture.lines(&[])).unwrap());
    assert_eq!(all.len(), 9);
    assert_eq!(all[0], "TLS_AES_256_GCM_SHA384");
    let some = load(&fixture.lines(&[
        (
            "ssl.cipher.suites",
            "TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1.2,TLSv1.3"),
        ("ssl.protocol", "TLSv1.2"),
    ]));
    assert_eq!(
        suites_of(&some.unwrap()),
        ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
    );
    let refused = |lines: &[(&'static str, &'static str)], key: &str, part: &str| {
        check_refused(&fixture.lines(lines), key, part);
    };
    refused(
        &[(PROTOCOLS, "TLSv1,TLSv1.1")],
        PROTOCOLS,
        "neither TLSv1.2 nor TLSv1.3",
    );
    refused(&[(PROTOCOLS, "TLSv1.4")], PROTOCOLS, "TLSv1.4");
    refused(&[(PROTOCOL, "SSLv3")], PROTOCOL, "is not TLS");
    refused(
        &[(SUITES, "TLS_RSA_WITH_AES_128_CBC_SHA")],
        SUITES,
        "TLS_AES_256_GCM_SHA384",
    );
    refused(
        &[(SUITES, "TLS_AES_128_GCM_SHA256"), (PROTOCOLS, "TLSv1.2")],
        SUITES,
        "no cipher suite for a version",
    );
    refused(
        &[("ssl.engine.factory.class", "a.B")],
        "ssl.engine.factory.class",
        "Java class",
    );
    refused(&[(RULES, "RULE:(?=a)//")], RULES, "look-around");
    refused(&[(RULES, "")], RULES, "has no rule");
    refused(
        &[("ssl.allow.dn.changes", "yes")],
        "ssl.allow.dn.changes",
        "true or false",
    );
}

#[test]
fn who_is_asked_for_certificates_must_be_told_which_to_trust() {
    let fixture = fixture();
    for kind in ["requested", "required"] {
        check_refused(
            &fixture.lines(&[(CLIENT_AUTH, kind)]),
            TRUST_STORE,
            "which to trust",
        );
        load(&fixture.trusting(&[(CLIENT_AUTH, kind)])).unwrap();
    }
    check_refused(
        &fixture.trusting(&[(CLIENT_AUTH, "maybe")]),
        CLIENT_AUTH,
        "requested or required",
    );
    // A trust store that cannot be read prevents the start even where it is not needed.
    check_refused(&fixture.lines(&[(TRUST_STORE, "/none")]), TRUST_STORE, "/none");
}

#[test]
fn on_sasl_ssl_only_the_listeners_own_client_auth_counts() {
    let of = |lines: &[(&str, &str)], has_sasl: bool| {
        TlsSettings::read(settings(lines), has_sasl).unwrap().client_auth
    };
    let general = (CLIENT_AUTH, "required");
    let own = ("listener.name.outside.ssl.client.auth", "requested");
    assert_eq!(of(&[general], false), ClientAuth::Required);
    assert_eq!(of(&[general], true), ClientAuth::None);
    assert_eq!(of(&[general, own], false), ClientAuth::Requested);
    assert_eq!(of(&[general, own], true), ClientAuth::Requested);
    assert_eq!(of(&[], true), ClientAuth::None);
}

#[test]
fn a_certificate_of_another_key_is_refused() {
    let fixture = fixture();
    let files = Files::new();
    let (one, other) = (
        fixture.authority.sign("a", |_| {}),
        fixture.authority.sign("a", |_| {}),
    );
    let mixed = files.write("m.pem", one.key.serialize_pem() + &other.certificate.pem());
    let lines = [("ssl.keystore.type", "PEM"), (KEY_STORE, mixed.as_str())];
    check_refused(&lines, KEY_STORE, "certificate of another private key");
}

#[test]
fn clients_are_trusted_by_their_issuer_or_by_their_own_certificate() {
    let fixture = fixture();
    let files = Files::new();
    let now = UnixTime::now();
    let verify = |ca: &str, certificate: &rcgen::Certificate| {
        let path = files.write("trust.pem", ca);
        let lines = fixture.lines(&[
            ("ssl.truststore.type", "PEM"),
            (TRUST_STORE, &path),
            (CLIENT_AUTH, "required"),
        ]);
        let tls = TlsSettings::read(settings(&lines), false).unwrap();
        let trusted = tls.trusted().unwrap().unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = tls.verifier(&trusted, &provider).unwrap();
        assert!(verifier.client_auth_mandatory());
        verifier.verify_client_cert(certificate.der(), &[], now).is_ok()
    };
    let ca = fixture.authority.certificate.pem();
    let sign = |change: fn(&mut rcgen::CertificateParams)| fixture.authority.sign("c", change).certificate;
    assert!(verify(&ca, &sign(|_| {})));
    assert!(verify(
        &ca,
        &sign(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    ));
    assert!(!verify(
        &ca,
        &sign(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    ));
    let expired = |params: &mut rcgen::CertificateParams| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    };
    assert!(!verify(&ca, &sign(expired)));
    let other = Authority::named("ca");
    assert!(
        !verify(&other.certificate.pem(), &sign(|_| {})),
        "of the same name"
    );
    // `openssl req -x509` makes certificates that are their own authority.
    assert!(verify(&other.certificate.pem(), &other.certificate));
    assert!(!verify(&ca, &other.certificate));
    let own = other.sign("d", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        expired(params);
    });
    assert!(!verify(&own.certificate.pem(), &own.certificate), "expired");
}
