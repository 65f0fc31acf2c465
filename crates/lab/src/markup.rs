//! Writing HTML and SVG: tags come from the code, everything else is escaped.

use std::fmt::{Display, Write};

/// A part of a page. Only names known at compile time become tags and attributes, so no text of a
/// report can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup {
    out: String,
}

pub type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Markup {
    pub fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.tag(tag, attributes);
        self.out.push('>');
    }

    pub fn close(&mut self, tag: &'static str) {
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push_str(">\n");
    }

    /// Writes an element with a text.
    pub fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.open(tag, attributes);
        self.text(text);
        self.close(tag);
    }

    /// Writes an element with other elements.
    pub fn nest(&mut self, tag: &'static str, attributes: Attributes<'_>, inner: impl FnOnce(&mut Markup)) {
        self.open(tag, attributes);
        inner(self);
        self.close(tag);
    }

    /// Adds a part that was rendered before.
    pub fn add(&mut self, rendered: &Markup) {
        self.out.push_str(&rendered.out);
    }

    /// Closes an element within a line of text, where a line break would be seen as a space.
    pub fn end(&mut self, tag: &'static str) {
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
    }

    /// Writes an element with a text, within a line of text.
    pub fn inline(&mut self, tag: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.open(tag, attributes);
        self.text(text);
        self.end(tag);
    }

    /// Writes an SVG element without content.
    pub fn shape(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.tag(tag, attributes);
        self.out.push_str("/>\n");
    }

    pub fn text(&mut self, text: impl Display) {
        escape(&text.to_string(), Place::Text, &mut self.out);
    }

    /// Writes unescaped text that is part of the code, never of a report.
    pub fn literal(&mut self, text: &'static str) {
        self.out.push_str(text);
    }

    /// Writes JSON inside a `script`: there, only `<` could end the element or begin a comment.
    pub fn json(&mut self, json: &str) {
        self.out.push_str(&json.replace('<', "\\u003c"));
    }

    pub fn as_str(&self) -> &str {
        &self.out
    }

    pub fn into_string(self) -> String {
        self.out
    }

    fn tag(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            let _ = write!(self.out, " {name}=\"");
            escape(&value.to_string(), Place::Attribute, &mut self.out);
            self.out.push('"');
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Attribute,
}

fn escape(text: &str, place: Place, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML cannot represent these; terminal escape sequences are among them.
            control if control.is_control() && !matches!(control, '\n' | '\t') => out.push('\u{fffd}'),
            // These reorder the text beside them. A value, such as that of a field, keeps them.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => match place {
                Place::Text => out.push('\u{fffd}'),
                Place::Attribute => {
                    let _ = write!(out, "&#{};", u32::from(character));
                }
            },
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        let mut markup = Markup::default();
        let hostile = "\"><script>alert('1')</script>&\u{1b}[31m\0";
        markup.leaf("p", &[("title", &hostile)], hostile);
        let out = markup.into_string();
        assert_eq!(out.matches('<').count(), 2, "{out}");
        assert_eq!(out.matches('"').count(), 2, "{out}");
        assert!(!out.contains('\u{1b}') && !out.contains('\0'), "{out}");
    }

    #[test]
    fn text_cannot_be_reordered_and_values_stay_what_they_are() {
        let mut markup = Markup::default();
        markup.leaf("p", &[("title", &"a\u{202e}b")], "a\u{202e}b\u{2066}");
        assert_eq!(
            markup.into_string(),
            "<p title=\"a&#8238;b\">a\u{fffd}b\u{fffd}</p>\n"
        );
    }

    #[test]
    fn json_cannot_end_its_script() {
        let mut markup = Markup::default();
        let json = serde_json::to_string("</script><!--").unwrap();
        markup.json(&json);
        let out = markup.into_string();
        assert!(!out.contains('<'));
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), "</script><!--");
    }
}
