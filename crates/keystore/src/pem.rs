//! Certificates and private keys in PEM form (RFC 7468), as operators keep them: in files with text
//! around the sections, or on one line of a properties file (KIP-651).

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Fault;

const ENCRYPTED_KEY: &str = "ENCRYPTED PRIVATE KEY";

/// One section between its BEGIN and END lines.
struct Section {
    label: String,
    /// In the form that strict readers accept.
    text: String,
    /// RFC 1421 headers: a key with the encryption of old OpenSSL.
    has_headers: bool,
}

/// Whether a text has sections at all.
pub fn is_pem(bytes: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN ";
    bytes.windows(BEGIN.len()).any(|window| window == BEGIN)
}

/// Reads all certificates, in their order.
///
/// - Errors: what is wrong, to be said behind the name of the setting.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let is_certificate =
        |section: &Section| matches!(section.label.as_str(), "CERTIFICATE" | "X509 CERTIFICATE");
    let found: Vec<CertificateDer<'static>> = sections(text)
        .iter()
        .filter(|section| is_certificate(section))
        .map(|section| {
            let text = section.text.replace("X509 CERTIFICATE", "CERTIFICATE");
            CertificateDer::from_pem_slice(text.as_bytes())
        })
        .collect::<Result<_, _>>()
        .map_err(|_| "has a certificate that cannot be read")?;
    if found.is_empty() {
        return Err("has no certificate in PEM form".to_owned());
    }
    Ok(found)
}

/// Reads the one private key: PKCS#8, encrypted PKCS#8, PKCS#1 or SEC1.
pub fn private_key(text: &str, password: Option<&str>) -> Result<PrivateKeyDer<'static>, Fault> {
    let fault = |problem: &str| Fault::Store(problem.to_owned());
    let sections = sections(text);
    let mut keys = sections
        .iter()
        .filter(|section| section.label.ends_with("PRIVATE KEY"));
    let key = keys
        .next()
        .ok_or_else(|| fault("has no private key in PEM form"))?;
    if keys.next().is_some() {
        return Err(fault("has more than one private key"));
    }
    if key.has_headers {
        return Err(fault(
            "has a private key with an outdated encryption; `openssl pkcs8 -topk8 -in key.pem` makes one that can be read",
        ));
    }
    if key.label != ENCRYPTED_KEY {
        return PrivateKeyDer::from_pem_slice(key.text.as_bytes())
            .map_err(|_| fault("has a private key that cannot be read"));
    }
    let password = password
        .ok_or_else(|| Fault::KeyPassword("is not set, and the private key is encrypted".to_owned()))?;
    let broken = |_| fault("has an encrypted private key that cannot be read");
    let (_, document) = pkcs8::SecretDocument::from_pem(&key.text).map_err(broken)?;
    decrypted(document.as_bytes(), password)
}

/// Opens an EncryptedPrivateKeyInfo (PKCS#8, PBES2).
fn decrypted(document: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, Fault> {
    let info = pkcs8::EncryptedPrivateKeyInfo::try_from(document).map_err(|error| {
        // PBES1 (`openssl pkcs8 -v1`) ends here, too; the library's text names the algorithm.
        Fault::Store(format!(
            "has an encrypted private key that cannot be read: {error}"
        ))
    })?;
    let opened = info
        .decrypt(password)
        .map_err(|error| Fault::KeyPassword(format!("does not open the private key: {error}")))?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
        opened.as_bytes().to_vec(),
    )))
}

/// Whether the private key is under a password.
pub fn has_encrypted_key(text: &str) -> bool {
    sections(text)
        .iter()
        .any(|section| section.label == ENCRYPTED_KEY)
}

/// Finds the sections anywhere in the text.
fn sections(text: &str) -> Vec<Section> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = after.split_once("-----") else {
            break;
        };
        let end = format!("-----END {label}-----");
        let Some((body, after)) = body.split_once(&end) else {
            break;
        };
        let base64: String = body.split_whitespace().collect();
        found.push(Section {
            label: label.to_owned(),
            text: format!("-----BEGIN {label}-----\n{}\n{end}\n", wrapped(&base64)),
            has_headers: body.contains(':'),
        });
        rest = after;
    }
    found
}

/// Breaks into lines of 64 characters.
fn wrapped(base64: &str) -> String {
    let letters: Vec<char> = base64.chars().collect();
    let lines: Vec<String> = letters.chunks(64).map(|line| line.iter().collect()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A key (PKCS#8) and its certificate, as PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&key)
            .unwrap();
        (key.serialize_pem(), certificate.pem())
    }

    #[test]
    fn key_and_chain_may_come_in_any_order_with_text_around_them_and_on_one_line() {
        let (key, certificate) = pair();
        let forms = [
            format!("{key}{certificate}"),
            format!("subject=CN = x\n{certificate}some text\n{key}\nend"),
            format!("{certificate}{certificate}{key}").replace('\n', " "),
            format!("{key}{certificate}").replace('\n', "\r\n"),
        ];
        let expected = private_key(&key, None).unwrap();
        for form in forms {
            assert_eq!(private_key(&form, None).unwrap(), expected, "{form}");
            let count = certificates(&form).unwrap().len();
            assert_eq!(count, form.matches("BEGIN CERTIFICATE").count());
        }
    }

    #[test]
    fn faults_say_what_is_missing_and_show_no_secret() {
        let (key, certificate) = pair();
        let check = |text: &str, expected: &str| {
            let fault = private_key(text, None).unwrap_err();
            assert_eq!(fault, Fault::Store(expected.to_owned()));
        };
        check(&certificate, "has no private key in PEM form");
        check(&format!("{key}{key}"), "has more than one private key");
        let broken = key.replace("MI", "!!");
        check(&broken, "has a private key that cannot be read");
        check("-----BEGIN PRIVATE KEY-----", "has no private key in PEM form");
        assert_eq!(certificates(&key).unwrap_err(), "has no certificate in PEM form");
        let broken = certificate.replace("MI", "!!");
        assert_eq!(
            certificates(&broken).unwrap_err(),
            "has a certificate that cannot be read"
        );
    }

    #[test]
    fn an_encrypted_key_opens_with_its_password_only() {
        let (key, _) = pair();
        let (_, document) = pkcs8::SecretDocument::from_pem(&key).unwrap();
        let info = pkcs8::PrivateKeyInfo::try_from(document.as_bytes()).unwrap();
        let parameters = pkcs8::pkcs5::pbes2::Parameters::pbkdf2_sha256_aes256cbc(1_000, &[7; 16], &[9; 16]);
        let encrypted = info
            .encrypt_with_params(parameters.unwrap(), "wonderland")
            .unwrap();
        let pem = encrypted
            .to_pem("ENCRYPTED PRIVATE KEY", Default::default())
            .unwrap();
        assert!(has_encrypted_key(&pem) && !has_encrypted_key(&key));
        let open = |password: Option<&str>| private_key(&pem, password);
        assert_eq!(
            open(Some("wonderland")).unwrap(),
            private_key(&key, None).unwrap()
        );
        let fault = |password: Option<&str>| match open(password).unwrap_err() {
            Fault::KeyPassword(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(fault(None), "is not set, and the private key is encrypted");
        let wrong = fault(Some("looking glass"));
        assert!(wrong.starts_with("does not open the private key"), "{wrong}");
        assert!(!wrong.contains("looking"), "{wrong}");
    }

    #[test]
    fn a_key_in_the_old_encryption_is_refused_with_the_way_out() {
        let old =
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n-----END RSA PRIVATE KEY-----";
        let Fault::Store(fault) = private_key(old, None).unwrap_err() else {
            panic!("not about the password");
        };
        assert!(fault.contains("openssl pkcs8 -topk8"), "{fault}");
    }

    #[test]
    fn sections_are_found_in_one_line_and_in_many() {
        let body = "QUJD".repeat(20);
        let many = format!(
            "junk\n-----BEGIN X-----\r\n{}\r\n{}\r\n-----END X-----\n",
            &body[..64],
            &body[64..]
        );
        let one = format!(
            "-----BEGIN X----- {} {} -----END X-----",
            &body[..10],
            &body[10..]
        );
        let expected = format!(
            "-----BEGIN X-----\n{}\n{}\n-----END X-----\n",
            &body[..64],
            &body[64..]
        );
        for text in [many, one] {
            let sections = sections(&text);
            assert_eq!(
                (sections.len(), sections[0].text.as_str()),
                (1, expected.as_str())
            );
        }
    }

    #[test]
    fn an_unterminated_section_is_ignored() {
        for text in [
            "-----BEGIN X-----\nQUJD",
            "-----BEGIN X",
            "-----BEGIN X-----QUJD-----END Y-----",
            "",
        ] {
            assert!(sections(text).is_empty(), "{text}");
        }
    }
}
