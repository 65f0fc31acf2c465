//! The `encode` function of a struct.

use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail};

use super::super::schema::{Field, Struct, Type};
use super::{Emitter, condition, field_name, number_method, snake, uses};

impl Emitter<'_> {
    pub(super) fn encode(&self, source: &mut String, nested: &Struct, is_message: bool) -> Result<()> {
        let all = self.message.versions;
        let mut body = String::new();
        let mut tagged: Vec<&Field> = Vec::new();
        for field in &nested.fields {
            let is_tagged = field.tagged.is_some();
            let mut statements = String::new();
            if is_tagged {
                tagged.push(field);
            } else {
                statements = self.write(field, false)?;
            }
            let Some(holds) = condition(field.versions, all) else {
                body.push_str(&statements);
                continue;
            };
            let unsayable = format!(
                "\"{}.{} is not in version {{version}}\"",
                nested.name,
                snake(&field.name)
            );
            let is_default = self.compare(field)?.0;
            match (statements.is_empty(), field.ignorable) {
                (true, true) => {}
                (true, false) => writeln!(body, "debug_assert!({holds} || {is_default}, {unsayable});")?,
                (false, true) => writeln!(body, "if {holds} {{ {statements} }}")?,
                (false, false) => writeln!(
                    body,
                    "if {holds} {{ {statements} }} else {{ debug_assert!({is_default}, {unsayable}); }}"
                )?,
            }
        }
        tagged.sort_by_key(|field| field.tag);
        self.encode_tags(&mut body, &tagged)?;
        let body = format!("{}{body}", self.flexible_binding(&body));
        let version = if is_message || uses(&body, "version") {
            "version"
        } else {
            "_version"
        };
        let buffer = if uses(&body, "buffer") {
            "buffer"
        } else {
            "_buffer"
        };
        writeln!(
            source,
            "pub fn encode(&self, {buffer}: &mut Vec<u8>, {version}: i16) {{"
        )?;
        if is_message {
            writeln!(
                source,
                "debug_assert!((Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version));"
            )?;
        }
        writeln!(source, "{body}}}\n")?;
        Ok(())
    }

    fn encode_tags(&self, body: &mut String, tagged: &[&Field]) -> Result<()> {
        let (open, close) = match self.flexible() {
            "false" => return Ok(()),
            "true" => ("", ""),
            _ => ("if flexible {\n", "}\n"),
        };
        if tagged.is_empty() {
            write!(body, "{open}buffer.push(0);\n{close}")?;
            return Ok(());
        }
        let mut conditions = Vec::new();
        for field in tagged {
            let differs = self.compare(field)?.1;
            conditions.push(match condition(field.versions, self.flexible_versions()) {
                Some(holds) => format!("{holds} && {differs}"),
                None => differs,
            });
        }
        body.push_str(open);
        if conditions.len() == 1 {
            let (only, field) = (&conditions[0], tagged[0]);
            let write = self.write(field, true)?;
            let tag = field.tag.ok_or_else(|| anyhow!("a tagged field without a tag"))?;
            writeln!(
                body,
                "if {only} {{\nput_uvarint(buffer, 1);\nput_uvarint(buffer, {tag});\nlet start = buffer.len();\n\
                 {write}\ninsert_tagged_size(buffer, start);\n}} else {{ buffer.push(0); }}"
            )?;
        } else {
            let list = conditions.join(", ");
            writeln!(body, "let present = [{list}];")?;
            writeln!(
                body,
                "put_uvarint(buffer, present.iter().filter(|present| **present).count() as u32);"
            )?;
            for (index, field) in tagged.iter().enumerate() {
                let write = self.write(field, true)?;
                let tag = field.tag.ok_or_else(|| anyhow!("a tagged field without a tag"))?;
                writeln!(
                    body,
                    "if present[{index}] {{\nput_uvarint(buffer, {tag});\nlet start = buffer.len();\n\
                     {write}\ninsert_tagged_size(buffer, start);\n}}"
                )?;
            }
        }
        body.push_str(close);
        Ok(())
    }

    /// Returns the statements that write one field.
    fn write(&self, field: &Field, in_tag: bool) -> Result<String> {
        let place = format!("self.{}", field_name(&field.name));
        let flexible = self.flexible();
        if !Self::is_optional(field) {
            return self.write_value(&field.field_type, &place);
        }
        let mut statements = String::new();
        let never_null = "null in a version without nulls";
        match field.nullable.map(|versions| condition(versions, field.versions)) {
            None => writeln!(statements, "debug_assert!({place}.is_some(), \"{never_null}\");")?,
            Some(None) => {}
            Some(Some(holds)) => {
                writeln!(
                    statements,
                    "debug_assert!({holds} || {place}.is_some(), \"{never_null}\");"
                )?;
            }
        }
        match &field.field_type {
            Type::String => {
                let put = match field.is_message() {
                    true => "put_nullable_message",
                    false => "put_nullable_string",
                };
                writeln!(statements, "{put}(buffer, {place}, {flexible});")?;
            }
            Type::Bytes | Type::Records => {
                writeln!(statements, "put_nullable_bytes(buffer, {place}, {flexible});")?;
            }
            Type::Array(element) => {
                writeln!(
                    statements,
                    "put_nullable_count(buffer, {place}.as_ref().map(Vec::len), {flexible});\n\
                     for item in {place}.iter().flatten() {{ {} }}",
                    self.write_element(element)?
                )?;
            }
            Type::Struct(_) => {
                let presence = if in_tag {
                    "put_presence_in_tag"
                } else {
                    "put_presence"
                };
                writeln!(
                    statements,
                    "{presence}(buffer, {place}.is_some());\n\
                     if let Some(value) = &{place} {{ value.encode(buffer, version); }}"
                )?;
            }
            other => bail!("a nullable {other:?}"),
        }
        Ok(statements)
    }

    fn write_value(&self, of: &Type, place: &str) -> Result<String> {
        let flexible = self.flexible();
        Ok(match of {
            Type::String => format!("put_string(buffer, {place}, {flexible});\n"),
            Type::Bytes | Type::Records => format!("put_bytes(buffer, {place}, {flexible});\n"),
            Type::Struct(_) => format!("{place}.encode(buffer, version);\n"),
            Type::Array(element) => format!(
                "put_count(buffer, {place}.len(), {flexible});\nfor item in &{place} {{ {} }}\n",
                self.write_element(element)?
            ),
            number => {
                let method = number_method(number).ok_or_else(|| anyhow!("no way to write {number:?}"))?;
                format!("put_{method}(buffer, {place});\n")
            }
        })
    }

    fn write_element(&self, element: &Type) -> Result<String> {
        match number_method(element) {
            Some(_) => self.write_value(element, "*item"),
            None => self.write_value(element, "item"),
        }
    }
}
