//! An answer as text that can be compared: without what is a broker's own, lists in order.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Fields that may differ: messages, times, and the interval of heartbeats, which Ottla shortens
/// while partitions change hands.
static OWN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"\b(error_message): (?:None|Some\("(?:[^"\\]|\\.)*"\))|"#,
        r"\b(throttle_time_ms|heartbeat_interval_ms|log_append_time_ms|last_timestamp|session_id): -?\d+|",
        // Positive: the transaction has begun.
        r"\b(transaction_start_time_ms): [1-9]\d*|",
        // Apache Kafka answers -1 with an error.
        r"\b(log_start_offset): -?\d+",
    ))
    .expect("the pattern is one")
});

/// An id that a broker has drawn for a member that does not know it yet.
static DRAWN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[ki]\d-[0-9a-f-]{36}").expect("the pattern is one"));

/// - `names`: a broker's ids, and what they are called in every broker's answers.
pub fn comparable(verbose: &str, names: &[(String, String)]) -> String {
    let is_own = |found: &Captures<'_>| {
        let name = found[0].split(':').next().unwrap_or_default();
        format!("{name}: _")
    };
    let mut text = OWN.replace_all(verbose, is_own).into_owned();
    for (id, name) in names {
        text = text.replace(id, name);
    }
    with_sorted_lists(&DRAWN.replace_all(&text, "<drawn>"))
}

/// Sorts the elements of every list, also within lists. The order of no list means anything to a
/// client.
fn with_sorted_lists(text: &str) -> String {
    let mut stack = vec![Open::default()];
    let mut is_string = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let is_in_list = stack.len() > 1;
        let top = stack.last_mut().expect("the text itself stays open");
        match character {
            '\\' if is_string => {
                top.element.push(character);
                top.element.extend(characters.next());
            }
            '"' => {
                is_string = !is_string;
                top.element.push(character);
            }
            _ if is_string => top.element.push(character),
            '[' => stack.push(Open::default()),
            ']' => {
                let list = stack.pop().expect("the loop saw its beginning").closed();
                let outer = stack.last_mut().expect("a list lies within the text");
                outer.element.push_str(&list);
            }
            ',' if top.depth == 0 && is_in_list => top.end_element(),
            _ => {
                top.depth += match character {
                    '(' | '{' => 1,
                    ')' | '}' => -1,
                    _ => 0,
                };
                top.element.push(character);
            }
        }
    }
    stack.swap_remove(0).element
}

#[derive(Default)]
struct Open {
    elements: Vec<String>,
    element: String,
    /// Parentheses and braces that are open within the element.
    depth: i32,
}

impl Open {
    fn end_element(&mut self) {
        let element = std::mem::take(&mut self.element);
        if !element.trim().is_empty() {
            self.elements.push(element.trim().to_owned());
        }
    }

    fn closed(mut self) -> String {
        self.end_element();
        self.elements.sort();
        format!("[{}]", self.elements.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_at_every_level() {
        let text = r#"A { b: [B { c: [3, 1], d: "x]," }, B { c: [], d: "a" }], e: Some([2, 1]) }"#;
        let sorted = r#"A { b: [B { c: [1, 3], d: "x]," }, B { c: [], d: "a" }], e: Some([1, 2]) }"#;
        assert_eq!(with_sorted_lists(text), sorted);
    }

    #[test]
    fn messages_and_ids_are_not_compared() {
        let names = [("liar-1".to_owned(), "<m1>".to_owned())];
        let text = r#"R { error_message: Some("a \"b\""), member_id: "liar-1", error_code: 25 }"#;
        let expected = r#"R { error_message: _, member_id: "<m1>", error_code: 25 }"#;
        assert_eq!(comparable(text, &names), expected);
    }
}
