//! Apache Kafka's message schemas as values.

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// An inclusive range of versions; `None` where a schema says "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub fn parse(text: &str) -> Result<Option<Versions>> {
        if text == "none" {
            return Ok(None);
        }
        let parse = |number: &str| {
            number
                .trim()
                .parse::<i16>()
                .with_context(|| format!("versions {text:?}"))
        };
        Ok(Some(if let Some(min) = text.strip_suffix('+') {
            Versions {
                min: parse(min)?,
                max: i16::MAX,
            }
        } else if let Some((min, max)) = text.split_once('-') {
            Versions {
                min: parse(min)?,
                max: parse(max)?,
            }
        } else {
            Versions {
                min: parse(text)?,
                max: parse(text)?,
            }
        }))
    }

    pub fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    pub fn intersect(self, other: Versions) -> Option<Versions> {
        let both = Versions {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        };
        (both.min <= both.max).then_some(both)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    String,
    Bytes,
    Records,
    Uuid,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    fn parse(text: &str) -> Result<Type> {
        if let Some(element) = text.strip_prefix("[]") {
            return Ok(Type::Array(Box::new(Type::parse(element)?)));
        }
        Ok(match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::Uint16,
            "int32" => Type::Int32,
            "uint32" => Type::Uint32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            "uuid" => Type::Uuid,
            name if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Type::Struct(name.to_owned())
            }
            other => bail!("unknown field type {other:?}"),
        })
    }

    /// The name of the struct that this type is or contains.
    pub fn struct_name(&self) -> Option<&str> {
        match self {
            Type::Struct(name) => Some(name),
            Type::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub field_type: Type,
    pub versions: Versions,
    pub nullable: Option<Versions>,
    pub tagged: Option<Versions>,
    pub tag: Option<u32>,
    pub ignorable: bool,
    /// The default as text of the schema; empty means the type's zero.
    pub default: String,
}

impl Field {
    /// Whether it is an error message for people, which may quote a client's text.
    pub fn is_message(&self) -> bool {
        self.field_type == Type::String && self.name.ends_with("ErrorMessage")
    }
}

#[derive(Clone, Debug)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    Data,
    MetadataRecord,
    CoordinatorKey,
    CoordinatorValue,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub name: String,
    pub kind: Kind,
    /// The API's or the record's key.
    pub key: Option<i16>,
    pub versions: Versions,
    pub flexible: Option<Versions>,
    /// The message itself first, then the structs it uses.
    pub structs: Vec<Struct>,
}

/// Parses one schema. `None`: a header, or a message without valid versions.
pub fn parse(text: &str) -> Result<Option<Message>> {
    let value: Value = serde_json::from_str(&without_comments(text))?;
    let kind = match text_of(&value, "type")?.as_str() {
        "request" => Kind::Request,
        "response" => Kind::Response,
        "data" => Kind::Data,
        "metadata" => Kind::MetadataRecord,
        "coordinator-key" => Kind::CoordinatorKey,
        "coordinator-value" => Kind::CoordinatorValue,
        "header" => return Ok(None),
        other => bail!("unknown message type {other:?}"),
    };
    let Some(mut versions) = Versions::parse(&text_of(&value, "validVersions")?)? else {
        return Ok(None);
    };
    // A version still under development is not served.
    if value.get("latestVersionUnstable").and_then(Value::as_bool) == Some(true) {
        versions.max -= 1;
    }
    let name = text_of(&value, "name")?;
    let mut structs = vec![Struct {
        name: name.clone(),
        fields: Vec::new(),
    }];
    let mut nested = Vec::new();
    structs[0].fields = fields(&value, versions, &mut nested)?;
    for common in value
        .get("commonStructs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let mut inner = Vec::new();
        let fields = fields(common, versions, &mut inner)?;
        nested.push(Struct {
            name: text_of(common, "name")?,
            fields,
        });
        nested.append(&mut inner);
    }
    structs.append(&mut nested);
    Ok(Some(Message {
        name,
        kind,
        key: value
            .get("apiKey")
            .and_then(Value::as_i64)
            .map(i16::try_from)
            .transpose()?,
        versions,
        flexible: Versions::parse(&text_of(&value, "flexibleVersions")?)?,
        structs,
    }))
}

fn fields(value: &Value, parent: Versions, structs: &mut Vec<Struct>) -> Result<Vec<Field>> {
    let mut parsed = Vec::new();
    for field in value
        .get("fields")
        .and_then(Value::as_array)
        .ok_or_else(|| anyhow!("no fields"))?
    {
        let name = text_of(field, "name")?;
        if let Some(field) = self::field(field, parent, structs).with_context(|| format!("field {name}"))? {
            parsed.push(field);
        }
    }
    Ok(parsed)
}

fn field(value: &Value, parent: Versions, structs: &mut Vec<Struct>) -> Result<Option<Field>> {
    let versions_of = |key: &str| -> Result<Option<Versions>> {
        match value.get(key).and_then(Value::as_str) {
            Some(text) => Ok(Versions::parse(text)?.and_then(|versions| versions.intersect(parent))),
            None => Ok(None),
        }
    };
    let tagged = versions_of("taggedVersions")?;
    let declared = match value.get("versions") {
        Some(_) => versions_of("versions")?,
        None => tagged,
    };
    let Some(versions) = declared else { return Ok(None) };
    let field_type = Type::parse(&text_of(value, "type")?)?;
    if value.get("fields").is_some() {
        let name = field_type
            .struct_name()
            .ok_or_else(|| anyhow!("fields below a plain type"))?
            .to_owned();
        let index = structs.len();
        structs.push(Struct {
            name,
            fields: Vec::new(),
        });
        structs[index].fields = fields(value, versions, structs)?;
    }
    let default = match value.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let tag = value
        .get("tag")
        .and_then(Value::as_u64)
        .map(u32::try_from)
        .transpose()?;
    Ok(Some(Field {
        name: text_of(value, "name")?,
        field_type,
        versions,
        nullable: versions_of("nullableVersions")?,
        tagged,
        tag,
        ignorable: value.get("ignorable").and_then(Value::as_bool).unwrap_or(false),
        default,
    }))
}

fn text_of(value: &Value, key: &str) -> Result<String> {
    let text = value
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| anyhow!("no {key:?}"))?;
    Ok(text.to_owned())
}

/// The schemas are JSON with `//` comments outside of strings.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut end = line.len();
        let bytes = line.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            match bytes[index] {
                b'\\' if in_string => index += 1,
                b'"' => in_string = !in_string,
                b'/' if !in_string && bytes.get(index + 1) == Some(&b'/') => {
                    end = index;
                    break;
                }
                _ => {}
            }
            index += 1;
        }
        plain.push_str(&line[..end]);
        plain.push('\n');
    }
    plain
}
