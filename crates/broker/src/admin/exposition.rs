//! Writes Prometheus' text format.

use std::fmt::{Display, Write};

use ottla_wire::text;

/// A page of metrics being written. Samples of one metric must be written together.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Begins a metric: `kind` is `counter`, `gauge`, `summary` or `histogram`.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// Writes a metric with one sample and no labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    pub fn finish(self) -> String {
        self.text
    }
}

/// Prometheus accepts any text as a label; control characters are escaped because people read the
/// page, too.
fn escape(value: &str, into: &mut String) {
    for character in text::printable(value).chars() {
        match character {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            other => into.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.metric("m", "gauge", "What it is.");
        page.sample("m", &[("a", "x\"y\\z\n\x1b"), ("b", "")], 1.5);
        page.single("n", "counter", "Another.", 7);
        assert_eq!(
            page.finish(),
            "# HELP m What it is.\n# TYPE m gauge\nm{a=\"x\\\"y\\\\z\\\\n\\\\u{1b}\",b=\"\"} 1.5\n# HELP n Another.\n# TYPE n counter\nn 7\n"
        );
    }
}
