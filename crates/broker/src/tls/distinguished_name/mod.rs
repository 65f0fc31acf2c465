//! The subject of a certificate as text, byte for byte as Java's `X500Principal.getName()` writes
//! it: ACLs and mapping rules compare it as text.
//!
//! RFC 2253, with Java's choices: nine keywords, every other type as its dotted OID with the hex of
//! the whole DER value; `=` and `#` are escaped everywhere, a null character as `\00`; what is not
//! ASCII is not escaped.

use ottla_keystore::der::{self, Element, Elements, Malformed};

/// The attribute types that RFC 2253 has a keyword for.
const KEYWORDS: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

const UTF8_STRING: u8 = 12;
const PRINTABLE_STRING: u8 = 19;
const T61_STRING: u8 = 20;
const IA5_STRING: u8 = 22;
const GENERAL_STRING: u8 = 27;
const BMP_STRING: u8 = 30;

/// Writes a Name, given as the elements of its SEQUENCE.
pub fn render(name: Elements<'_>) -> Result<String, Malformed> {
    let mut parts = Vec::new();
    let mut names = name;
    while !names.is_empty() {
        parts.push(relative_name(names.expect(der::SET)?.elements())?);
    }
    // RFC 2253, 2.1: starting with the last element of the sequence.
    parts.reverse();
    Ok(parts.join(","))
}

/// Writes one set of attributes, in the order in which the certificate has them.
fn relative_name(mut attributes: Elements<'_>) -> Result<String, Malformed> {
    let mut parts = Vec::new();
    while !attributes.is_empty() {
        let mut attribute = attributes.expect(der::SEQUENCE)?.elements();
        let kind = attribute.expect(der::OBJECT_IDENTIFIER)?;
        let value = attribute.read()?;
        if !attribute.is_empty() {
            return Err(Malformed);
        }
        parts.push(attribute_text(&kind, &value)?);
    }
    if parts.is_empty() {
        return Err(Malformed);
    }
    Ok(parts.join("+"))
}

fn attribute_text(kind: &Element<'_>, value: &Element<'_>) -> Result<String, Malformed> {
    let keyword = KEYWORDS.iter().find(|(id, _)| *id == kind.content);
    let label = match keyword {
        Some((_, keyword)) => (*keyword).to_owned(),
        None => der::dotted(kind.content)?,
    };
    let text = match keyword.and_then(|_| string(value)) {
        Some(text) => escaped(&text),
        None => hex(value.whole),
    };
    Ok(format!("{label}={text}"))
}

/// A value of a string type; `None` for every other type.
fn string(value: &Element<'_>) -> Option<String> {
    match value.tag {
        // Java decodes all of these as UTF-8, even a BMPString; a UniversalString is no text.
        UTF8_STRING | PRINTABLE_STRING | T61_STRING | IA5_STRING | GENERAL_STRING | BMP_STRING => {
            Some(String::from_utf8_lossy(value.content).into_owned())
        }
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(1 + 2 * bytes.len());
    text.push('#');
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let is_blank = |letter: char| letter == ' ' || letter == '\r';
    let inner = value.trim_matches(is_blank);
    let lead_bytes = value.len() - value.trim_start_matches(is_blank).len();
    for (at, letter) in value.char_indices() {
        let is_outside = inner.is_empty() || at < lead_bytes || at >= lead_bytes + inner.len();
        if letter == '\0' {
            text.push_str("\\00");
            continue;
        }
        if is_outside || ",=+<>#;\"\\".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests;
