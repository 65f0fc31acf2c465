//! Metric names as Java's tools print them: `producer-node-metrics:request-rate:{client-id=p,
//! node-id=node-1}`.

use ottla_client::machine::metrics::pushed_name;
use serde_json::Value;

use super::super::otlp::{Labels, NodeLabel};

/// A printed name, in the form in which it would have been pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MetricKey {
    /// `org.apache.kafka.producer.node.request.rate`.
    pub name: String,
    /// Present on all metrics.
    pub client_id: Option<String>,
    node: Option<String>,
    topic: Option<String>,
    partition: Option<i32>,
}

impl MetricKey {
    /// Returns `None` if it is not a metric's name.
    pub fn parse(key: &str) -> Option<MetricKey> {
        let mut key_parts = key.trim().splitn(3, ':');
        let group = key_parts.next()?.trim();
        let (name, tags) = if group.starts_with("org.apache.kafka.") || group.starts_with("ottla.") {
            let tags = key_parts.next();
            (group.to_owned(), tags)
        } else {
            let name = key_parts.next()?.trim();
            let is_word = |text: &str| {
                !text.is_empty()
                    && text
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            };
            if !is_word(group) || !is_word(name) {
                return None;
            }
            (pushed_name(group, name), key_parts.next())
        };
        let mut found = MetricKey {
            name,
            ..MetricKey::default()
        };
        for (tag, value) in tags_of(tags.unwrap_or_default())? {
            match tag.as_str() {
                "client-id" => found.client_id = Some(value),
                "node-id" | "node_id" => found.node = Some(value),
                "topic" => found.topic = Some(value),
                "partition" => found.partition = value.parse().ok(),
                _ => {}
            }
        }
        Some(found)
    }

    pub fn labels(&self) -> Labels<'_> {
        Labels {
            node: self.node.as_deref().map(NodeLabel::Text),
            topic: self.topic.as_deref(),
            partition: self.partition,
        }
    }

    /// The same metric under another name.
    pub fn renamed(&self, name: String) -> MetricKey {
        MetricKey { name, ..self.clone() }
    }
}

/// Reads `{a=b, c=d}`, or the same as JSON; empty when there are none.
fn tags_of(text: &str) -> Option<Vec<(String, String)>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    if inner.trim_start().starts_with('"') {
        let Ok(Value::Object(tags)) = serde_json::from_str(text) else {
            return None;
        };
        let as_text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        return Some(
            tags.into_iter()
                .map(|(tag, value)| (tag, as_text(value)))
                .collect(),
        );
    }
    let mut tags: Vec<(String, String)> = Vec::new();
    for part in inner.split(", ").filter(|part| !part.is_empty()) {
        match (part.split_once('='), tags.last_mut()) {
            (Some((tag, value)), _) => tags.push((tag.to_owned(), value.to_owned())),
            // A client id may contain a comma.
            (None, Some((_, value))) => *value = format!("{value}, {part}"),
            (None, None) => return None,
        }
    }
    Some(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_may_be_in_either_form_or_missing() {
        let java = "producer-node-metrics:request-rate:{client-id=a, b, node-id=node-1}";
        let json = "producer-node-metrics:request-rate:{\"node-id\": \"node-1\", \"client-id\": \"a, b\"}";
        let key = MetricKey::parse(java).unwrap();
        assert_eq!(key, MetricKey::parse(json).unwrap());
        assert_eq!(key.name, "org.apache.kafka.producer.node.request.rate");
        assert_eq!(key.client_id.as_deref(), Some("a, b"));
        assert_eq!(key.labels().node, Some(NodeLabel::Text("node-1")));
        let plain = MetricKey::parse("producer-metrics:io-ratio").unwrap();
        assert_eq!(plain.labels(), Labels::default());
    }

    #[test]
    fn partitions_and_pushed_names_are_read() {
        let key =
            MetricKey::parse("consumer-fetch-manager-metrics:records-lag:{partition=11, topic=t}").unwrap();
        assert_eq!(
            (key.labels().topic, key.labels().partition),
            (Some("t"), Some(11))
        );
        let pushed = MetricKey::parse("org.apache.kafka.producer.io.ratio").unwrap();
        assert_eq!(pushed.name, "org.apache.kafka.producer.io.ratio");
    }

    #[test]
    fn other_texts_are_not_metric_names() {
        for text in [
            "",
            "Metric Name",
            "a b:c",
            "Error: it failed",
            "producer-metrics:x:{",
        ] {
            assert_eq!(MetricKey::parse(text), None, "{text}");
        }
    }
}
