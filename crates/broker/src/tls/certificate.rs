//! The parts of a certificate (RFC 5280) that a broker looks at: subject, alternative names and the
//! end of its validity. Signatures and chains are rustls's.

use super::distinguished_name;
use ottla_keystore::der::{self, Element, Elements, Malformed};

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// What was found in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// As Java writes it.
    pub subject: String,
    /// Each as its DER.
    pub alternative_names: Vec<Vec<u8>>,
    /// Unix time, in seconds.
    pub not_before: i64,
    pub not_after: i64,
}

/// Seconds before its end from which on a certificate is named in the log every day.
const EXPIRY_WARNING_SECONDS: i64 = 30 * 24 * 60 * 60;

impl Certificate {
    pub fn read(certificate: &[u8]) -> Result<Certificate, Malformed> {
        let mut outer = Elements::new(certificate).expect(der::SEQUENCE)?.elements();
        let mut fields = outer.expect(der::SEQUENCE)?.elements();
        fields.take_if(VERSION)?;
        fields.expect(der::INTEGER)?;
        fields.expect(der::SEQUENCE)?;
        fields.expect(der::SEQUENCE)?;
        let mut validity = fields.expect(der::SEQUENCE)?.elements();
        let not_before = seconds(&validity.read()?)?;
        let not_after = seconds(&validity.read()?)?;
        let subject = fields.expect(der::SEQUENCE)?;
        fields.expect(der::SEQUENCE)?;
        let mut alternative_names = Vec::new();
        while !fields.is_empty() {
            let field = fields.read()?;
            if field.tag == EXTENSIONS {
                alternative_names = alternative_names_of(&field)?;
            }
        }
        Ok(Certificate {
            subject: distinguished_name::render(subject.elements())?,
            alternative_names,
            not_before,
            not_after,
        })
    }

    /// What the operator should know of its validity, if anything.
    ///
    /// - `now`: Unix time, in seconds.
    pub fn concern(&self, now: i64) -> Option<String> {
        let left = self.not_after - now;
        if left < 0 {
            return Some("has expired".to_owned());
        }
        if self.not_before > now {
            return Some("is not valid yet".to_owned());
        }
        let days = left / (24 * 60 * 60);
        (left < EXPIRY_WARNING_SECONDS).then(|| format!("expires in {days} days"))
    }
}

fn alternative_names_of(extensions: &Element<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut list = extensions.elements().expect(der::SEQUENCE)?.elements();
    while !list.is_empty() {
        let mut extension = list.expect(der::SEQUENCE)?.elements();
        let kind = extension.expect(der::OBJECT_IDENTIFIER)?;
        extension.take_if(BOOLEAN)?;
        let value = extension.expect(der::OCTET_STRING)?;
        if kind.content != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        let mut names = value.elements().expect(der::SEQUENCE)?.elements();
        let mut found = Vec::new();
        while !names.is_empty() {
            found.push(names.read()?.whole.to_vec());
        }
        return Ok(found);
    }
    Ok(Vec::new())
}

/// Reads `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn seconds(time: &Element<'_>) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(time.content).map_err(|_| Malformed)?;
    let digits = text.strip_suffix('Z').ok_or(Malformed)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed);
    }
    let number = |text: &str| text.parse::<i64>().map_err(|_| Malformed);
    let (year, rest) = match (time.tag, digits.len()) {
        (UTC_TIME, 12) => {
            // RFC 5280, 4.1.2.5.1: from 50 on, the year is in the last century.
            let year = number(&digits[..2])?;
            (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4])?, &digits[4..]),
        _ => return Err(Malformed),
    };
    let part = |index: usize| number(&rest[2 * index..2 * index + 2]);
    let (month, day) = (part(0)?, part(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Err(Malformed);
    }
    let (hours, minutes, seconds) = (part(2)?, part(3)?, part(4)?);
    Ok(days(year, month, day) * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

/// Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    #[test]
    fn a_certificate_is_named_thirty_days_before_its_end() {
        const DAY: i64 = 86_400;
        let certificate = Certificate {
            subject: "CN=a".to_owned(),
            alternative_names: Vec::new(),
            not_before: DAY,
            not_after: 100 * DAY,
        };
        let concern = |now: i64| certificate.concern(now);
        assert_eq!(concern(DAY - 1).as_deref(), Some("is not valid yet"));
        assert_eq!((concern(DAY), concern(70 * DAY)), (None, None));
        assert_eq!(concern(70 * DAY + 1).as_deref(), Some("expires in 29 days"));
        assert_eq!(concern(100 * DAY).as_deref(), Some("expires in 0 days"));
        assert_eq!(concern(100 * DAY + 1).as_deref(), Some("has expired"));
    }

    #[test]
    fn the_parts_of_a_certificate_are_found() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params
            .subject_alt_names
            .push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Tea, Inc");
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2064, 2, 29);
        let der = params.self_signed(&key).unwrap();
        let found = Certificate::read(der.der()).unwrap();
        assert_eq!(found.subject, "CN=alice,O=Tea\\, Inc");
        assert_eq!(
            found.alternative_names,
            [&b"\x82\x09a.example"[..], &[0x87, 4, 127, 0, 0, 1]]
        );
        assert_eq!((found.not_before, found.not_after), (946_598_400, 2_971_468_800));
        for bytes in 0..der.der().len() {
            let _ = Certificate::read(&der.der()[..bytes]);
        }
        assert_eq!(Certificate::read(&der.der()[..100]), Err(Malformed));
    }

    #[test]
    fn times_are_read_in_both_forms() {
        let check = |tag: u8, text: &str, expected: Option<i64>| {
            let element = Element {
                tag,
                whole: &[],
                content: text.as_bytes(),
            };
            assert_eq!(seconds(&element).ok(), expected, "{text}");
        };
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(UTC_TIME, "500101000000Z", Some(-631_152_000));
        check(GENERALIZED_TIME, "20000229123456Z", Some(951_827_696));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        check(UTC_TIME, "20000229123456Z", None);
        check(UTC_TIME, "701301000000Z", None);
        check(UTC_TIME, "7001010000Z", None);
        check(UTC_TIME, "70010100000+Z", None);
        check(UTC_TIME, "700101000000", None);
    }
}
