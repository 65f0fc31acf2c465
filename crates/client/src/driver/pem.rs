//! Reads certificates and keys in PEM form, from a file or from the settings.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::config::{Password, PemSource};
use crate::error::Error;

/// A PEM file or text; its errors are reported under the setting's name.
pub(super) struct Pem {
    setting: &'static str,
    /// The path, or "the settings".
    place: String,
    sections: Vec<Section>,
}

struct Section {
    label: String,
    /// The section in the form that every PEM reader accepts: begin, one line, end.
    text: String,
    /// RFC 1421 headers: a key with the old encryption.
    has_headers: bool,
}

impl Pem {
    /// - `setting`: names the source in errors.
    pub fn read(setting: &'static str, source: &PemSource) -> Result<Pem, Error> {
        let (place, text) = match source {
            PemSource::Inline(text) => ("the settings".to_owned(), text.reveal().to_owned()),
            PemSource::File(path) => {
                let place = path.display().to_string();
                let bytes = std::fs::read(path)
                    .map_err(|error| config(setting, format!("{setting}: {place}: {error}")))?;
                // A binary file has no sections, which is reported below.
                (place, String::from_utf8_lossy(&bytes).into_owned())
            }
        };
        Ok(Pem {
            setting,
            place,
            sections: sections(&text),
        })
    }

    /// - Errors: `Config` when there is none.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let found: Vec<&Section> = self
            .sections
            .iter()
            .filter(|section| section.label == "CERTIFICATE")
            .collect();
        if found.is_empty() {
            return Err(self.fault("no certificate in PEM form is in"));
        }
        let read = |section: &&Section| {
            CertificateDer::from_pem_slice(section.text.as_bytes())
                .map_err(|_| self.fault("a certificate cannot be read from"))
        };
        found.iter().map(read).collect()
    }

    /// - `password`: of an encrypted key (PKCS#8).
    pub fn key(&self, password: Option<&Password>) -> Result<PrivateKeyDer<'static>, Error> {
        let section = self
            .sections
            .iter()
            .find(|section| section.label.ends_with("PRIVATE KEY"))
            .ok_or_else(|| self.fault("no private key in PEM form is in"))?;
        if section.has_headers {
            return Err(self.fault(
                "the private key uses an outdated encryption; `openssl pkcs8 -topk8 -in key.pem` makes one that can be \
                 read, out of",
            ));
        }
        if section.label != "ENCRYPTED PRIVATE KEY" {
            return PrivateKeyDer::from_pem_slice(section.text.as_bytes())
                .map_err(|_| self.fault("the private key cannot be read from"));
        }
        let Some(password) = password else {
            return Err(config(
                "ssl.key.password",
                format!(
                    "ssl.key.password is not set, and the private key in {} is encrypted",
                    self.place
                ),
            ));
        };
        let broken = || self.fault("the encrypted private key cannot be read from");
        let (_, document) = pkcs8::SecretDocument::from_pem(&section.text).map_err(|_| broken())?;
        let info = pkcs8::EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(|_| broken())?;
        let opened = info.decrypt(password.reveal()).map_err(|error| {
            // This library's error texts name algorithms, never contents.
            config(
                "ssl.key.password",
                format!(
                    "ssl.key.password does not open the private key in {}: {error}",
                    self.place
                ),
            )
        })?;
        Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
            opened.as_bytes().to_vec(),
        )))
    }

    fn fault(&self, what: &str) -> Error {
        config(self.setting, format!("{}: {what} {}", self.setting, self.place))
    }
}

pub(super) fn config(key: &str, message: String) -> Error {
    Error::Config {
        key: key.into(),
        message: message.into(),
    }
}

/// Finds the sections anywhere in the text: a properties file often has a whole certificate on one
/// line, with blanks in place of line ends.
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

/// Breaks into lines of 64 characters, which strict readers require.
fn wrapped(base64: &str) -> String {
    let letters: Vec<char> = base64.chars().collect();
    let lines: Vec<String> = letters.chunks(64).map(|line| line.iter().collect()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn faults_name_the_setting_and_not_the_text() {
        let source = PemSource::Inline(Password::new("s3cret without any section"));
        let pem = Pem::read("ssl.keystore.key", &source).unwrap();
        let fault = pem.key(None).unwrap_err().to_string();
        assert_eq!(
            fault,
            "ssl.keystore.key: no private key in PEM form is in the settings"
        );
        let missing = Pem::read(
            "ssl.truststore.location",
            &PemSource::File("does/not/exist.pem".into()),
        );
        assert!(
            missing
                .err()
                .unwrap()
                .to_string()
                .starts_with("ssl.truststore.location: does/not/exist.pem: ")
        );
    }
}
