//! `ssl.principal.mapping.rules`: from the subject of a client's certificate to the name of its
//! principal (KIP-371).

use super::java_regex::Replacing;

/// The rules in order; the first that applies decides.
#[derive(Debug)]
pub struct PrincipalRules(Vec<Rule>);

#[derive(Debug)]
enum Rule {
    /// `DEFAULT`: the subject as it is.
    Default,
    Mapping {
        replacing: Replacing,
        case: Case,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    AsItIs,
    Lower,
    Upper,
}

impl PrincipalRules {
    /// Reads `RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas. Inside a rule a
    /// backslash takes its meaning from a slash, and a comma separates nothing.
    ///
    /// - Errors: which rule cannot be used, and why.
    pub fn parse(text: &str) -> Result<PrincipalRules, String> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = match rest.strip_prefix("RULE:") {
                Some(body) => mapping(body)?,
                None => {
                    let end = rest.find(',').unwrap_or(rest.len());
                    let word = rest[..end].trim();
                    if word != "DEFAULT" && !word.is_empty() {
                        return Err(format!(
                            "{word} is neither DEFAULT nor RULE:pattern/replacement/[LU]"
                        ));
                    }
                    ((word == "DEFAULT").then_some(Rule::Default), &rest[end..])
                }
            };
            rules.extend(rule);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.is_empty() => after,
                None => return Err(format!("{after} follows a rule without a comma")),
            };
        }
        if rules.is_empty() {
            return Err("has no rule: no client with a certificate could be admitted".to_owned());
        }
        Ok(PrincipalRules(rules))
    }

    /// The name for a subject; `None` when no rule applies.
    pub fn name(&self, subject: &str) -> Option<String> {
        self.0.iter().find_map(|rule| match rule {
            Rule::Default => Some(subject.to_owned()),
            Rule::Mapping { replacing, case } => {
                let name = replacing.apply(subject)?;
                Some(match case {
                    Case::AsItIs => name,
                    Case::Lower => name.to_lowercase(),
                    Case::Upper => name.to_uppercase(),
                })
            }
        })
    }
}

/// Reads a rule behind `RULE:`; returns it and what follows it.
fn mapping(body: &str) -> Result<(Option<Rule>, &str), String> {
    let unfinished = || format!("RULE:{body} is not RULE:pattern/replacement/[LU]");
    let (pattern, rest) = until_slash(body).ok_or_else(unfinished)?;
    let (replacement, rest) = until_slash(rest).ok_or_else(unfinished)?;
    let (case, rest) = match rest.as_bytes().first() {
        Some(b'L') => (Case::Lower, &rest[1..]),
        Some(b'U') => (Case::Upper, &rest[1..]),
        _ => (Case::AsItIs, rest),
    };
    let replacing = Replacing::new(pattern, replacement)
        .map_err(|problem| format!("RULE:{pattern}/{replacement}/: {problem}"))?;
    Ok((Some(Rule::Mapping { replacing, case }), rest))
}

/// Splits at the first slash that no backslash precedes.
fn until_slash(text: &str) -> Option<(&str, &str)> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next()?;
            }
            '/' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: &str, subject: &str, expected: Option<&str>) {
        let rules = PrincipalRules::parse(rules).unwrap();
        assert_eq!(rules.name(subject).as_deref(), expected, "{subject}");
    }

    #[track_caller]
    fn check_refused(rules: &str, part: &str) {
        let problem = PrincipalRules::parse(rules).unwrap_err();
        assert!(problem.contains(part), "{rules}: {problem}");
    }

    /// The example in Apache Kafka's documentation.
    const DOCUMENTED: &str = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, \
        RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, \
        RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT";

    #[test]
    fn the_documented_rules_give_the_documented_names() {
        check(
            DOCUMENTED,
            "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            Some("serviceuser"),
        );
        check(
            DOCUMENTED,
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            Some("adminuser@admin"),
        );
        check(DOCUMENTED, "OU=x,cn=Some.One+UID=7", Some("some.one"));
        check(DOCUMENTED, "OU=x", Some("OU=x"));
    }

    #[test]
    fn the_first_rule_that_matches_the_whole_subject_decides() {
        check("RULE:CN=a/x/,RULE:CN=.*/y/", "CN=a", Some("x"));
        check("RULE:CN=a/x/,RULE:CN=.*$/y/", "CN=ab", Some("y"));
        check("RULE:CN=a/x/", "CN=ab", None);
        check("DEFAULT,RULE:.*/y/", "CN=ab", Some("CN=ab"));
        check("RULE:CN=(.*)/$1/U", "CN=straße", Some("STRASSE"));
    }

    #[test]
    fn commas_and_escaped_slashes_belong_to_their_rule() {
        check(
            r"RULE:CN=(.*),OU=a\/b/$1\/x,y/L, DEFAULT",
            "CN=Me,OU=a/b",
            Some("me/x,y"),
        );
        check("RULE:a,DEFAULT/x/ , DEFAULT", "a,DEFAULT", Some("x"));
        check("DEFAULT,", "CN=a", Some("CN=a"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        check_refused("DEFAULTS", "DEFAULTS is neither");
        check_refused("RULE:a/b", "is not RULE:pattern/replacement/");
        check_refused("RULE:a", "is not RULE:pattern/replacement/");
        check_refused(r"RULE:a/b\/", "is not RULE:pattern/replacement/");
        check_refused("RULE:a/b/X", "X follows a rule");
        check_refused("RULE:a/b/LU", "U follows a rule");
        check_refused("default", "default is neither");
        // Kafka takes these, and then refuses every certificate.
        check_refused("  ", "has no rule");
        check_refused(" , ", "has no rule");
        check_refused("RULE:(?=a)a/b/", "RULE:(?=a)a/b/: look-around");
    }
}
