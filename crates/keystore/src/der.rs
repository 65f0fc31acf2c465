//! Walks DER (ITU-T X.690): enough to find the parts of a certificate and of an encrypted key.

/// The bytes are not DER, or not of the expected shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

pub const INTEGER: u8 = 0x02;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub tag: u8,
    /// Tag, length and content.
    pub whole: &'a [u8],
    pub content: &'a [u8],
}

impl<'a> Element<'a> {
    pub fn elements(&self) -> Elements<'a> {
        Elements { rest: self.content }
    }
}

/// Elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub fn new(bytes: &'a [u8]) -> Elements<'a> {
        Elements { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next element.
    pub fn read(&mut self) -> Result<Element<'a>, Malformed> {
        let bytes = self.rest;
        let (&tag, after_tag) = bytes.split_first().ok_or(Malformed)?;
        // A tag number of 31 and more takes further bytes; no certificate has one.
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (length, header_bytes) = length(after_tag)?;
        let start = 1 + header_bytes;
        let end = start.checked_add(length).ok_or(Malformed)?;
        let whole = bytes.get(..end).ok_or(Malformed)?;
        self.rest = &bytes[end..];
        Ok(Element {
            tag,
            whole,
            content: &whole[start..],
        })
    }

    /// Takes the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.read()?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(Malformed)
        }
    }

    /// Takes the next element if it has this tag.
    pub fn take_if(&mut self, tag: u8) -> Result<Option<Element<'a>>, Malformed> {
        if self.rest.first() == Some(&tag) {
            self.read().map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Reads a definite length in its shortest form; returns it and how many bytes it took.
fn length(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
    let (&first, rest) = bytes.split_first().ok_or(Malformed)?;
    if first < 0x80 {
        return Ok((usize::from(first), 1));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(Malformed);
    }
    let digits = rest.get(..count).ok_or(Malformed)?;
    let length = digits
        .iter()
        .fold(0, |length, digit| length << 8 | usize::from(*digit));
    if digits[0] == 0 || length < 0x80 {
        return Err(Malformed);
    }
    Ok((length, 1 + count))
}

/// Writes an object identifier as numbers with dots.
pub fn dotted(content: &[u8]) -> Result<String, Malformed> {
    let mut arcs = Vec::new();
    let mut arc: u128 = 0;
    let mut is_within = false;
    for byte in content {
        if !is_within && *byte == 0x80 {
            return Err(Malformed);
        }
        // Registries assign arcs of up to 128 bits (UUIDs, ITU-T X.667).
        if arc >> 121 != 0 {
            return Err(Malformed);
        }
        arc = arc << 7 | u128::from(byte & 0x7f);
        is_within = byte & 0x80 != 0;
        if !is_within {
            arcs.push(std::mem::take(&mut arc));
        }
    }
    let (first, rest) = arcs.split_first().ok_or(Malformed)?;
    if is_within {
        return Err(Malformed);
    }
    // The first number holds the first two arcs: 40 times 0, 1 or 2, plus the second.
    let root = (first / 40).min(2);
    let mut text = format!("{root}.{}", first - 40 * root);
    for arc in rest {
        text.push('.');
        text.push_str(&arc.to_string());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_must_fit_and_have_the_shortest_length() {
        let check = |bytes: &[u8], expected: Result<usize, Malformed>| {
            let read = Elements::new(bytes).read().map(|element| element.content.len());
            assert_eq!(read, expected, "{bytes:02x?}");
        };
        check(&[0x04, 0], Ok(0));
        check(&[0x04, 2, 7, 7, 9], Ok(2));
        check(&[], Err(Malformed));
        check(&[0x04], Err(Malformed));
        check(&[0x04, 2, 7], Err(Malformed));
        check(&[0x1f, 1, 7], Err(Malformed));
        check(&[0x04, 0x80, 0, 0], Err(Malformed));
        check(&[0x04, 0x81, 1, 7], Err(Malformed));
        check(&[0x04, 0x82, 0, 0x81], Err(Malformed));
        check(&[0x04, 0x84, 0xff, 0xff, 0xff, 0xff], Err(Malformed));
        check(&[0x04, 0x85, 1, 0, 0, 0, 0], Err(Malformed));
        let mut long = vec![0x04, 0x81, 0x80];
        long.resize(3 + 0x80, 1);
        check(&long, Ok(0x80));
    }

    #[test]
    fn object_identifiers_are_written_with_dots() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            assert_eq!(dotted(bytes).ok().as_deref(), expected, "{bytes:02x?}");
        };
        check(&[0x55, 4, 3], Some("2.5.4.3"));
        check(
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
            Some("1.2.840.113549.1.9.1"),
        );
        check(
            &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
            Some("0.9.2342.19200300.100.1.25"),
        );
        check(&[0x88, 0x37, 3], Some("2.999.3"));
        check(&[], None);
        check(&[0x55, 0x84], None);
        check(&[0x55, 0x80, 1], None);
        check(&[0xff; 20], None);
    }
}
