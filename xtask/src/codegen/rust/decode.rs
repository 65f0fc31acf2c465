//! The `decode` function of a struct.

use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail, ensure};

use super::super::schema::{Field, Struct, Type, Versions};
use super::{Emitter, condition, field_name, number_method, uses};

/// Bytes that are not nullable by their schema but are accepted as null and read as empty: clients
/// without metrics to push send null. Refusing such a push would close the connection, and the
/// client would reconnect and push again.
const NULL_IS_EMPTY: [(&str, &str); 1] = [("PushTelemetryRequest", "Metrics")];

impl Emitter<'_> {
    pub(super) fn decode(&self, source: &mut String, nested: &Struct, is_message: bool) -> Result<()> {
        let all = self.message.versions;
        let mut literal = String::new();
        let mut tags = String::new();
        for field in &nested.fields {
            let name = field_name(&field.name);
            let default = self.default(field)?.0;
            if let Some(tag) = field.tag.filter(|_| field.tagged.is_some()) {
                ensure!(
                    field.tagged == Some(field.versions),
                    "{}: tagged in some versions only",
                    field.name
                );
                let value = self.read(field, true)?;
                let guard = match condition(field.versions, self.flexible_versions()) {
                    Some(holds) => format!(" if {holds}"),
                    None => String::new(),
                };
                writeln!(tags, "{tag}{guard} => message.{name} = {value},")?;
                writeln!(literal, "{name}: {default},")?;
                continue;
            }
            let value = self.read(field, false)?;
            match condition(field.versions, all) {
                Some(holds) => writeln!(literal, "{name}: if {holds} {{ {value} }} else {{ {default} }},")?,
                None => writeln!(literal, "{name}: {value},")?,
            }
        }
        let tail = self.decode_tail(&literal, &tags);
        let body = format!("{}{tail}", self.flexible_binding(&tail));
        let uses_version = is_message || uses(&body, "version");
        let version = if uses_version { "version" } else { "_version" };
        let reader_lifetime = if self.struct_borrows(nested)? { "'a" } else { "'_" };
        writeln!(
            source,
            "pub fn decode(reader: &mut Reader<{reader_lifetime}>, {version}: i16) -> Result<Self, DecodeError> {{"
        )?;
        if is_message {
            writeln!(
                source,
                "if !(Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version) {{ \
                 return Err(DecodeError::UnsupportedVersion {{ version }}); }}"
            )?;
        }
        writeln!(source, "{body}}}\n")?;
        Ok(())
    }

    /// The versions with tagged fields.
    pub(super) fn flexible_versions(&self) -> Versions {
        let all = self.message.versions;
        self.message
            .flexible
            .and_then(|flexible| flexible.intersect(all))
            .unwrap_or(all)
    }

    fn decode_tail(&self, literal: &str, tags: &str) -> String {
        let (open, close) = match self.flexible() {
            "false" => return format!("Ok(Self {{ {literal} }})\n"),
            "true" => ("", ""),
            _ => ("if flexible {\n", "}\n"),
        };
        if tags.is_empty() {
            return format!(
                "let message = Self {{ {literal} }};\n{open}reader.skip_tagged_fields()?;\n{close}Ok(message)\n"
            );
        }
        format!(
            "let mut message = Self {{ {literal} }};\n{open}for _ in 0..reader.tagged_field_count()? {{\n\
             let (tag, end) = reader.tagged_field()?;\nmatch tag {{\n{tags}\
             _ => reader.skip_tagged_field(end),\n}}\nreader.end_tagged_field(end)?;\n}}\n{close}Ok(message)\n"
        )
    }

    /// Returns the expression that reads one field.
    fn read(&self, field: &Field, in_tag: bool) -> Result<String> {
        let nullable = field
            .nullable
            .and_then(|versions| condition(versions, field.versions));
        let is_lenient = NULL_IS_EMPTY.contains(&(&*self.message.name, &*field.name));
        Ok(match (field.nullable, nullable) {
            (None, _) if is_lenient => format!(
                "{}.unwrap_or_default()",
                self.read_value(&field.field_type, field.versions, true, in_tag)?
            ),
            (None, _) if field.field_type == Type::Records => {
                format!(
                    "Some({})",
                    self.read_value(&field.field_type, field.versions, false, in_tag)?
                )
            }
            (None, _) => self.read_value(&field.field_type, field.versions, false, in_tag)?,
            (Some(_), None) => self.read_value(&field.field_type, field.versions, true, in_tag)?,
            (Some(_), Some(holds)) => format!(
                "if {holds} {{ {} }} else {{ Some({}) }}",
                self.read_value(&field.field_type, field.versions, true, in_tag)?,
                self.read_value(&field.field_type, field.versions, false, in_tag)?
            ),
        })
    }

    fn read_value(&self, of: &Type, versions: Versions, is_nullable: bool, in_tag: bool) -> Result<String> {
        let flexible = self.flexible();
        let prefix = if is_nullable { "nullable_" } else { "" };
        if let Some(number) = number_method(of) {
            ensure!(!is_nullable, "a nullable number");
            return Ok(format!("reader.{number}()?"));
        }
        Ok(match of {
            Type::String => format!("reader.{prefix}string({flexible})?"),
            Type::Bytes | Type::Records => format!("reader.{prefix}bytes({flexible})?"),
            Type::Struct(name) => {
                let value = format!("{}::decode(reader, version)?", self.rust_name(name));
                match (is_nullable, in_tag) {
                    (false, _) => value,
                    (true, false) => format!("if reader.is_present()? {{ Some({value}) }} else {{ None }}"),
                    (true, true) => {
                        format!("if reader.is_present_in_tag()? {{ Some({value}) }} else {{ None }}")
                    }
                }
            }
            Type::Array(element) => match element.as_ref() {
                Type::String => format!("reader.{prefix}strings({flexible})?"),
                Type::Struct(name) => {
                    let least = self.min_wire_bytes(element, versions)?;
                    let decode = format!("{}::decode", self.rust_name(name));
                    format!("reader.{prefix}array(version, {flexible}, {least}, {decode})?")
                }
                number => {
                    let method = number_method(number).ok_or_else(|| anyhow!("array of {number:?}"))?;
                    format!("reader.{prefix}values({flexible}, Reader::{method})?")
                }
            },
            other => bail!("no way to read {other:?}"),
        })
    }
}
