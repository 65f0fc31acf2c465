//! The expected names are what `new X500Principal(der).getName()` returned in OpenJDK 17.

use super::super::testing::element;
use super::*;

const C: &[u8] = &[0x55, 4, 6];
const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const OU: &[u8] = &[0x55, 4, 11];
const SERIAL_NUMBER: &[u8] = &[0x55, 4, 5];
const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// Type, tag of the value, value.
type Attribute<'a> = (&'a [u8], u8, &'a [u8]);

/// The DER of a Name of these sets of attributes.
fn name(sets: &[&[Attribute<'_>]]) -> Vec<u8> {
    let attribute = |(kind, tag, value): &Attribute<'_>| {
        element(der::SEQUENCE, &[element(6, kind), element(*tag, value)].concat())
    };
    let set = |attributes: &&[Attribute<'_>]| {
        let all: Vec<u8> = attributes.iter().flat_map(attribute).collect();
        element(der::SET, &all)
    };
    let all: Vec<u8> = sets.iter().flat_map(set).collect();
    element(der::SEQUENCE, &all)
}

#[track_caller]
fn check(sets: &[&[Attribute<'_>]], expected: &str) {
    let der = name(sets);
    let found = render(Elements::new(&der).read().unwrap().elements());
    assert_eq!(found.as_deref(), Ok(expected), "{}", hex(&der));
}

#[track_caller]
fn check_value(tag: u8, value: &[u8], expected: &str) {
    check(&[&[(CN, tag, value)]], expected);
}

#[test]
fn attributes_are_written_last_first() {
    check(
        &[
            &[(C, PRINTABLE_STRING, b"DE")],
            &[(O, UTF8_STRING, b"O, Inc")],
            &[(OU, UTF8_STRING, b"a+b")],
            &[(CN, UTF8_STRING, b"alice")],
        ],
        "CN=alice,OU=a\\+b,O=O\\, Inc,C=DE",
    );
    check(&[], "");
    check(&[&[(CN, UTF8_STRING, b"")]], "CN=");
}

#[test]
fn a_set_of_attributes_keeps_its_order() {
    check(
        &[
            &[(OU, UTF8_STRING, b"b"), (CN, UTF8_STRING, b"a")],
            &[(C, PRINTABLE_STRING, b"X")],
        ],
        "C=X,OU=b+CN=a",
    );
}

#[test]
fn nine_types_have_keywords_and_the_others_are_numbers_with_their_der_in_hex() {
    let dc: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
    let uid: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];
    let of = |kind: &'static [u8]| [(kind, UTF8_STRING, &b"x"[..])];
    let keywords = [C, CN, &[0x55, 4, 7], &[0x55, 4, 8], &[0x55, 4, 9], O, OU].map(of);
    let mut sets: Vec<&[Attribute<'_>]> = keywords.iter().map(|set| &set[..]).collect();
    let more = [[(dc, IA5_STRING, &b"x"[..])], [(uid, UTF8_STRING, b"x")]];
    sets.extend(more.iter().map(|set| &set[..]));
    check(&sets, "UID=x,DC=x,OU=x,O=x,STREET=x,ST=x,L=x,CN=x,C=x");
    check(
        &[
            &[(SERIAL_NUMBER, PRINTABLE_STRING, b"42")],
            &[(EMAIL, IA5_STRING, b"a@b.c")],
            &[(&[0x55, 4, 12], UTF8_STRING, b"title")],
            &[(&[0x55, 4, 42], UTF8_STRING, b"given")],
            &[(&[0x55, 4, 4], UTF8_STRING, b"sur")],
            &[(&[0x55, 4, 46], PRINTABLE_STRING, b"q")],
        ],
        "2.5.4.46=#130171,2.5.4.4=#0c03737572,2.5.4.42=#0c05676976656e,2.5.4.12=#0c057469746c65,\
         1.2.840.113549.1.9.1=#16056140622e63,2.5.4.5=#13023432",
    );
    check(
        &[&[(&[0x88, 0x37, 0x83, 0x74], UTF8_STRING, b"x")]],
        "2.999.500=#0c0178",
    );
}

#[test]
fn special_characters_are_escaped_as_java_escapes_them() {
    check_value(UTF8_STRING, b",=+<>#;\"\\", "CN=\\,\\=\\+\\<\\>\\#\\;\\\"\\\\");
    check_value(UTF8_STRING, b"a,b=c", "CN=a\\,b\\=c");
    check_value(UTF8_STRING, b"  a  b  ", "CN=\\ \\ a  b\\ \\ ");
    check_value(UTF8_STRING, b"   ", "CN=\\ \\ \\ ");
    check_value(UTF8_STRING, b"\ra\r", "CN=\\\ra\\\r");
    check_value(UTF8_STRING, b"\n\ta\n", "CN=\n\ta\n");
    check_value(UTF8_STRING, b" ,", "CN=\\ \\,");
    check_value(UTF8_STRING, b"a\0b", "CN=a\\00b");
    check_value(UTF8_STRING, b"\0 ", "CN=\\00\\ ");
    check_value(UTF8_STRING, b"a\x01\x7f*@'", "CN=a\x01\x7f*@'");
}

#[test]
fn what_is_not_ascii_is_not_escaped() {
    check_value(UTF8_STRING, "Zoë 😀".as_bytes(), "CN=Zoë 😀");
    check_value(UTF8_STRING, "\u{a0}x\u{3000}".as_bytes(), "CN=\u{a0}x\u{3000}");
    check_value(
        UTF8_STRING,
        b"a\xe9b\xff\xe2\x82",
        "CN=a\u{fffd}b\u{fffd}\u{fffd}",
    );
}

#[test]
fn string_types_are_text_and_all_other_types_are_hex() {
    check_value(PRINTABLE_STRING, b"a*b", "CN=a*b");
    check_value(T61_STRING, b"Zo\xeb", "CN=Zo\u{fffd}");
    check_value(GENERAL_STRING, b"g", "CN=g");
    check_value(BMP_STRING, b"\0a\0b", "CN=\\00a\\00b");
    check_value(28, b"\0\0\0a", "CN=#1c0400000061");
    check_value(18, b"42", "CN=#12023432");
    check_value(26, b"v", "CN=#1a0176");
    check_value(4, b"o", "CN=#04016f");
    check_value(2, &[7], "CN=#020107");
    check_value(3, &[0, 7], "CN=#03020007");
    check_value(1, &[255], "CN=#0101ff");
    check_value(0x30, &[2, 1, 7], "CN=#3003020107");
}

#[test]
fn anything_else_is_malformed_and_never_a_panic() {
    let der = name(&[&[(CN, UTF8_STRING, b"alice")], &[(EMAIL, IA5_STRING, b"a@b")]]);
    for at in 0..der.len() {
        let _ = Elements::new(&der[..at])
            .read()
            .map(|found| render(found.elements()));
        for byte in [0, 0x80, 0xff] {
            let mut changed = der.clone();
            changed[at] = byte;
            let _ = Elements::new(&changed)
                .read()
                .map(|found| render(found.elements()));
        }
    }
    assert_eq!(
        render(Elements::new(&[0x31, 0])),
        Err(Malformed),
        "a set of nothing"
    );
    assert_eq!(render(Elements::new(&[0x30, 0])), Err(Malformed), "not a set");
    let surplus = element(der::SET, &element(der::SEQUENCE, &[6, 1, 0x55, 12, 1, 65, 5, 0]));
    assert_eq!(render(Elements::new(&surplus)), Err(Malformed));
}
