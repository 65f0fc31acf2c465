//! Patterns and replacements of Java's `java.util.regex`, as mapping rules use them, with the same
//! results.
//!
//! The engine here takes time linear in the name, whatever the pattern, and therefore has no
//! look-around and no back-references. A pattern with one of these, or with any construct whose
//! meaning differs between the two languages, is refused.

use regex::{Captures, Regex};

/// Repetitions are expanded when a pattern is compiled.
const PROGRAM_BYTES_MAX: usize = 1024 * 1024;

/// A pattern with its replacement.
#[derive(Debug)]
pub struct Replacing {
    whole: Regex,
    anywhere: Regex,
    replacement: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Group(usize),
}

impl Replacing {
    /// - Errors: why the pattern or the replacement cannot be used.
    pub fn new(pattern: &str, replacement: &str) -> Result<Replacing, String> {
        let translated = translate(pattern)?;
        let compile = |text: &str| {
            regex::RegexBuilder::new(text)
                .size_limit(PROGRAM_BYTES_MAX)
                .build()
                .map_err(|error| match error {
                    regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
                    error => format!("the pattern cannot be read: {error}"),
                })
        };
        let anywhere = compile(&translated)?;
        let replacement = parts(replacement, &anywhere)?;
        Ok(Replacing {
            whole: compile(&format!(r"\A(?:{translated})\z"))?,
            anywhere,
            replacement,
        })
    }

    /// Replaces every match in `text` if the pattern matches the whole of it: Java's `matches` and
    /// then `replaceAll`.
    pub fn apply(&self, text: &str) -> Option<String> {
        if !self.whole.is_match(text) {
            return None;
        }
        let mut result = String::with_capacity(text.len());
        let (mut copied, mut at) = (0, 0);
        // Unlike this engine's own iterator, Java finds an empty match right behind another match:
        // (.*) matches twice.
        while at <= text.len()
            && let Some(found) = self.anywhere.captures_at(text, at)
        {
            let whole = found.get(0).expect("group 0 takes part in every match");
            result.push_str(&text[copied..whole.start()]);
            self.replace(&found, &mut result);
            copied = whole.end();
            at = match text[copied..].chars().next() {
                Some(next) if whole.is_empty() => copied + next.len_utf8(),
                None if whole.is_empty() => copied + 1,
                _ => copied,
            };
        }
        result.push_str(&text[copied..]);
        Some(result)
    }

    fn replace(&self, found: &Captures<'_>, result: &mut String) {
        for part in &self.replacement {
            match part {
                Part::Literal(text) => result.push_str(text),
                Part::Group(group) => {
                    result.push_str(found.get(*group).map_or("", |found| found.as_str()));
                }
            }
        }
    }
}

/// Writes a Java pattern in this engine's language.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut class_depth = 0_usize;
    let mut can_be_possessive = false;
    while let Some(letter) = letters.next() {
        let was_quantifier = std::mem::take(&mut can_be_possessive);
        match letter {
            '\\' => out.push_str(&escape(letters.next(), class_depth > 0)?),
            '[' => {
                class_depth += 1;
                out.push('[');
            }
            ']' if class_depth > 0 => {
                class_depth -= 1;
                out.push(']');
            }
            // Intersections bind differently, and these pairs mean nothing in Java.
            '&' | '-' | '~' if class_depth > 0 && letters.peek() == Some(&letter) => {
                return Err(format!("{letter}{letter} in a class is not supported"));
            }
            _ if class_depth > 0 => out.push(letter),
            // In Java every line terminator ends a line, not only \n.
            '.' => out.push_str(r"[^\n\r\u{85}\u{2028}\u{2029}]"),
            '(' => {
                out.push('(');
                out.push_str(&group_kind(&mut letters)?);
            }
            '+' if was_quantifier => return Err("possessive quantifiers are not supported".to_owned()),
            '*' | '{' if was_quantifier => return Err(format!("{letter} follows another quantifier")),
            '*' | '+' | '?' | '}' => {
                can_be_possessive = !was_quantifier || letter != '?';
                out.push(letter);
            }
            _ => out.push(letter),
        }
    }
    Ok(out)
}

/// What follows an opening parenthesis.
fn group_kind(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    if letters.peek() != Some(&'?') {
        return Ok(String::new());
    }
    letters.next();
    match letters.next() {
        Some(':') => Ok("?:".to_owned()),
        Some('i') if letters.peek() == Some(&')') => Ok("?i".to_owned()),
        Some('i') if letters.peek() == Some(&':') => Ok("?i".to_owned()),
        Some('<') if letters.peek().is_some_and(char::is_ascii_alphabetic) => Ok("?<".to_owned()),
        Some('=' | '!' | '<') => Err("look-around is not supported".to_owned()),
        Some('>') => Err("atomic groups are not supported".to_owned()),
        Some(other) => Err(format!("(?{other} is not supported")),
        None => Err("the pattern ends within a group".to_owned()),
    }
}

fn escape(escaped: Option<char>, is_in_class: bool) -> Result<String, String> {
    let letter = escaped.ok_or("the pattern ends with a backslash")?;
    // In Java these are ASCII, unless a flag says otherwise.
    let text = match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        'w' => "[a-zA-Z0-9_]",
        'W' => "[^a-zA-Z0-9_]",
        's' => r"[ \t\n\x0B\f\r]",
        'S' => r"[^ \t\n\x0B\f\r]",
        'A' if !is_in_class => r"\A",
        'z' if !is_in_class => r"\z",
        't' | 'n' | 'r' | 'f' => return Ok(format!("\\{letter}")),
        '1'..='9' | 'k' => return Err("back-references are not supported".to_owned()),
        letter if letter.is_ascii_alphanumeric() => return Err(format!("\\{letter} is not supported")),
        // Escaped, these two would be word boundaries.
        '<' | '>' => return Ok(letter.to_string()),
        letter if letter.is_ascii_punctuation() => return Ok(format!("\\{letter}")),
        letter => return Ok(letter.to_string()),
    };
    Ok(text.to_owned())
}

/// Takes a replacement apart: `$1` and `${name}` are groups, a backslash makes the next letter
/// literal.
fn parts(replacement: &str, pattern: &Regex) -> Result<Vec<Part>, String> {
    let group_max = pattern.captures_len() - 1;
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => literal.push(letters.next().ok_or("the replacement ends with a backslash")?),
            '$' => {
                let group = match letters.peek() {
                    Some('{') => Some(named_group(&mut letters, pattern)?),
                    Some(digit) if digit.is_ascii_digit() => numbered_group(&mut letters, group_max)?,
                    _ => return Err("the replacement has a $ without a group".to_owned()),
                };
                match group {
                    Some(group) => {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                        parts.push(Part::Group(group));
                    }
                    None => literal.push('$'),
                }
            }
            letter => literal.push(letter),
        }
    }
    parts.push(Part::Literal(literal));
    parts.retain(|part| *part != Part::Literal(String::new()));
    Ok(parts)
}

/// Reads a group's number: as many digits as give an existing group. `None`: there is no such
/// group, and Kafka takes the `$` for itself.
fn numbered_group(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    group_max: usize,
) -> Result<Option<usize>, String> {
    let digit = |letter: char| letter.to_digit(10).map(|digit| digit as usize);
    let digits: Vec<usize> = letters.clone().map_while(digit).collect();
    let number = |digits: &[usize]| {
        let append = |number: usize, digit: &usize| number.saturating_mul(10).saturating_add(*digit);
        digits.iter().fold(0, append)
    };
    if digits[0] > group_max {
        return match group_max {
            0 => Err(format!(
                "the replacement has ${}, but the pattern has no group",
                digits[0]
            )),
            _ => Ok(None),
        };
    }
    let fitting = (1..=digits.len()).take_while(|count| number(&digits[..*count]) <= group_max);
    let count = fitting.last().unwrap_or(1);
    letters.nth(count - 1);
    Ok(Some(number(&digits[..count])))
}

fn named_group(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    pattern: &Regex,
) -> Result<usize, String> {
    letters.next();
    let name: String = letters.by_ref().take_while(|letter| *letter != '}').collect();
    let mut names = pattern.capture_names();
    names
        .position(|known| known == Some(name.as_str()))
        .ok_or_else(|| format!("the replacement has ${{{name}}}, but the pattern has no such group"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, replacement: &str, text: &str, expected: Option<&str>) {
        let replacing = Replacing::new(pattern, replacement).unwrap();
        assert_eq!(replacing.apply(text).as_deref(), expected, "{pattern}");
    }

    #[track_caller]
    fn check_refused(pattern: &str, replacement: &str, part: &str) {
        let problem = Replacing::new(pattern, replacement).unwrap_err();
        assert!(problem.contains(part), "{pattern}: {problem}");
    }

    #[test]
    fn every_match_is_replaced_if_the_whole_text_matches() {
        check("CN=(.*?),.*", "$1", "CN=a,OU=b", Some("a"));
        check("CN=(.*?),", "$1", "CN=a,OU=b", None);
        check("a|b|ab", "x", "ab", Some("xx"));
        // Java: "abc".replaceAll("(.*)", "<$1>") is "<abc><>".
        check("(.*)", "<$1>", "abc", Some("<abc><>"));
        check("", "x", "", Some("x"));
        check(".*", "x", "é", Some("xx"));
    }

    #[test]
    fn groups_of_a_replacement_are_those_of_java() {
        check("(a)(b)?", "[$1$2]", "a", Some("[a]"));
        check("(a)(.)", "$2$1$0", "ab", Some("baab"));
        check("(a).*", "$12", "ab", Some("a2"));
        check("(a).*", "$1@$4", "ab", Some("a@$4"));
        check("(a).*", "$123", "ab", Some("a23"));
        check("(a).*", "$01", "ab", Some("a"));
        check("(?<user>a).*", "${user}x", "ab", Some("ax"));
        check("(a).*", r"\$1\\", "ab", Some(r"$1\"));
        check_refused("a", "$1", "has no group");
        check_refused("(a)", "$", "without a group");
        check_refused("(a)", "$x", "without a group");
        check_refused("(a)", "${x}", "no such group");
        check_refused("(a)", "\\", "backslash");
    }

    #[test]
    fn classes_are_ascii_as_in_java() {
        check(r"\d+", "n", "42", Some("n"));
        check(r"\d+", "n", "٤٢", None);
        check(r"[\w.]+", "n", "a.b_9", Some("n"));
        check(r"\w+", "n", "é", None);
        check(r"[^\s,]+", "n", "a b", None);
        check(r"a.b", "n", "a\u{2028}b", None);
        check(r"\/\<\,", "n", "/<,", Some("n"));
        check("(?i)CN=(.*),X.*", "$1", "cn=A,x", Some("A"));
    }

    #[test]
    fn what_means_something_else_here_is_refused() {
        check_refused("(?=a)", "", "look-around");
        check_refused("(?<!a)b", "", "look-around");
        check_refused(r"(a)\1", "", "back-references");
        check_refused("a*+", "", "possessive");
        check_refused("a{2}+", "", "possessive");
        check_refused("a?+", "", "possessive");
        check_refused("(?>a)", "", "atomic");
        check_refused(r"\p{Alpha}", "", r"\p is not supported");
        check_refused(r"\Qa.b\E", "", r"\Q is not supported");
        check_refused("[a-z&&[^b]]", "", "&&");
        check_refused("(?x)a", "", "(?x");
        check_refused("(a", "", "cannot be read");
        check_refused("(a{1000}){1000}", "", "too large");
        check_refused("a**", "", "follows another quantifier");
        check_refused("a\\", "", "backslash");
        check("a+?b", "x", "aab", Some("x"));
        check("[+*]+", "x", "+*", Some("x"));
    }
}
