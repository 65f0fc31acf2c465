//! From the syntax of RE2/J, which Apache Kafka uses, to that of the crate `regex`: what means
//! something else there is translated, what RE2/J refuses is refused.

use std::collections::BTreeSet;

/// The largest count of a repetition.
const REPEAT_MAX: u32 = 1_000;

/// A byte that UTF-8 does not use, in place of characters beyond ASCII, which no topic name
/// contains.
const NEVER: &str = r"\xff";

/// `[:alpha:]` and the others, each also negated: `[:^alpha:]`.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

pub(super) fn translate(expression: &str) -> Result<String, String> {
    let mut translation = Translation {
        rest: expression,
        text: String::with_capacity(expression.len()),
        after: After::Start,
        group_names: BTreeSet::new(),
    };
    while let Some(next) = translation.pop() {
        translation.take(next)?;
    }
    Ok(translation.text)
}

/// What stands before the current position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// Nothing that a repetition could repeat.
    Start,
    Atom,
    /// A repetition, which may be made lazy once.
    Repetition,
    LazyRepetition,
}

struct Translation<'a> {
    rest: &'a str,
    text: String,
    after: After,
    group_names: BTreeSet<&'a str>,
}

/// The characters of an escape.
enum Escape {
    One(char),
    /// In the words of the crate, within brackets.
    Class(String),
}

impl<'a> Translation<'a> {
    fn pop(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn pop_if(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes everything up to `end`, and `end`.
    fn pop_through(&mut self, end: &str) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(taken)
    }

    fn take(&mut self, next: char) -> Result<(), String> {
        match next {
            '\\' => self.escape(),
            '[' => self.class(),
            '*' | '+' => self.repetition(&next.to_string()),
            '?' if self.after == After::Repetition => self.put("?", After::LazyRepetition),
            '?' => self.repetition("?"),
            '{' => self.counted(),
            '(' => self.open(),
            '|' | '^' => self.put(&next.to_string(), After::Start),
            '.' | '$' | ')' => self.put(&next.to_string(), After::Atom),
            _ => self.literal(next),
        }
    }

    fn put(&mut self, text: &str, after: After) -> Result<(), String> {
        self.text.push_str(text);
        self.after = after;
        Ok(())
    }

    fn literal(&mut self, character: char) -> Result<(), String> {
        let text = regex::escape(character.encode_utf8(&mut [0; 4]));
        self.put(&text, After::Atom)
    }

    fn repetition(&mut self, operator: &str) -> Result<(), String> {
        if matches!(self.after, After::Repetition | After::LazyRepetition) {
            return Err(format!("invalid nested repetition operator {operator}"));
        }
        self.put(operator, After::Repetition)
    }

    /// `{` begins a repetition only if counts and `}` follow; otherwise it stands for itself.
    fn counted(&mut self) -> Result<(), String> {
        let Some((counts, behind)) = self.rest.split_once('}') else {
            return self.literal('{');
        };
        let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
        if !is_count(least) || !(most.is_empty() || is_count(most)) {
            return self.literal('{');
        }
        let is_small = |text: &str| text.parse().is_ok_and(|count: u32| count <= REPEAT_MAX);
        if !is_small(least) || !(most.is_empty() || is_small(most)) {
            return Err(format!(
                "a repetition may have at most {REPEAT_MAX} times, not {{{counts}}}"
            ));
        }
        self.rest = behind;
        self.repetition(&format!("{{{counts}}}"))
    }

    fn open(&mut self) -> Result<(), String> {
        if !self.pop_if('?') {
            return self.put("(", After::Start);
        }
        match self.rest.strip_prefix("P<").or(self.rest.strip_prefix('<')) {
            Some(behind) => {
                self.rest = behind;
                self.named_group()
            }
            None => self.flags(),
        }
    }

    /// No use is made of what groups capture, so that names are only checked.
    fn named_group(&mut self) -> Result<(), String> {
        let name = self.pop_through(">").unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("invalid name of a group: {name:?}"));
        }
        if !self.group_names.insert(name) {
            return Err(format!("two groups with the name {name}"));
        }
        self.put("(?:", After::Start)
    }

    /// `(?i)`, `(?i-s:`. A flag may be named more than once; the last time counts.
    fn flags(&mut self) -> Result<(), String> {
        let (mut on, mut off) = (BTreeSet::new(), BTreeSet::new());
        let (mut is_off, mut has_flag) = (false, true);
        loop {
            match self.pop() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    has_flag = true;
                    on.remove(&flag);
                    if is_off {
                        off.insert(flag);
                    } else {
                        on.insert(flag);
                    }
                }
                Some('-') if !is_off => (is_off, has_flag) = (true, false),
                Some(end @ (':' | ')')) if has_flag => return self.put_flags(&on, &off, end),
                next => return Err(format!("unknown flag {}", next.map_or("".into(), String::from))),
            }
        }
    }

    fn put_flags(&mut self, on: &BTreeSet<char>, off: &BTreeSet<char>, end: char) -> Result<(), String> {
        if end == ')' && on.is_empty() && off.is_empty() {
            return Ok(());
        }
        let dash = if off.is_empty() { "" } else { "-" };
        let (on, off): (String, String) = (on.iter().collect(), off.iter().collect());
        self.put(&format!("(?{on}{dash}{off}{end}"), After::Start)
    }

    fn escape(&mut self) -> Result<(), String> {
        for (letter, text) in [('A', r"\A"), ('b', r"\b"), ('B', r"\B"), ('z', r"\z")] {
            if self.pop_if(letter) {
                return self.put(text, After::Atom);
            }
        }
        if self.pop_if('Q') {
            return self.quoted();
        }
        match self.escaped()? {
            Escape::One(character) => self.literal(character),
            Escape::Class(class) => self.put(&format!("[{class}]"), After::Atom),
        }
    }

    /// Everything up to `\E` stands for itself.
    fn quoted(&mut self) -> Result<(), String> {
        let quoted = match self.pop_through(r"\E") {
            Some(quoted) => quoted,
            None => std::mem::take(&mut self.rest),
        };
        quoted.chars().try_for_each(|next| self.literal(next))
    }

    /// What follows a backslash, in a class or outside.
    fn escaped(&mut self) -> Result<Escape, String> {
        let Some(next) = self.pop() else {
            return Err("the expression ends with a backslash".to_owned());
        };
        let character = match next {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => return Ok(Escape::Class(format!(r"\{next}"))),
            'p' | 'P' => return self.category(next == 'P').map(Escape::Class),
            // One digit alone would refer to a group.
            '0' => self.octal(0),
            '1'..='7' if self.rest.starts_with(|digit: char| digit.is_digit(8)) => {
                self.octal(next.to_digit(8).unwrap_or(0))
            }
            'x' => self.hexadecimal(),
            'a' => Some('\x07'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            next if next.is_ascii_alphanumeric() => None,
            next => Some(next),
        };
        let character = character.ok_or_else(|| format!(r"invalid escape \{next}"))?;
        Ok(Escape::One(character))
    }

    /// Up to three octal digits; the first has been read.
    fn octal(&mut self, mut value: u32) -> Option<char> {
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|next| next.to_digit(8)) else {
                break;
            };
            self.rest = &self.rest[1..];
            value = value * 8 + digit;
        }
        char::from_u32(value)
    }

    /// Two hexadecimal digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<char> {
        let digits = if self.pop_if('{') {
            self.pop_through("}")?
        } else {
            let (digits, rest) = self.rest.split_at_checked(2)?;
            self.rest = rest;
            digits
        };
        let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?;
        char::from_u32(value)
    }

    /// `\pL`, `\p{Lu}`, `\p{^Lu}`: the characters of a category, as far as they are ASCII.
    fn category(&mut self, mut is_negated: bool) -> Result<String, String> {
        let name = if self.pop_if('{') {
            self.pop_through("}")
        } else {
            let length = self.rest.chars().next().map_or(0, char::len_utf8);
            let (name, rest) = self.rest.split_at(length);
            self.rest = rest;
            Some(name)
        };
        let mut name = name.unwrap_or_default();
        if let Some(rest) = name.strip_prefix('^') {
            (name, is_negated) = (rest, !is_negated);
        }
        let class = class_of(name).ok_or_else(|| format!("unknown class of characters {name:?}"))?;
        Ok(match is_negated {
            true => format!("[^{class}]"),
            false => class.to_owned(),
        })
    }

    /// In a class the crate knows operators, such as `&&`, and classes in classes; RE2/J takes all
    /// of these for characters. So every character is written as its number.
    fn class(&mut self) -> Result<(), String> {
        let start = if self.pop_if('^') { "[^" } else { "[" };
        let mut class = String::new();
        let mut is_first = true;
        while is_first || !self.pop_if(']') {
            is_first = false;
            class += &self.class_item()?;
        }
        let class = if class.is_empty() { NEVER } else { &class };
        self.put(&format!("{start}{class}]"), After::Atom)
    }

    fn class_item(&mut self) -> Result<String, String> {
        if let Some(behind) = self.rest.strip_prefix("[:")
            && let Some((name, rest)) = behind.split_once(":]")
        {
            self.rest = rest;
            return match NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                true => Ok(format!("[:{name}:]")),
                false => Err(format!("unknown class of characters [:{name}:]")),
            };
        }
        let first = match self.class_escape()? {
            Escape::One(first) => first,
            Escape::Class(class) => return Ok(class),
        };
        // A dash before the bracket stands for itself.
        if !self.rest.starts_with('-') || self.rest.starts_with("-]") {
            return Ok(range(first, first));
        }
        self.pop();
        match self.class_escape()? {
            Escape::One(last) if last >= first => Ok(range(first, last)),
            _ => Err(format!("invalid range from {first:?}")),
        }
    }

    fn class_escape(&mut self) -> Result<Escape, String> {
        match self.pop() {
            None => Err("a class is not closed".to_owned()),
            Some('\\') => self.escaped(),
            Some(next) => Ok(Escape::One(next)),
        }
    }
}

fn is_count(text: &str) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (text == "0" || !text.starts_with('0'))
}

/// A range of characters for use in a class; empty if none is ASCII.
fn range(first: char, last: char) -> String {
    match (first as u32, (last as u32).min(0x7f)) {
        (first, last) if first > last => String::new(),
        (first, last) => format!(r"\x{first:02x}-\x{last:02x}"),
    }
}

/// The ASCII characters of a Unicode category, or of a script that has any.
fn class_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "Any" => r"\x00-\x7f",
        "L" | "Latin" => "A-Za-z",
        "Lu" => "A-Z",
        "Ll" => "a-z",
        "N" | "Nd" => "0-9",
        "P" => r"!-#%-\*,-/:;?@\[-\]_\{\}",
        "Pc" => "_",
        "Pd" => r"\-",
        "Ps" => r"(\[\{",
        "Pe" => r")\]\}",
        "Po" => r"!-#%-'\*,./:;?@\\",
        "S" => r"$+<->\^`|\~",
        "Sc" => "$",
        "Sk" => r"\^`",
        "Sm" => r"+<->|\~",
        "Z" | "Zs" => " ",
        "C" | "Cc" => r"\x00-\x1f\x7f",
        "Common" => r"\x00-@\[-`\{-\x7f",
        "Cf" | "Co" | "Cs" | "Lm" | "Lo" | "Lt" | "M" | "Mc" | "Me" | "Mn" | "Nl" | "No" | "Pf" | "Pi"
        | "So" | "Zl" | "Zp" => NEVER,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::regex::compile;

    #[track_caller]
    fn check(expression: &str, matching: &[&str], other: &[&str]) {
        let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        for name in matching {
            assert!(regex.is_match(name.as_bytes()), "{expression} on {name}");
        }
        for name in other {
            assert!(!regex.is_match(name.as_bytes()), "{expression} on {name}");
        }
    }

    #[test]
    fn what_means_something_else_in_re2_is_translated() {
        check(r"\Qa.b\E.*", &["a.b", "a.bc"], &["axb"]);
        check(r"\Qa.b", &["a.b"], &["axb"]);
        check(r"[a&&b]", &["a", "&", "b"], &["c"]);
        check(r"[[a]", &["[", "a"], &["b"]);
        check(r"[]a]", &["]", "a"], &["b"]);
        check(r"[[:digit:]x]+", &["1x2"], &["a"]);
        check(r"\<a\>", &["<a>"], &["a"]);
        check("a{", &["a{"], &["a"]);
        check("a{,2}", &["a{,2}"], &["aa"]);
        check("a{2", &["a{2"], &["aa"]);
        check("a{1000}", &[&"a".repeat(1_000)], &["a"]);
        check(r"a+\Qb\E+", &["abb"], &["ab+"]);
        check(r"[[:digit:]&&b]", &["1", "&", "b"], &["c"]);
        check("a{2,}b", &["aab", "aaab"], &["ab"]);
        check("(?i)orders", &["ORDERS"], &["order"]);
        check("(?P<name>a+)-(?:b|c)", &["aa-b"], &["a-d"]);
        check("a+?b??", &["a", "aab"], &["b"]);
        check("a{02}", &["a{02}"], &["aa"]);
        check("(?ii-i)a", &["a"], &["A"]);
        check("(?)(?P<1>a)", &["a"], &["b"]);
    }

    #[test]
    fn a_dash_between_classes_and_characters_is_a_dash() {
        check(r"[\w-.]+", &["orders-2.v1"], &["a b", ""]);
        check(r"[a-z\d-_.]+", &["orders-2.v1_x"], &["Orders"]);
        check("[a-z--9]+", &["a-.9"], &["+"]);
        check("[+--]", &["+", ",", "-"], &["."]);
    }

    #[test]
    fn characters_are_written_by_number_and_by_category() {
        check(r"\x61\x{62}\143\056", &["abc."], &["abcd"]);
        check(r"[\x61-\143]", &["a", "c"], &["d"]);
        check(r"\pL\p{Nd}\P{L}", &["a1-"], &["a1b"]);
        check(r"[\p{Lu}_]+[^\p{Lu}]", &["A_B-"], &["A_BC"]);
        check(r"\p{^N}", &["a"], &["1"]);
        // Names are ASCII.
        check("[a-\u{44f}]", &["a", "z"], &["-"]);
        check("[\u{e0}-\u{e9}]?a", &["a"], &["\u{e0}"]);
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        for expression in [
            "a**",
            "a+*",
            "a{2}{3}",
            "a{1001}",
            "a{1001,}",
            "a{1,1001}",
            "(?x)a",
            "[a--b]",
            "[a",
            "a\\",
            r"(a)\1",
            r"\u0061",
            r"\p{Letter}",
            r"\x{110000}",
            "[[:foo:]]",
            r"[a-\d]",
            "(?-u)a",
            "(?i-)a",
            "(?P<n>a)(?P<n>b)",
            "(?P<n.m>a)",
        ] {
            assert!(compile(expression).is_err(), "{expression}");
        }
    }
}
