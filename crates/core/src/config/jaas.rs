//! `sasl.jaas.config` of a broker: one entry of a JAAS file,
//! `org.apache…PlainLoginModule required user_alice="…" user_bob="…";`.
//!
//! Java reads it with a StreamTokenizer whose rules surprise: an unquoted number is no word, and
//! `1abc` is a number followed by a word. What Java refuses is refused here; a quotation mark
//! without an end, which Java closes silently, is refused as well.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// A login module and its options.
pub(super) struct JaasEntry {
    pub module: String,
    pub options: BTreeMap<String, String>,
}

impl JaasEntry {
    /// - Errors: what is wrong, never the text itself, which contains passwords.
    pub(super) fn parse(text: &str) -> Result<JaasEntry, &'static str> {
        let mut tokens = Tokens {
            rest: text.chars().peekable(),
        };
        let Some(Token::Word(module)) = tokens.next()? else {
            return Err("the login module is missing");
        };
        match tokens.next()? {
            Some(Token::Word(flag)) if is_flag(&flag) => {}
            _ => {
                return Err(
                    "the login module must be followed by required, requisite, sufficient or optional",
                );
            }
        }
        let mut options = BTreeMap::new();
        loop {
            match tokens.next()? {
                Some(Token::Sign(';')) => break,
                Some(Token::Word(key)) => {
                    let is_set = tokens.next()? == Some(Token::Sign('='));
                    let Some(Token::Word(value)) = tokens.next()?.filter(|_| is_set) else {
                        return Err("an option must be a word, =, and a value; \
                             a value with digits first, or with other signs, must be quoted");
                    };
                    options.insert(key, value);
                }
                Some(_) => return Err("an option must begin with its name"),
                None => return Err("the entry must end with a semicolon"),
            }
        }
        match tokens.next()? {
            None => Ok(JaasEntry { module, options }),
            Some(_) => Err("there is more than one login module"),
        }
    }
}

fn is_flag(word: &str) -> bool {
    ["required", "requisite", "sufficient", "optional"]
        .iter()
        .any(|flag| flag.eq_ignore_ascii_case(word))
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Number,
    Sign(char),
}

struct Tokens<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Tokens<'_> {
    fn next(&mut self) -> Result<Option<Token>, &'static str> {
        self.skip_blanks()?;
        let Some(first) = self.rest.next() else {
            return Ok(None);
        };
        let token = match first {
            '"' | '\'' => Token::Word(self.quoted(first)?),
            '0'..='9' | '.' => self.number(),
            '-' if self.rest.peek().is_some_and(|next| is_numeric(*next)) => self.number(),
            // Java pushes a minus without a number back as a sign of its own.
            '-' => Token::Sign('-'),
            _ if is_word(first) => {
                let mut word = String::from(first);
                while let Some(next) = self.rest.next_if(|next| is_word(*next) || is_numeric(*next)) {
                    word.push(next);
                }
                Token::Word(word)
            }
            sign => Token::Sign(sign),
        };
        Ok(Some(token))
    }

    /// Skips blanks and comments: from `/*` to `*/`, and from any other slash to the end of the
    /// line.
    fn skip_blanks(&mut self) -> Result<(), &'static str> {
        loop {
            while self.rest.next_if(|next| *next <= ' ').is_some() {}
            if self.rest.next_if_eq(&'/').is_none() {
                return Ok(());
            }
            if self.rest.next_if_eq(&'*').is_none() {
                while self.rest.next_if(|next| !is_line_end(*next)).is_some() {}
                continue;
            }
            let mut last = ' ';
            loop {
                let next = self.rest.next().ok_or("a comment has no end")?;
                if (last, next) == ('*', '/') {
                    break;
                }
                last = next;
            }
        }
    }

    /// One dot at most belongs to a number.
    fn number(&mut self) -> Token {
        while self.rest.next_if(|next| is_numeric(*next)).is_some() {}
        Token::Number
    }

    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        const OPEN: &str = "a quotation mark has no end";
        let mut word = String::new();
        loop {
            match self.rest.next().filter(|next| !is_line_end(*next)).ok_or(OPEN)? {
                '\\' => {
                    let escaped = self.rest.next().ok_or(OPEN)?;
                    word.push(self.unescaped(escaped));
                }
                character if character == quote => return Ok(word),
                character => word.push(character),
            }
        }
    }

    /// Java's escapes, of which `\ooo` has up to three octal digits, the first of three at most 3.
    fn unescaped(&mut self, character: char) -> char {
        let Some(mut value) = character.to_digit(8) else {
            return match character {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                other => other,
            };
        };
        let digits_max = if value <= 3 { 3 } else { 2 };
        for _ in 1..digits_max {
            let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) else {
                break;
            };
            self.rest.next();
            value = value * 8 + digit;
        }
        char::from_u32(value).expect("three octal digits are at most 255")
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphabetic() || matches!(character, '-' | '_' | '$') || character >= '\u{a0}'
}

fn is_numeric(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Vec<(String, String)>, &'static str> {
        JaasEntry::parse(&format!("a.B required {text};")).map(|entry| entry.options.into_iter().collect())
    }

    #[track_caller]
    fn check_value(text: &str, expected: &str) {
        assert_eq!(
            options(&format!("k={text}")),
            Ok(vec![("k".to_owned(), expected.to_owned())]),
            "{text}"
        );
    }

    #[track_caller]
    fn check_error(text: &str, part: &str) {
        let problem = JaasEntry::parse(text).err().unwrap_or("read without complaint");
        assert!(problem.contains(part), "{text}: {problem}");
        assert!(!problem.contains("secret"));
    }

    #[test]
    fn an_entry_is_a_module_a_flag_and_options() {
        let text = "org.apache.kafka.common.security.plain.PlainLoginModule\n  REQUIRED // of us all\n\
                    user_alice = \"alice-secret\" /* and \n another */ user_bob='b\"ob';";
        let entry = JaasEntry::parse(text).unwrap();
        assert_eq!(
            entry.module,
            "org.apache.kafka.common.security.plain.PlainLoginModule"
        );
        let pairs: Vec<(&str, &str)> = entry.options.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(pairs, [("user_alice", "alice-secret"), ("user_bob", "b\"ob")]);
        assert!(JaasEntry::parse("a.B optional;").unwrap().options.is_empty());
    }

    // Each of these, and of those refused below, was given to JaasContext of Apache Kafka 4.3.0 on
    // Java 17, which reads and refuses the same.
    #[test]
    fn values_are_words_or_quoted_with_javas_escapes() {
        check_value("word", "word");
        check_value("a1.b-c_d$", "a1.b-c_d$");
        check_value("\"\"", "");
        check_value(r#""a\"b\\c""#, "a\"b\\c");
        check_value(r#""\t\n\101\60\7x\4000""#, "\t\nA0\u{7}x\u{20}00");
        check_value(r#""\q""#, "q");
        check_value("'it\"s'", "it\"s");
        check_value("\"schlüssel // no comment\"", "schlüssel // no comment");
        check_value("ünquoted", "ünquoted");
    }

    #[test]
    fn what_java_refuses_is_refused() {
        for value in ["12", "1abc", "-5", ".", "=", "", "a=", "pass!word"] {
            check_error(&format!("a.B required k={value};"), "");
            assert!(options(&format!("k={value}")).is_err(), "{value}");
        }
        check_error("", "login module is missing");
        check_error("12 required;", "login module is missing");
        check_error("a.B;", "must be followed by");
        check_error("a.B secret k=v;", "must be followed by");
        check_error("a.B required user_a=\"secret\"", "semicolon");
        check_error("a.B required user_a \"secret\";", "an option must be");
        check_error("a.B required = secret;", "begin with its name");
        check_error("a.B required; c.D required;", "more than one");
        check_error("a.B required k=\"secret;", "quotation mark");
        check_error("a.B required k=\"secret\n\";", "quotation mark");
        check_error("a.B required k=\"secret\\", "quotation mark");
        check_error("a.B required /* secret;", "comment");
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let text = "a.B required k=\"v\\101\\\"\" 'x' /* c */ -1.5 // d\n;";
        for end in 0..text.len() {
            let _ = JaasEntry::parse(&text[..end]);
            let _ = JaasEntry::parse(&text[end..]);
        }
    }
}
