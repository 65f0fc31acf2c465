//! Why a session of TLS is refused: a text for the log, and a cause that can be counted.

use rustls::{CertificateError, Error, PeerIncompatible};

/// What a client did that ends its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRefusal {
    /// One of a small set: a label of metrics.
    pub cause: String,
    pub text: String,
}

impl TlsRefusal {
    /// Something that no honest client sends.
    pub fn protocol(text: &str) -> TlsRefusal {
        TlsRefusal::new("protocol", text.to_owned())
    }

    pub fn new(cause: &str, text: String) -> TlsRefusal {
        TlsRefusal {
            cause: cause.to_owned(),
            text,
        }
    }
}

impl From<&Error> for TlsRefusal {
    fn from(error: &Error) -> TlsRefusal {
        TlsRefusal {
            cause: cause(error),
            text: error.to_string(),
        }
    }
}

fn cause(error: &Error) -> String {
    let cause = match error {
        // What the client has against this broker: `client-unknown-ca` is a client that does not
        // trust its certificate. Unknown numbers share one name.
        Error::AlertReceived(alert) => {
            let name = format!("{alert:?}");
            let known = Some(&*name).filter(|name| !name.contains('('));
            return known.map_or_else(
                || "client-alert".to_owned(),
                |name| format!("client-{}", kebab(name)),
            );
        }
        Error::NoCertificatesPresented => "no-certificate",
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::PeerIncompatible(error) => of_offer(error),
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_)
        | Error::PeerSentOversizedRecord
        | Error::DecryptError => "protocol",
        _ => "other",
    };
    cause.to_owned()
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate-expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate-not-valid-yet"
        }
        CertificateError::UnknownIssuer => "certificate-unknown-issuer",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate-purpose"
        }
        _ => "certificate",
    }
}

fn of_offer(error: &PeerIncompatible) -> &'static str {
    match error {
        PeerIncompatible::NoCipherSuitesInCommon => "no-common-cipher",
        PeerIncompatible::NoKxGroupsInCommon => "no-common-group",
        // rustls looks for the algorithms of TLS 1.2 before it looks at the version: clients of TLS
        // 1.0 and 1.1 have none.
        PeerIncompatible::SignatureAlgorithmsExtensionRequired
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::Tls13RequiredForQuic
        | PeerIncompatible::ServerDoesNotSupportTls12Or13 => "no-common-version",
        _ => "incompatible",
    }
}

/// `UnknownCA` as `unknown-ca`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    let mut was_small = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && was_small {
            text.push('-');
        }
        was_small = !letter.is_ascii_uppercase();
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn causes_are_few_and_tell_mistakes_of_operators_apart() {
        for (error, expected) in [
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "client-unknown-ca",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateExpired),
                "client-certificate-expired",
            ),
            (
                Error::AlertReceived(AlertDescription::Unknown(200)),
                "client-alert",
            ),
            (Error::NoCertificatesPresented, "no-certificate"),
            (
                Error::InvalidCertificate(CertificateError::Expired),
                "certificate-expired",
            ),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "certificate-unknown-issuer",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "no-common-cipher",
            ),
            (Error::DecryptError, "protocol"),
        ] {
            let refusal = TlsRefusal::from(&error);
            assert_eq!((&*refusal.cause, refusal.text), (expected, error.to_string()));
        }
    }
}
