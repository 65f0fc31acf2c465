//! From the syntax of RE2/J, which Apache Kafka uses, to that of the crate `regex`: what means
//! something else there is translated, what RE2/J refuses is refused.

use std::iter::Peekable;
use std::str::Chars;

/// The largest count of a repetition.
const REPEAT_MAX: u32 = 1_000;

pub(super) fn translate(expression: &str) -> Result<String, String> {
    let mut translation = Translation {
        rest: expression.chars().peekable(),
        text: String::with_capacity(expression.len()),
        after: After::Start,
    };
    while let Some(next) = translation.rest.next() {
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
    rest: Peekable<Chars<'a>>,
    text: String,
    after: After,
}

impl Translation<'_> {
    fn take(&mut self, next: char) -> Result<(), String> {
        match next {
            '\\' => self.escape(),
            '[' => self.class(),
            '*' | '+' => self.repetition(&next.to_string()),
            '?' if self.after == After::Repetition => {
                self.text.push('?');
                self.after = After::LazyRepetition;
                Ok(())
            }
            '?' => self.repetition("?"),
            '{' => self.counted(),
            '(' => self.open(),
            '|' | '^' => self.put(next, After::Start),
            _ => self.put(next, After::Atom),
        }
    }

    fn put(&mut self, next: char, after: After) -> Result<(), String> {
        self.text.push(next);
        self.after = after;
        Ok(())
    }

    fn repetition(&mut self, operator: &str) -> Result<(), String> {
        if matches!(self.after, After::Repetition | After::LazyRepetition) {
            return Err(format!("invalid nested repetition operator {operator}"));
        }
        self.text.push_str(operator);
        self.after = After::Repetition;
        Ok(())
    }

    /// `{` begins a repetition only if digits and `}` follow; otherwise it stands for itself.
    fn counted(&mut self) -> Result<(), String> {
        let ahead: String = self.rest.clone().take_while(|next| *next != '}').collect();
        let closes = self.rest.clone().any(|next| next == '}');
        let (least, most) = ahead.split_once(',').unwrap_or((&ahead, &ahead));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !closes || !is_number(least) || !(most.is_empty() || is_number(most)) {
            self.text.push_str(r"\{");
            self.after = After::Atom;
            return Ok(());
        }
        let is_small = |text: &str| text.parse().is_ok_and(|count: u32| count <= REPEAT_MAX);
        if !is_small(least) || !(most.is_empty() || is_small(most)) {
            return Err(format!(
                "a repetition may have at most {REPEAT_MAX} times, not {{{ahead}}}"
            ));
        }
        for _ in 0..=ahead.chars().count() {
            self.rest.next();
        }
        self.repetition(&format!("{{{ahead}}}"))
    }

    fn open(&mut self) -> Result<(), String> {
        self.text.push('(');
        self.after = After::Start;
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.text.push('?');
        let flags: String = self.rest.clone().take_while(char::is_ascii_alphabetic).collect();
        let is_named = self.rest.peek().is_some_and(|next| matches!(next, 'P' | '<'));
        match flags.chars().find(|flag| !is_named && !"imsU".contains(*flag)) {
            Some(flag) => Err(format!("unknown flag {flag}")),
            None => {
                // What follows is copied up to where the group's content begins.
                while let Some(next) = self.rest.next_if(|next| !matches!(next, ':' | '>' | ')')) {
                    self.text.push(next);
                }
                self.text.extend(self.rest.next());
                Ok(())
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.rest.next() {
            None => Err("the expression ends with a backslash".to_owned()),
            Some('Q') => {
                self.quoted();
                Ok(())
            }
            // Word boundaries for the crate, the characters themselves for RE2/J.
            Some(next @ ('<' | '>')) => self.put(next, After::Atom),
            Some(next) => {
                self.text.push('\\');
                self.put(next, After::Atom)
            }
        }
    }

    /// Everything up to `\E` stands for itself.
    fn quoted(&mut self) {
        let mut quoted = String::new();
        while let Some(next) = self.rest.next() {
            if next == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            quoted.push(next);
        }
        self.text.push_str(&regex::escape(&quoted));
        if !quoted.is_empty() {
            self.after = After::Atom;
        }
    }

    /// In a class `[`, `&&` and `~~` are text; for the crate they are operators.
    fn class(&mut self) -> Result<(), String> {
        self.text.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.text.push('^');
        }
        let mut is_first = true;
        while let Some(next) = self.rest.next() {
            match next {
                ']' if !is_first => return self.put(']', After::Atom),
                ']' => self.text.push_str(r"\]"),
                '[' if self.rest.peek() == Some(&':') => self.named_class(),
                '[' | '&' | '~' => self.text.extend(['\\', next]),
                '-' if self.rest.peek() == Some(&'-') => return Err("a range ends with -".to_owned()),
                '\\' => {
                    self.text.push('\\');
                    self.text.extend(self.rest.next());
                }
                _ => self.text.push(next),
            }
            is_first = false;
        }
        Err("a class is not closed".to_owned())
    }

    /// `[:alpha:]`.
    fn named_class(&mut self) {
        self.text.push('[');
        for next in self.rest.by_ref() {
            self.text.push(next);
            if next == ']' {
                break;
            }
        }
    }
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
        ] {
            assert!(compile(expression).is_err(), "{expression}");
        }
    }
}
