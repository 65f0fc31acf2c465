//! Recognises a client's library: by the name that it gives to brokers, otherwise by how it writes
//! its metrics.

use super::super::otlp::{DataPoint, NodeLabel, Source};
use super::super::snapshot::Library;
use super::ottla;

/// Major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Finds the first `1.2.3` or `1.2` in the text.
    pub fn find(text: &str) -> Option<Version> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.')
            .find_map(|word| {
                let mut numbers = word.split('.').map(str::parse);
                let major = numbers.next()?.ok()?;
                let minor = numbers.next()?.ok()?;
                let patch = numbers.next().and_then(Result::ok).unwrap_or(0);
                Some(Version(major, minor, patch))
            })
    }
}

/// A client's library and its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Software {
    pub library: Library,
    pub version: Option<Version>,
}

/// What a payload reveals about its library.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    is_ottla: bool,
    node: Option<NodeLabel<'a>>,
    scope_name: &'a str,
    scope_version: &'a str,
}

impl<'a> Hints<'a> {
    pub(super) fn look_at(&mut self, source: &Source<'a>, point: &DataPoint<'a>) {
        self.is_ottla |= point.name.starts_with(ottla::PREFIX);
        self.node = point.labels.node.or(self.node);
        self.scope_name = source.scope_name;
        self.scope_version = source.scope_version;
    }

    fn library(&self) -> Library {
        // librdkafka puts its own name into the scope: `client#producer-1`.
        let is_librdkafka = ["#producer-", "#consumer-"]
            .iter()
            .any(|part| self.scope_name.contains(part));
        match self.node {
            _ if self.is_ottla => Library::Ottla,
            Some(NodeLabel::Dotted(_)) => Library::Librdkafka,
            _ if is_librdkafka => Library::Librdkafka,
            Some(NodeLabel::Number(_)) => Library::FranzGo,
            _ if self.scope_name == "kgo" => Library::FranzGo,
            Some(NodeLabel::Text(_)) => Library::Java,
            None => Library::Unknown,
        }
    }
}

impl Software {
    /// - `name`, `version`: as ApiVersions has them, such as `confluent-kafka-python`,
    ///   `2.16.1-librdkafka-2.16.0`.
    pub fn recognise(name: Option<&str>, version: Option<&str>, hints: &Hints<'_>) -> Software {
        let named = library_of(name.unwrap_or_default(), version.unwrap_or_default());
        let library = match named {
            Library::Unknown => hints.library(),
            known => known,
        };
        // A binding gives its own version first and librdkafka's after it.
        let own = version.unwrap_or_default();
        let own = own.split_once("librdkafka-").map_or(own, |(_, library)| library);
        let version = match library {
            // The scope has librdkafka's own version, whatever name a binding gives.
            Library::Librdkafka => Version::find(hints.scope_version).or(Version::find(own)),
            _ => Version::find(own).or(Version::find(hints.scope_version)),
        };
        Software { library, version }
    }
}

fn library_of(name: &str, version: &str) -> Library {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.contains(part);
    if has("rdkafka") || has("confluent-kafka") || version.contains("librdkafka") {
        Library::Librdkafka
    } else if name == "kgo" || has("franz") {
        Library::FranzGo
    } else if has("ottla") {
        Library::Ottla
    } else if has("java") {
        Library::Java
    } else {
        Library::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_recognised_by_their_own_and_their_bindings_names() {
        let cases = [
            ("apache-kafka-java", "4.3.0", Library::Java, Version(4, 3, 0)),
            ("librdkafka", "2.6.1", Library::Librdkafka, Version(2, 6, 1)),
            (
                "confluent-kafka-python",
                "2.16.1-librdkafka-2.16.0",
                Library::Librdkafka,
                Version(2, 16, 0),
            ),
            (
                "rdkafka-ruby",
                "0.21-librdkafka-2.8.0",
                Library::Librdkafka,
                Version(2, 8, 0),
            ),
            ("kgo", "v1.21.4", Library::FranzGo, Version(1, 21, 4)),
            ("ottla-client", "0.1.0", Library::Ottla, Version(0, 1, 0)),
        ];
        for (name, version, library, number) in cases {
            let found = Software::recognise(Some(name), Some(version), &Hints::default());
            assert_eq!(
                found,
                Software {
                    library,
                    version: Some(number)
                },
                "{name}"
            );
        }
    }

    #[test]
    fn an_unnamed_library_is_recognised_by_how_it_writes_nodes() {
        let with = |node, scope_name| Hints {
            node,
            scope_name,
            scope_version: "1.21.5",
            is_ottla: false,
        };
        let cases = [
            (with(Some(NodeLabel::Text("node-1")), ""), Library::Java),
            (with(Some(NodeLabel::Dotted(1)), ""), Library::Librdkafka),
            (with(None, "x#producer-1"), Library::Librdkafka),
            (with(Some(NodeLabel::Number(1)), "kgo"), Library::FranzGo),
            (with(None, ""), Library::Unknown),
        ];
        for (hints, library) in cases {
            assert_eq!(
                Software::recognise(None, None, &hints).library,
                library,
                "{hints:?}"
            );
        }
    }
}
