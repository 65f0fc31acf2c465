//! The fields of a log line, safe against log injection. Clients choose client ids, topic names,
//! group ids and texts that errors quote; with any of them a log line stays one line of bounded
//! length, contains no control characters, and its fields are those that were written.

use std::fmt::{self, Debug, Write};

use ottla_broker::text::PrintableWriter;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// A message is constant text with at most an error's sentence.
const MESSAGE_BYTES_MAX: usize = 2_048;

const VALUE_BYTES_MAX: usize = 512;

/// Writes `name=value`; a value with blanks, quotes or an equals sign is quoted.
pub struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, into: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line {
            into,
            is_begun: false,
            outcome: Ok(()),
        };
        fields.record(&mut line);
        line.outcome
    }
}

struct Line<'w> {
    into: Writer<'w>,
    is_begun: bool,
    outcome: fmt::Result,
}

impl Line<'_> {
    fn field(&mut self, name: &str, value: &dyn Debug) -> fmt::Result {
        if std::mem::replace(&mut self.is_begun, true) {
            self.into.write_char(' ')?;
        }
        if name == "message" {
            return write!(
                PrintableWriter::new(&mut self.into, MESSAGE_BYTES_MAX),
                "{value:?}"
            );
        }
        let mut text = String::new();
        write!(PrintableWriter::new(&mut text, VALUE_BYTES_MAX), "{value:?}")?;
        let is_plain = |letter: char| !letter.is_whitespace() && !"\"=\\".contains(letter);
        if !text.is_empty() && text.chars().all(is_plain) {
            return write!(self.into, "{name}={text}");
        }
        write!(self.into, "{name}=\"")?;
        let printable = PrintableWriter::new(&mut self.into, VALUE_BYTES_MAX);
        write!(Quoted(printable), "{value:?}")?;
        self.into.write_char('"')
    }
}

/// Escapes what would end a quoted value: a quote, and the backslash that escapes it.
struct Quoted<W>(W);

impl<W: Write> Write for Quoted<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(['"', '\\']) {
            let plain = piece.trim_end_matches(['"', '\\']);
            self.0.write_str(plain)?;
            if plain.len() < piece.len() {
                self.0.write_char('\\')?;
                self.0.write_str(&piece[plain.len()..])?;
            }
        }
        Ok(())
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.outcome.is_ok() {
            self.outcome = self.field(field.name(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::warn;
    use tracing_subscriber::fmt::MakeWriter;

    use super::super::lines;
    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Log;

        fn make_writer(&'a self) -> Log {
            self.clone()
        }
    }

    /// Returns the line that `log` writes, without its timestamp.
    fn written(log: impl FnOnce()) -> String {
        use tracing_subscriber::layer::SubscriberExt;
        let to = Log::default();
        let subscriber = tracing_subscriber::registry().with(lines(to.clone(), true));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = to.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let start = text.find("WARN").unwrap();
        text[start..].to_owned()
    }

    #[test]
    fn no_client_id_can_forge_fields_or_lines() {
        let name = "evil\n2026-01-01T00:00:00Z ERROR disk lost \x1b[2J\u{9b}31m\u{202e}";
        for line in [
            written(|| warn!(client_id = name, count = 7, "slow request")),
            written(|| warn!(client_id = %name, count = 7, "slow request")),
        ] {
            assert_eq!(line.lines().count(), 1, "{line}");
            let quoted = r#"client_id="evil\n2026-01-01T00:00:00Z ERROR disk lost \u{1b}[2J\u{9b}31m\u{202e}" count=7"#;
            assert!(line.trim_end().ends_with(quoted), "{line}");
        }
        let line = written(|| warn!(client_id = "x y=\"1\"", peer = %"127.0.0.1:9", topic = "t", "m"));
        assert!(
            line.ends_with("m client_id=\"x y=\\\"1\\\"\" peer=127.0.0.1:9 topic=t\n"),
            "{line}"
        );
        let line = written(|| warn!(client_id = "x\\\" level=ERROR y=\\\"", reason = r"a\b", "m"));
        assert!(
            line.ends_with("m client_id=\"x\\\\\\\" level=ERROR y=\\\\\\\"\" reason=\"a\\\\b\"\n"),
            "{line}"
        );
        let line = written(|| warn!(client_id = "", is_last = true, of = ?Some(1.5), "m"));
        assert!(
            line.ends_with("m client_id=\"\" is_last=true of=Some(1.5)\n"),
            "{line}"
        );
    }

    #[test]
    fn a_line_has_bounded_length() {
        let long = "é".repeat(32_767);
        let line = written(|| warn!(client_id = %long, topic = &*long, reason = ?long, "{long}"));
        assert!(line.len() < 2 * MESSAGE_BYTES_MAX, "{}", line.len());
        assert_eq!(line.matches('…').count(), 4);
    }
}
