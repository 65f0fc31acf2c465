//! Makes text from a peer safe to quote: short enough for a message, and without characters that
//! control a terminal or forge a log line.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest message of an answer. A client's string may have 32,767 bytes, which is also the
/// limit of a message: a message that quotes such a string would not fit.
pub const MESSAGE_BYTES_MAX: usize = 1_024;

const ELLIPSIS: &str = "…";

/// Returns `text` if it has at most [`MESSAGE_BYTES_MAX`] bytes, else its beginning and end: after
/// the quoted name, the long part, the text says what is wrong with it.
pub fn message(text: &str) -> Cow<'_, str> {
    if text.len() <= MESSAGE_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let half = (MESSAGE_BYTES_MAX - ELLIPSIS.len()) / 2;
    let (head, tail) = (
        text.floor_char_boundary(half),
        text.ceil_char_boundary(text.len() - half),
    );
    Cow::Owned([&text[..head], ELLIPSIS, &text[tail..]].concat())
}

/// Returns `text` with control characters escaped: see [`PrintableWriter`].
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let _ = PrintableWriter::new(&mut escaped, usize::MAX).write_str(text);
    Cow::Owned(escaped)
}

/// Escapes unprintable characters in a JSON document too: JSON itself escapes only those below
/// U+0020.
pub fn printable_json(document: &str) -> Cow<'_, str> {
    // Most documents are plain ASCII, and some are long.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n');
    if document
        .as_bytes()
        .chunks(64)
        .all(|chunk| chunk.iter().fold(true, |all, byte| all & is_plain(byte)))
    {
        return Cow::Borrowed(document);
    }
    let is_raw = |character: char| character != '\n' && is_unprintable(character);
    if !document.contains(is_raw) {
        return Cow::Borrowed(document);
    }
    let mut escaped = String::with_capacity(document.len() + 64);
    for character in document.chars() {
        if is_raw(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character)
        }
    }
    Cow::Owned(escaped)
}

/// Passes text on with control characters escaped as in Rust (`\n`, `\u{1b}`), up to a limit of
/// bytes.
///
/// Backslashes are not escaped, so that escaped text is not escaped again.
#[derive(Debug)]
pub struct PrintableWriter<W> {
    into: W,
    bytes_left: usize,
    is_cut: bool,
}

impl<W: Write> PrintableWriter<W> {
    pub fn new(into: W, bytes_max: usize) -> PrintableWriter<W> {
        PrintableWriter {
            into,
            bytes_left: bytes_max,
            is_cut: false,
        }
    }

    fn put(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Ok(());
        }
        let end = text.floor_char_boundary(self.bytes_left);
        self.bytes_left -= end;
        self.into.write_str(&text[..end])?;
        if end < text.len() {
            self.is_cut = true;
            self.into.write_str(ELLIPSIS)?;
        }
        Ok(())
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(start) = rest.find(is_unprintable) {
            let (plain, from) = rest.split_at(start);
            let mut characters = from.chars();
            self.put(plain)?;
            if let Some(character) = characters.next() {
                let mut escaped = [0; ESCAPED_BYTES_MAX];
                self.put(escape(character, &mut escaped))?;
            }
            rest = characters.as_str();
        }
        self.put(rest)
    }
}

/// `\u{10ffff}`
const ESCAPED_BYTES_MAX: usize = 10;

fn escape(character: char, into: &mut [u8; ESCAPED_BYTES_MAX]) -> &str {
    let mut end = 0;
    // `escape_default` makes at most ten ASCII characters of one.
    for escaped in character.escape_default() {
        into[end] = escaped as u8;
        end += 1;
    }
    std::str::from_utf8(&into[..end]).expect("escapes are ascii")
}

/// Returns false for characters that move the cursor, break a line, change the writing direction or
/// are invisible.
pub fn is_printable(character: char) -> bool {
    !is_unprintable(character)
}

fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_both_its_ends() {
        assert_eq!(message("short"), "short");
        let exact = "x".repeat(MESSAGE_BYTES_MAX);
        assert!(matches!(message(&exact), Cow::Borrowed(text) if text == exact));
        let long = format!("topic '{}' is longer than 249 characters", "x".repeat(32_767));
        let cut = message(&long);
        assert!(
            cut.len() <= MESSAGE_BYTES_MAX && cut.starts_with("topic 'xxx"),
            "{cut}"
        );
        assert!(
            cut.contains("x…x") && cut.ends_with("xxx' is longer than 249 characters"),
            "{cut}"
        );
    }

    #[test]
    fn a_message_is_cut_between_characters_wherever_they_are() {
        for width in ["é", "€", "🦀"] {
            for shift in 0..4 {
                let long = format!("{}{}", "a".repeat(shift), width.repeat(2_000));
                let cut = message(&long);
                assert!(cut.len() <= MESSAGE_BYTES_MAX && cut.len() > MESSAGE_BYTES_MAX - 12);
                assert_eq!(cut.matches(ELLIPSIS).count(), 1);
            }
        }
    }

    #[test]
    fn control_characters_and_line_breaks_are_escaped() {
        assert_eq!(printable("plain, größer 名前 \\n"), "plain, größer 名前 \\n");
        assert_eq!(printable("a\nb\r\tc"), "a\\nb\\r\\tc");
        assert_eq!(printable("\x1b[2J\x07\0"), "\\u{1b}[2J\\u{7}\\u{0}");
        assert_eq!(printable("\u{9b}31m\u{7f}"), "\\u{9b}31m\\u{7f}", "C1 and DEL");
        assert_eq!(
            printable("\u{202e}txt.exe\u{2028}\u{feff}\u{200b}"),
            "\\u{202e}txt.exe\\u{2028}\\u{feff}\\u{200b}"
        );
        assert_eq!(printable("\u{e0041}"), "\\u{e0041}");
    }

    #[test]
    fn a_json_document_keeps_its_meaning_without_control_characters() {
        assert_eq!(printable_json("{\n  \"é\": 1\n}\n"), "{\n  \"é\": 1\n}\n");
        assert_eq!(
            printable_json("[\"\u{9b}2J\u{7f}\u{e0041}\"]"),
            r#"["\u009b2J\u007f\udb40\udc41"]"#
        );
    }

    #[test]
    fn output_is_bounded_and_marked_as_cut() {
        let written = |bytes_max, parts: &[&str]| {
            let mut text = String::new();
            let mut writer = PrintableWriter::new(&mut text, bytes_max);
            parts
                .iter()
                .for_each(|part| writer.write_str(part).expect("a string takes it"));
            text
        };
        assert_eq!(written(5, &["abc", "de"]), "abcde");
        assert_eq!(written(5, &["abc", "def", "ghi"]), "abcde…");
        assert_eq!(written(5, &["abcdé", "f"]), "abcd…");
        assert_eq!(written(5, &["a\x1bb"]), "a\\u{1…");
        assert_eq!(written(0, &["", "\n"]), "…");
    }
}
