//! `sasl.jaas.config`: one entry of a JAAS file,
//! `org.apache…LoginModule required username="…" password="…";`.

use std::collections::BTreeMap;

/// A login module and its options.
pub(super) struct Login {
    pub module: String,
    pub options: BTreeMap<String, String>,
}

/// - Shape: module, flag, then `key=value` pairs and a semicolon; values are words or quoted with
///   `"` or `'`, with backslash escapes as in Java's StreamTokenizer; `//` and `/* */` are
///   comments. More than one entry is an error, as in Kafka.
/// - Errors: what is missing; never the text itself, which contains a password.
pub(super) fn parse(text: &str) -> Result<Login, &'static str> {
    let mut tokens = Tokens { rest: text };
    let module = match tokens.next()? {
        Some(Token::Word(word)) => word,
        _ => return Err("Login module not specified in JAAS config"),
    };
    match tokens.next()? {
        Some(Token::Word(flag)) if is_flag(&flag) => {}
        Some(Token::Word(_)) => {
            return Err(
                "Login module control flag is none of required, requisite, sufficient and optional in JAAS config",
            );
        }
        _ => return Err("Login module control flag not specified in JAAS config"),
    }
    let mut options = BTreeMap::new();
    loop {
        match tokens.next()? {
            Some(Token::Sign(';')) => break,
            Some(Token::Word(key)) => {
                if tokens.next()? != Some(Token::Sign('=')) {
                    return Err("Value not specified for key in JAAS config");
                }
                match tokens.next()? {
                    Some(Token::Word(value)) => options.insert(key, value),
                    _ => return Err("Value not specified for key in JAAS config"),
                };
            }
            Some(Token::Sign(_)) => return Err("unexpected sign in JAAS config"),
            None => return Err("JAAS config entry not terminated by semi-colon"),
        }
    }
    match tokens.next()? {
        None => Ok(Login { module, options }),
        Some(_) => Err("JAAS config property contains more than one login module"),
    }
}

fn is_flag(word: &str) -> bool {
    ["required", "requisite", "sufficient", "optional"]
        .iter()
        .any(|flag| flag.eq_ignore_ascii_case(word))
}

#[derive(PartialEq)]
enum Token {
    Word(String),
    Sign(char),
}

struct Tokens<'a> {
    rest: &'a str,
}

impl Tokens<'_> {
    fn next(&mut self) -> Result<Option<Token>, &'static str> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if matches!(first, '"' | '\'') {
            return self.quoted(first).map(|word| Some(Token::Word(word)));
        }
        let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '=' | '"' | '\'');
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        if length == 0 {
            self.rest = &self.rest[first.len_utf8()..];
            return Ok(Some(Token::Sign(first)));
        }
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(Some(Token::Word(word.to_owned())))
    }

    fn skip_blanks(&mut self) -> Result<(), &'static str> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                let (_, rest) = comment
                    .split_once("*/")
                    .ok_or("comment without end in JAAS config")?;
                self.rest = rest;
            } else {
                return Ok(());
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        let mut word = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.rest = &self.rest[1 + index + 1..];
                    return Ok(word);
                }
                '\n' | '\r' => break,
                '\\' => match characters.next() {
                    Some((_, escaped)) => word.push(unescaped(escaped)),
                    None => break,
                },
                _ => word.push(character),
            }
        }
        Err("quotation mark without end in JAAS config")
    }
}

fn unescaped(character: char) -> char {
    match character {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'f' => '\x0c',
        'b' => '\x08',
        other => other,
    }
}
