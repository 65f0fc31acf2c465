//! Generates Rust source from schemas. It only takes care of tokens and names; rustfmt does the
//! layout.

mod decode;
mod encode;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail, ensure};

use super::schema::{Field, Kind, Message, Struct, Type, Versions};

/// The source of one file: all messages of one API, or one record.
pub fn file(messages: &[Message]) -> Result<String> {
    let clashing = clashing_names(messages);
    let mut source = String::new();
    for message in messages {
        Emitter::new(message, &clashing)?.message(&mut source)?;
    }
    Ok(source)
}

/// The struct names that more than one message of a file uses; they get their message's name as
/// prefix.
pub fn clashing_names(messages: &[Message]) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    let mut clashing = BTreeSet::new();
    for nested in messages.iter().flat_map(|message| &message.structs) {
        if !seen.insert(nested.name.as_str()) {
            clashing.insert(nested.name.as_str());
        }
    }
    clashing
}

/// `OffsetCommit` and `offsetCommit` become `offset_commit`.
pub fn snake(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut text = String::new();
    for (index, &character) in characters.iter().enumerate() {
        let starts_word = character.is_ascii_uppercase()
            && index > 0
            && (!characters[index - 1].is_ascii_uppercase()
                || characters.get(index + 1).is_some_and(char::is_ascii_lowercase));
        if starts_word {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

pub fn field_name(name: &str) -> String {
    let name = snake(name);
    match name.as_str() {
        "type" | "match" => format!("r#{name}"),
        _ => name,
    }
}

/// Returns a condition on `version` that separates `versions` from the rest of `all`; `None` if it
/// always holds.
pub fn condition(versions: Versions, all: Versions) -> Option<String> {
    match (versions.min > all.min, versions.max < all.max) {
        (false, false) => None,
        (true, false) if versions.min == all.max => Some(format!("version == {}", versions.min)),
        (false, true) if versions.max == all.min => Some(format!("version == {}", versions.max)),
        (true, false) => Some(format!("version >= {}", versions.min)),
        (false, true) => Some(format!("version <= {}", versions.max)),
        (true, true) if versions.min == versions.max => Some(format!("version == {}", versions.min)),
        (true, true) => Some(format!(
            "({}..={}).contains(&version)",
            versions.min, versions.max
        )),
    }
}

/// Whether `source` uses the variable `name`, as a whole word.
pub fn uses(source: &str, name: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    source.match_indices(name).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let after = source[at + name.len()..].chars().next();
        !before.is_some_and(|character| is_word(character) || character == '.') && !after.is_some_and(is_word)
    })
}

/// Writes one message and its structs.
pub struct Emitter<'m> {
    pub message: &'m Message,
    structs: BTreeMap<&'m str, &'m Struct>,
    clashing: &'m BTreeSet<&'m str>,
}

impl<'m> Emitter<'m> {
    pub fn new(message: &'m Message, clashing: &'m BTreeSet<&'m str>) -> Result<Emitter<'m>> {
        let mut structs = BTreeMap::new();
        for nested in &message.structs {
            if structs.insert(nested.name.as_str(), nested).is_some() {
                bail!("{} defines {} twice", message.name, nested.name);
            }
        }
        Ok(Emitter {
            message,
            structs,
            clashing,
        })
    }

    fn lookup(&self, name: &str) -> Result<&'m Struct> {
        self.structs
            .get(name)
            .copied()
            .ok_or_else(|| anyhow!("{}: unknown struct {name}", self.message.name))
    }

    pub fn rust_name(&self, name: &str) -> String {
        if self.clashing.contains(name) {
            format!("{}{name}", self.message.name)
        } else {
            name.to_owned()
        }
    }

    fn borrows(&self, of: &Type) -> Result<bool> {
        Ok(match of {
            Type::String | Type::Bytes | Type::Records => true,
            Type::Array(element) => self.borrows(element)?,
            Type::Struct(name) => self.struct_borrows(self.lookup(name)?)?,
            _ => false,
        })
    }

    pub fn struct_borrows(&self, of: &Struct) -> Result<bool> {
        for field in &of.fields {
            if self.borrows(&field.field_type)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn bare_type(&self, of: &Type) -> Result<String> {
        Ok(match of {
            Type::Bool => "bool".to_owned(),
            Type::Int8 => "i8".to_owned(),
            Type::Int16 => "i16".to_owned(),
            Type::Uint16 => "u16".to_owned(),
            Type::Int32 => "i32".to_owned(),
            Type::Uint32 => "u32".to_owned(),
            Type::Int64 => "i64".to_owned(),
            Type::Float64 => "f64".to_owned(),
            Type::Uuid => "Uuid".to_owned(),
            Type::String => "&'a str".to_owned(),
            Type::Bytes | Type::Records => "&'a [u8]".to_owned(),
            Type::Array(element) => format!("Vec<{}>", self.bare_type(element)?),
            Type::Struct(name) => {
                let lifetime = if self.struct_borrows(self.lookup(name)?)? {
                    "<'a>"
                } else {
                    ""
                };
                format!("{}{lifetime}", self.rust_name(name))
            }
        })
    }

    pub fn is_optional(field: &Field) -> bool {
        field.nullable.is_some() || field.field_type == Type::Records
    }

    fn field_type(&self, field: &Field) -> Result<String> {
        let bare = self.bare_type(&field.field_type)?;
        Ok(if Self::is_optional(field) {
            format!("Option<{bare}>")
        } else {
            bare
        })
    }

    /// The field's default as an expression, and whether it equals that of `Default`.
    pub fn default(&self, field: &Field) -> Result<(String, bool)> {
        let text = field.default.as_str();
        if Self::is_optional(field) && (text == "null" || field.field_type == Type::Records) {
            return Ok(("None".to_owned(), true));
        }
        let (value, is_zero) = match &field.field_type {
            Type::Bool => (
                if text.is_empty() { "false" } else { text }.to_owned(),
                text != "true",
            ),
            Type::Float64 => {
                ensure!(text.is_empty(), "a float with a default");
                ("0.0".to_owned(), true)
            }
            Type::String => (format!("{text:?}"), text.is_empty()),
            Type::Uuid => ("Uuid::ZERO".to_owned(), true),
            Type::Bytes => ("&[]".to_owned(), true),
            Type::Array(_) => ("Vec::new()".to_owned(), true),
            Type::Struct(name) => (format!("{}::default()", self.rust_name(name)), true),
            number => self.number_default(number, text)?,
        };
        Ok(if Self::is_optional(field) {
            (format!("Some({value})"), false)
        } else {
            (value, is_zero)
        })
    }

    fn number_default(&self, number: &Type, text: &str) -> Result<(String, bool)> {
        let value: i64 = match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16)?,
            None if text.is_empty() => 0,
            None => text.parse()?,
        };
        let expression = match (number, value) {
            (Type::Int32, value) if value == i64::from(i32::MAX) => "i32::MAX".to_owned(),
            (Type::Int32, value) if value == i64::from(i32::MIN) => "i32::MIN".to_owned(),
            (Type::Int64, i64::MAX) => "i64::MAX".to_owned(),
            _ => value.to_string(),
        };
        Ok((expression, value == 0))
    }

    /// Two expressions: the field has its default; the field has another value.
    fn compare(&self, field: &Field) -> Result<(String, String)> {
        let place = format!("self.{}", field_name(&field.name));
        let (default, _) = self.default(field)?;
        let pair = |equal: &str, other: &str| (format!("{place}{equal}"), format!("{place}{other}"));
        if default == "None" {
            return Ok(pair(".is_none()", ".is_some()"));
        }
        let equality = pair(&format!(" == {default}"), &format!(" != {default}"));
        Ok(match (&field.field_type, Self::is_optional(field)) {
            (Type::Array(_), true) => pair(
                ".as_ref().is_some_and(Vec::is_empty)",
                ".as_ref().is_none_or(|items| !items.is_empty())",
            ),
            (_, true) => equality,
            (Type::Bool, _) if default == "false" => (format!("!{place}"), place),
            (Type::Bool, _) => (place.clone(), format!("!{place}")),
            (Type::String, _) if !field.default.is_empty() => equality,
            (Type::String | Type::Array(_) | Type::Bytes, _) => {
                (format!("{place}.is_empty()"), format!("!{place}.is_empty()"))
            }
            _ => equality,
        })
    }

    /// The minimum size of an element of this type on the wire, over all versions that have it.
    fn min_wire_bytes(&self, of: &Type, versions: Versions) -> Result<usize> {
        let Type::Struct(name) = of else {
            bail!("only structs are counted by hand")
        };
        let nested = self.lookup(name)?;
        let mut least = usize::MAX;
        for version in versions.min..=versions.max {
            least = least.min(self.struct_bytes(nested, version)?);
        }
        ensure!(least > 0, "{name}: an element of no bytes cannot be capped");
        Ok(least)
    }

    fn struct_bytes(&self, of: &Struct, version: i16) -> Result<usize> {
        let flexible = self
            .message
            .flexible
            .is_some_and(|versions| versions.contains(version));
        let mut bytes = usize::from(flexible);
        for field in &of.fields {
            let is_tagged = field.tagged.is_some_and(|versions| versions.contains(version));
            if !field.versions.contains(version) || is_tagged {
                continue;
            }
            let is_nullable = field.nullable.is_some_and(|versions| versions.contains(version));
            bytes += match &field.field_type {
                Type::Bool | Type::Int8 => 1,
                Type::Int16 | Type::Uint16 => 2,
                Type::Int32 | Type::Uint32 => 4,
                Type::Int64 | Type::Float64 => 8,
                Type::Uuid => 16,
                Type::String | Type::Bytes | Type::Records | Type::Array(_) if flexible => 1,
                Type::String => 2,
                Type::Bytes | Type::Records | Type::Array(_) => 4,
                Type::Struct(_) if is_nullable => 1,
                Type::Struct(name) => self.struct_bytes(self.lookup(name)?, version)?,
            };
        }
        Ok(bytes)
    }

    fn message(&self, source: &mut String) -> Result<()> {
        for (index, nested) in self.message.structs.iter().enumerate() {
            self.definition(source, nested, index == 0)?;
            self.default_impl(source, nested)?;
            let lifetime = if self.struct_borrows(nested)? { "<'a>" } else { "" };
            let name = self.rust_name(&nested.name);
            writeln!(source, "impl{lifetime} {name}{lifetime} {{")?;
            if index == 0 {
                self.constants(source)?;
            }
            self.decode(source, nested, index == 0)?;
            self.encode(source, nested, index == 0)?;
            if index == 0 {
                self.record_frame(source)?;
            }
            writeln!(source, "}}\n")?;
        }
        Ok(())
    }

    fn describe_versions(&self, versions: Versions) -> String {
        let max = versions.max.min(self.message.versions.max);
        if versions.min == max {
            format!("version {max}")
        } else if max == self.message.versions.max {
            format!("versions {}+", versions.min)
        } else {
            format!("versions {}-{max}", versions.min)
        }
    }

    fn definition(&self, source: &mut String, nested: &Struct, is_message: bool) -> Result<()> {
        let all = self.message.versions;
        if is_message {
            let flexible = match self.message.flexible {
                Some(flexible) if flexible.min <= all.min => ", all flexible".to_owned(),
                Some(flexible) => format!(", flexible from {}", flexible.min),
                None => ", none flexible".to_owned(),
            };
            let range = if all.min == all.max {
                format!("{}", all.min)
            } else {
                format!("{}-{}", all.min, all.max)
            };
            writeln!(source, "/// `{}`, versions {range}{flexible}.", nested.name)?;
        } else {
            writeln!(source, "/// Part of [`{}`].", self.rust_name(&self.message.name))?;
        }
        let mut default_derivable = true;
        for field in &nested.fields {
            default_derivable &= self.default(field)?.1;
        }
        let default = if default_derivable { ", Default" } else { "" };
        writeln!(source, "#[derive(Clone, Debug, PartialEq{default})]")?;
        let lifetime = if self.struct_borrows(nested)? { "<'a>" } else { "" };
        writeln!(source, "pub struct {}{lifetime} {{", self.rust_name(&nested.name))?;
        for field in &nested.fields {
            let mut facts = Vec::new();
            if condition(field.versions, all).is_some() {
                facts.push(self.describe_versions(field.versions));
            }
            if let Some(nullable) = field.nullable
                && nullable != field.versions
            {
                facts.push(format!("nullable in {}", self.describe_versions(nullable)));
            }
            if let (Some(_), Some(tag)) = (field.tagged, field.tag) {
                facts.push(format!("tag {tag}"));
            }
            if !facts.is_empty() {
                let text = facts.join(", ");
                let (first, rest) = text.split_at(1);
                writeln!(source, "/// {}{rest}.", first.to_uppercase())?;
            }
            writeln!(
                source,
                "pub {}: {},",
                field_name(&field.name),
                self.field_type(field)?
            )?;
        }
        writeln!(source, "}}\n")?;
        Ok(())
    }

    fn default_impl(&self, source: &mut String, nested: &Struct) -> Result<()> {
        let mut values = String::new();
        let mut default_derivable = true;
        for field in &nested.fields {
            let (value, is_zero) = self.default(field)?;
            default_derivable &= is_zero;
            writeln!(values, "{}: {value},", field_name(&field.name))?;
        }
        if !default_derivable {
            let lifetime = if self.struct_borrows(nested)? { "<'_>" } else { "" };
            let name = self.rust_name(&nested.name);
            writeln!(
                source,
                "impl Default for {name}{lifetime} {{ fn default() -> Self {{ Self {{ {values} }} }} }}\n"
            )?;
        }
        Ok(())
    }

    fn constants(&self, source: &mut String) -> Result<()> {
        if let Some(key) = self.message.key {
            let name = match self.message.kind {
                Kind::Request | Kind::Response => "API_KEY",
                _ => "RECORD_TYPE",
            };
            writeln!(source, "pub const {name}: i16 = {key};")?;
        }
        let versions = self.message.versions;
        writeln!(source, "pub const MIN_VERSION: i16 = {};", versions.min)?;
        writeln!(source, "pub const MAX_VERSION: i16 = {};", versions.max)?;
        match self.message.flexible {
            Some(flexible) => writeln!(
                source,
                "pub const FIRST_FLEXIBLE_VERSION: i16 = {};",
                flexible.min
            )?,
            None => writeln!(
                source,
                "/// None is flexible.\npub const FIRST_FLEXIBLE_VERSION: i16 = i16::MAX;"
            )?,
        }
        source.push('\n');
        Ok(())
    }

    /// Returns `true`, `false` or `flexible`, a variable of the generated function.
    fn flexible(&self) -> &'static str {
        match self.message.flexible {
            None => "false",
            Some(flexible) => match condition(flexible, self.message.versions) {
                None => "true",
                Some(_) if flexible.min > self.message.versions.max => "false",
                Some(_) => "flexible",
            },
        }
    }

    fn flexible_binding(&self, body: &str) -> String {
        match self.message.flexible {
            Some(flexible) if self.flexible() == "flexible" && uses(body, "flexible") => {
                let holds = condition(flexible, self.message.versions).expect("it is not always flexible");
                format!("let flexible = {holds};\n")
            }
            _ => String::new(),
        }
    }

    /// Coordinator records have their type or version in their first two bytes.
    fn record_frame(&self, source: &mut String) -> Result<()> {
        let lifetime = if self.struct_borrows(&self.message.structs[0])? {
            "'a"
        } else {
            "'_"
        };
        match self.message.kind {
            Kind::CoordinatorKey => {
                writeln!(
                    source,
                    "/// The record's key: the record type, then the body.\n\
                     pub fn encode_key(&self, buffer: &mut Vec<u8>) {{\nput_i16(buffer, Self::RECORD_TYPE);\n\
                     self.encode(buffer, Self::MAX_VERSION);\n}}\n"
                )?;
            }
            Kind::CoordinatorValue => {
                writeln!(
                    source,
                    "/// The record's value: the version, then the body.\n\
                     pub fn encode_value(&self, buffer: &mut Vec<u8>, version: i16) {{\nput_i16(buffer, version);\n\
                     self.encode(buffer, version);\n}}\n\n\
                     /// Reads a record's value, whose first two bytes are its version.\n\
                     pub fn decode_value(bytes: &{} [u8]) -> Result<Self, DecodeError> {{\n\
                     let mut reader = Reader::new(bytes);\nlet version = reader.i16()?;\n\
                     Self::decode(&mut reader, version)\n}}\n",
                    if lifetime == "'a" { "'a" } else { "" }
                )?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn number_method(of: &Type) -> Option<&'static str> {
    Some(match of {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        _ => return None,
    })
}
