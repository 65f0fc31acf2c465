//! Subscriptions by regular expression: an expression finds the topics whose whole name it matches.
//!
//! Apache Kafka uses RE2/J. The crate `regex` has its linear time and, after a translation, its
//! syntax. Topic names are ASCII, so Unicode plays no part.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use regex::bytes::{Regex, RegexBuilder};

use crate::access::acl::Operation;
use crate::group::classic::Group;
use crate::group::turn::Turn;
use crate::image::topics::TopicsImage;

use super::re2::translate;
use super::record::{ConsumerRecord, ResolvedRegex};
use super::request::{ConsumerHeartbeat, HeartbeatRefusal};

/// Bounds the memory of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;

/// When topics appear, expressions of one group are resolved again at most this often.
const RESOLVE_INTERVAL_MS: u64 = 10_000;

/// Compiles an expression; it must match a whole name.
pub fn compile(expression: &str) -> Result<Regex, String> {
    let expression = translate(expression)?;
    let pattern = format!(r"\A(?:{expression})\z");
    // Alone first: the parentheses around it must not complete a broken one.
    let build = |pattern: &str| {
        RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| error.to_string())
    };
    build(&expression)?;
    build(&pattern)
}

impl Group {
    /// Refuses a heartbeat with an expression that cannot be read.
    pub(super) fn check_regex(&self, request: &ConsumerHeartbeat<'_>) -> Result<(), HeartbeatRefusal> {
        let expression = request.regex.unwrap_or("");
        let consumer = self.consumer.as_ref();
        if expression.is_empty() || consumer.is_some_and(|known| known.regexes.contains_key(expression)) {
            return Ok(());
        }
        compile(expression).map(drop).map_err(|problem| {
            let message = format!("SubscribedTopicRegex {expression:?}: {problem}");
            HeartbeatRefusal::new(ErrorCode::InvalidRegularExpression, message)
        })
    }

    /// Resolves new expressions, and all of them when topics have changed or the refresh interval
    /// has passed; returns whether that changes what members subscribe to.
    pub(super) fn update_regexes(&mut self, turn: &mut Turn<'_>, request: &ConsumerHeartbeat<'_>) -> bool {
        self.drop_unused_regexes(turn);
        let refresh_ms = turn.config.consumer.regex_refresh_ms;
        let now = turn.now;
        let Some(consumer) = &mut self.consumer else {
            return false;
        };
        let members = consumer.members.values();
        let used: BTreeSet<Arc<str>> = members
            .filter_map(|member| member.metadata.regex.clone())
            .collect();
        if used.is_empty() {
            return false;
        }
        let is_due = consumer.resolved.as_ref().is_none_or(|(at, topics)| {
            let is_same = std::ptr::eq(topics.as_ptr(), Arc::as_ptr(&request.topics));
            let interval_ms = if is_same { refresh_ms } else { RESOLVE_INTERVAL_MS };
            at.after_ms(interval_ms) <= now.moment
        });
        if is_due {
            consumer.resolved = Some((now.moment, Arc::downgrade(&request.topics)));
        }
        let mut found = Vec::new();
        for expression in used {
            let known = consumer.regexes.get(&expression);
            if known.is_some() && !is_due {
                continue;
            }
            let topics = find(&expression, request);
            if known.is_none_or(|known| known.topics != topics) {
                found.push((expression, topics));
            }
        }
        let has_changed = !found.is_empty();
        for (expression, topics) in found {
            let resolved = ResolvedRegex {
                topics,
                version: 0,
                timestamp: now.timestamp,
            };
            self.record_consumer(turn, ConsumerRecord::Regex(expression, Some(Arc::new(resolved))));
        }
        has_changed
    }

    pub(super) fn drop_unused_regexes(&mut self, turn: &mut Turn<'_>) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        let is_used = |expression: &&Arc<str>| {
            let mut members = consumer.members.values();
            members.any(|member| member.metadata.regex.as_ref() == Some(*expression))
        };
        let unused: Vec<Arc<str>> = consumer
            .regexes
            .keys()
            .filter(|regex| !is_used(regex))
            .cloned()
            .collect();
        for expression in unused {
            self.record_consumer(turn, ConsumerRecord::Regex(expression, None));
        }
    }
}

/// Returns the topics that the expression finds and the client may describe. An expression that
/// Apache Kafka stored and this broker cannot read finds none.
fn find(expression: &str, request: &ConsumerHeartbeat<'_>) -> BTreeSet<Arc<str>> {
    let Ok(regex) = compile(expression) else {
        return BTreeSet::new();
    };
    let topics: &TopicsImage = &request.topics;
    topics
        .iter()
        .map(|topic| &topic.name)
        .filter(|name| regex.is_match(name.as_bytes()))
        .filter(|name| request.caller.may_on_topic(Operation::Describe, name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_whole_names() {
        let regex = compile("orders|bills-[0-9]+").unwrap();
        for (name, is_match) in [
            ("orders", true),
            ("orders-2", false),
            ("my-orders", false),
            ("bills-17", true),
            ("bills-", false),
        ] {
            assert_eq!(regex.is_match(name.as_bytes()), is_match, "{name}");
        }
    }

    #[test]
    fn an_expression_that_only_our_parentheses_would_complete_is_refused() {
        for broken in ["a)|(?:b", "(", "[", "a**b(", "x{2,1}", "(?=look)", r"(a)\1"] {
            assert!(compile(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_expression_may_list_a_thousand_names() {
        let names: Vec<String> = (0..1_000)
            .map(|number| format!("team-{number}.orders.v1"))
            .collect();
        let regex = compile(&names.join("|")).unwrap();
        assert!(regex.is_match(b"team-999.orders.v1"));
    }

    #[test]
    fn an_expression_that_would_take_much_memory_is_refused() {
        assert!(compile("((a{1000}){1000}){1000}").is_err());
    }
}
