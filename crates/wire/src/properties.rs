//! Parser of Java's `.properties` files; errors have line numbers.

use std::collections::BTreeMap;
use std::fmt;

/// Keys and values of a file, sorted by key.
pub type Properties = BTreeMap<String, String>;

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertiesError {
    /// Counted from 1.
    pub line: usize,
    pub problem: &'static str,
}

impl fmt::Display for PropertiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for PropertiesError {}

/// Parses a whole file. A repeated key has its last value, as in Java.
pub fn parse(text: &str) -> Result<Properties, PropertiesError> {
    let mut properties = Properties::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let first = line.trim_start_matches(is_blank);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while continues(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        let unescape = |text| {
            unescape(text).map_err(|problem| PropertiesError {
                line: index + 1,
                problem,
            })
        };
        properties.insert(unescape(key)?, unescape(value)?);
    }
    Ok(properties)
}

/// Parses one `key=value` of a command line; there are no escapes.
pub fn parse_override(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let key = key.trim();
    (!key.is_empty()).then(|| (key.to_owned(), value.trim().to_owned()))
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

/// A line continues on the next one if it ends with an odd number of backslashes.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The key ends at the first unescaped `=`, `:` or blank; one separator and the blanks around it
/// belong to neither.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = line.char_indices().find(|(_, character)| {
        let ends = !is_escaped && (is_blank(*character) || matches!(character, '=' | ':'));
        is_escaped = !is_escaped && *character == '\\';
        ends
    });
    let end = end.map_or(line.len(), |(index, _)| index);
    let rest = line[end..].trim_start_matches(is_blank);
    let value = rest
        .strip_prefix(['=', ':'])
        .unwrap_or(rest)
        .trim_start_matches(is_blank);
    (&line[..end], value)
}

fn unescape(text: &str) -> Result<String, &'static str> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Java escapes UTF-16 code units, so a character beyond the basic plane is two escapes.
    let mut units = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let mut push = |character: char| units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
        if character != '\\' {
            push(character);
            continue;
        }
        match characters.next() {
            None => {}
            Some('t') => push('\t'),
            Some('n') => push('\n'),
            Some('r') => push('\r'),
            Some('f') => push('\x0c'),
            Some('u') => {
                let digits: String = characters.by_ref().take(4).collect();
                let is_hex = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let unit = is_hex.then(|| u16::from_str_radix(&digits, 16).ok()).flatten();
                units.push(unit.ok_or("\\u must be followed by four hexadecimal digits")?);
            }
            Some(other) => push(other),
        }
    }
    String::from_utf16(&units).map_err(|_| "a \\u escape is half of a surrogate pair")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(parse(text), Ok(expected), "{text:?}");
    }

    #[test]
    fn separators_and_blanks() {
        check("a=b", &[("a", "b")]);
        check("  a : b ", &[("a", "b ")]);
        check("a b = c", &[("a", "b = c")]);
        check("a\t\tb", &[("a", "b")]);
        check("a", &[("a", "")]);
        check("a=", &[("a", "")]);
        check("a==b", &[("a", "=b")]);
        check(
            "listeners=PLAINTEXT://:9092",
            &[("listeners", "PLAINTEXT://:9092")],
        );
    }

    #[test]
    fn comments_and_empty_lines() {
        check(
            "# a=b\n ! c=d\n\n  \t\ne=f # not a comment\r\n",
            &[("e", "f # not a comment")],
        );
    }

    #[test]
    fn a_backslash_continues_a_line_and_two_do_not() {
        check("a=b,\\\n    c,\\\n\td\ne=f", &[("a", "b,c,d"), ("e", "f")]);
        check("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]);
        check("a=b\\", &[("a", "b")]);
        check("a=b\\\n#c", &[("a", "b#c")]);
    }

    #[test]
    fn escapes() {
        check(r"a\=b\ c\:=d\te\\f\zg", &[("a=b c:", "d\te\\fzg")]);
        check(r"a=\u00e5\ud83d\ude00", &[("a", "å😀")]);
    }

    #[test]
    fn the_last_value_of_a_key_wins() {
        check("a=1\na=2", &[("a", "2")]);
    }

    #[test]
    fn a_broken_escape_names_its_line() {
        assert_eq!(parse("a=1\n\nb=\\u12g4").unwrap_err().line, 3);
        assert!(parse("a=\\ud800").is_err());
    }

    #[test]
    fn overrides() {
        assert_eq!(parse_override("a=b=c"), Some(("a".into(), "b=c".into())));
        assert_eq!(parse_override("a"), None);
        assert_eq!(parse_override("=a"), None);
    }
}
