//! Lines of keys in a YAML file, which messages about a value need and the typed scenario does not
//! keep.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A document as written, with the lines of its keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    node: Node,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Node {
    #[default]
    Nothing,
    Text(String),
    List(Vec<(u64, Tree)>),
    Map(Vec<(u64, String, Tree)>),
}

impl Tree {
    /// - Shape: `Nothing` for invalid YAML; reading the typed value reports why.
    pub fn read(text: &str) -> Tree {
        serde_saphyr::from_str(text).unwrap_or_default()
    }

    /// The line of the deepest existing part of `path`; members of lists are found by their `name`.
    pub fn line(&self, path: &[&str]) -> Option<u64> {
        let (first, rest) = path.split_first()?;
        let (line, next) = match &self.node {
            Node::Map(entries) => entries
                .iter()
                .find(|(_, key, _)| key == first)
                .map(|(line, _, value)| (*line, value))?,
            Node::List(members) => members
                .iter()
                .enumerate()
                .find(|(index, (_, member))| member.is_named(first) || index.to_string() == *first)
                .map(|(_, (line, member))| (*line, member))?,
            Node::Nothing | Node::Text(_) => return None,
        };
        next.line(rest).or(Some(line))
    }

    /// The path of the key `key` on line `line`.
    pub fn path_of(&self, key: &str, line: u64) -> Option<String> {
        match &self.node {
            Node::Map(entries) => entries.iter().find_map(|(at, name, value)| {
                if *at == line && name == key {
                    return Some(name.clone());
                }
                Some(format!("{name}.{}", value.path_of(key, line)?))
            }),
            Node::List(members) => members.iter().enumerate().find_map(|(index, (_, member))| {
                let below = member.path_of(key, line)?;
                Some(format!("{}.{below}", member.name().unwrap_or(&index.to_string())))
            }),
            Node::Nothing | Node::Text(_) => None,
        }
    }

    fn is_named(&self, name: &str) -> bool {
        self.name() == Some(name)
    }

    fn name(&self) -> Option<&str> {
        let Node::Map(entries) = &self.node else {
            return None;
        };
        let (_, _, value) = entries.iter().find(|(_, key, _)| key == "name")?;
        match &value.node {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        let node = deserializer.deserialize_any(AnyNode)?;
        Ok(Tree { node })
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(member) = members.next_element::<Spanned<Tree>>()? {
            list.push((member.referenced.line(), member.value));
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, Tree>()? {
            map.push((key.referenced.line(), key.value, value));
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
name: example
producers:
  - name: load
    settings:
      linger.ms: 5
  - {name: other, rate: 7}
";

    #[test]
    fn lines_of_keys_are_found() {
        let tree = Tree::read(TEXT);
        assert_eq!(tree.line(&["name"]), Some(1));
        assert_eq!(tree.line(&["producers", "load", "settings"]), Some(4));
        assert_eq!(
            tree.line(&["producers", "load", "settings", "linger.ms"]),
            Some(5)
        );
        assert_eq!(tree.line(&["producers", "1", "rate"]), Some(6));
        assert_eq!(
            tree.line(&["producers", "load", "rate"]),
            Some(3),
            "where it would stand"
        );
        assert_eq!(tree.line(&["consumers"]), None);
    }

    #[test]
    fn a_key_on_a_line_has_a_path() {
        let tree = Tree::read(TEXT);
        assert_eq!(
            tree.path_of("linger.ms", 5).as_deref(),
            Some("producers.load.settings.linger.ms")
        );
        assert_eq!(tree.path_of("rate", 6).as_deref(), Some("producers.other.rate"));
        assert_eq!(tree.path_of("rate", 5), None);
    }

    #[test]
    fn invalid_yaml_has_no_lines() {
        assert_eq!(Tree::read("a: [").line(&["a"]), None);
    }
}
