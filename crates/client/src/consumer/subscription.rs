//! A consumer's subscription: topic names, or a pattern.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use regex::Regex;

use crate::error::Error;
use crate::metadata::snapshot::Snapshot;

/// What a consumer subscribes to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Subscription {
    /// Nothing: the application assigns partitions itself, or has not decided.
    #[default]
    None,
    /// These names.
    Topics(BTreeSet<Arc<str>>),
    /// Every topic whose name matches.
    Pattern(TopicPattern),
}

impl Subscription {
    /// A subscription to these names; none is `Subscription::None`.
    pub fn topics<I, T>(names: I) -> Subscription
    where
        I: IntoIterator<Item = T>,
        T: Into<Arc<str>>,
    {
        Subscription::Topics(names.into_iter().map(Into::into).collect())
    }

    /// Whether nothing is subscribed to.
    pub fn is_none(&self) -> bool {
        matches!(self, Subscription::None)
    }

    /// The topics that it means in this snapshot. Named topics are included even if the cluster
    /// does not have them.
    pub fn resolve(&self, snapshot: &Snapshot, exclude_internal_topics: bool) -> BTreeSet<Arc<str>> {
        match self {
            Subscription::None => BTreeSet::new(),
            Subscription::Topics(topics) => topics.clone(),
            Subscription::Pattern(pattern) => snapshot
                .topics
                .values()
                .filter(|topic| !(exclude_internal_topics && topic.is_internal))
                .filter(|topic| pattern.matches(&topic.name))
                .map(|topic| topic.name.clone())
                .collect(),
        }
    }
}

/// A regular expression that a topic's whole name must match, as in Kafka.
#[derive(Clone)]
pub struct TopicPattern {
    /// `None`: only the broker knows what it means.
    regex: Option<Regex>,
    text: Arc<str>,
}

impl TopicPattern {
    /// - Errors: `InvalidArgument` for text that is not a regular expression. Look-around and back
    ///   references, which Java's patterns have, are not supported.
    pub fn parse(text: &str) -> Result<TopicPattern, Error> {
        let regex = Regex::new(&format!("^(?:{text})$")).map_err(|error| Error::InvalidArgument {
            message: format!("{text} is not a valid topic pattern: {error}").into(),
        })?;
        Ok(TopicPattern {
            regex: Some(regex),
            text: text.into(),
        })
    }

    /// For `group.protocol=consumer`: the broker matches, by the syntax of RE2/J (KIP-848), and
    /// refuses what is no expression.
    pub(super) fn of_broker(text: &str) -> TopicPattern {
        TopicPattern {
            regex: None,
            text: text.into(),
        }
    }

    /// Whether the whole name matches; never where only the broker knows.
    pub fn matches(&self, topic: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(topic))
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicPattern({})", self.text)
    }
}
