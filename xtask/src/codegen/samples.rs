//! Generates test source: functions that make the same sample messages as `xtask/java/Golden.java`,
//! and a table of all messages.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};

use super::rust::{Emitter, clashing_names, condition, field_name, snake};
use super::schema::{Field, Kind, Message, Struct, Type};

/// The module with the samples of one file's messages.
pub fn module(folder: &str, module: &str, messages: &[Message]) -> Result<String> {
    let clashing = clashing_names(messages);
    let mut source =
        format!("mod {folder}_{module} {{\nuse super::*;\nuse ottla_wire::{folder}::{module}::*;\n\n");
    for message in messages {
        let emitter = Emitter::new(message, &clashing)?;
        for (index, nested) in message.structs.iter().enumerate() {
            function(&mut source, &emitter, nested, index == 0)?;
        }
    }
    source.push_str("}\n\n");
    Ok(source)
}

/// The lines of the table for one file's messages.
pub fn table(folder: &str, module: &str, messages: &[Message]) -> Result<String> {
    let mut lines = String::new();
    for message in messages {
        let name = &message.name;
        let record_type = match (&message.kind, message.key) {
            (Kind::MetadataRecord, Some(key)) => format!(", Some({key})"),
            _ => String::new(),
        };
        writeln!(
            lines,
            "entry!(\"{name}\", ottla_wire::{folder}::{module}::{name}, {folder}_{module}::{}{record_type}),",
            snake(name)
        )?;
    }
    Ok(lines)
}

fn function(source: &mut String, emitter: &Emitter<'_>, nested: &Struct, is_message: bool) -> Result<()> {
    let name = emitter.rust_name(&nested.name);
    let lifetime = if emitter.struct_borrows(nested)? {
        "<'static>"
    } else {
        ""
    };
    let mut body = String::new();
    let mut values = String::new();
    for field in &nested.fields {
        let value = sampled(emitter, field)?;
        let value = match condition(field.versions, emitter.message.versions) {
            Some(holds) => format!(
                "if {holds} {{ {value} }} else {{ {} }}",
                emitter.default(field)?.0
            ),
            None => value,
        };
        writeln!(body, "{}: {value},", field_name(&field.name))?;
        values.push_str(&value);
    }
    let used = |name: &str| {
        if super::rust::uses(&values, name) {
            name.to_owned()
        } else {
            format!("_{name}")
        }
    };
    let visibility = if is_message { "pub " } else { "" };
    writeln!(
        source,
        "{visibility}fn {}({}: u64, {}: i16, {}: Kind) -> {name}{lifetime} {{\n{name} {{ {body} }}\n}}\n",
        snake(&name),
        used("seed"),
        used("version"),
        used("kind"),
    )?;
    Ok(())
}

fn sampled(emitter: &Emitter<'_>, field: &Field) -> Result<String> {
    let seed = format!("step(seed, {:?})", field.name);
    let (default, _) = emitter.default(field)?;
    let (populated, is_struct) = match &field.field_type {
        Type::Struct(name) => (
            format!("{}({seed}, version, kind)", function_name(emitter, name)),
            true,
        ),
        Type::Array(element) => match element.as_ref() {
            Type::Struct(name) => {
                let function = function_name(emitter, name);
                (format!("structs({seed}, version, kind, {function})"), true)
            }
            plain => (format!("values({seed}, {})", plain_function(plain)?), false),
        },
        Type::Bool => (if default == "true" { "false" } else { "true" }.to_owned(), false),
        plain => (format!("{}({seed})", plain_function(plain)?), false),
    };
    if !Emitter::is_optional(field) {
        return Ok(if is_struct {
            populated
        } else {
            format!("choose(kind, {default}, {populated})")
        });
    }
    let nullable = match field.nullable.map(|versions| condition(versions, field.versions)) {
        None => "false".to_owned(),
        Some(None) => "true".to_owned(),
        Some(Some(holds)) => holds,
    };
    Ok(if is_struct && default != "None" {
        format!("null_or(kind, {nullable}, {populated})")
    } else {
        format!("choose_optional(kind, {nullable}, {default}, {populated})")
    })
}

fn function_name(emitter: &Emitter<'_>, name: &str) -> String {
    snake(&emitter.rust_name(name))
}

fn plain_function(of: &Type) -> Result<&'static str> {
    Ok(match of {
        Type::Int8 => "int8",
        Type::Int16 => "int16",
        Type::Uint16 => "uint16",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Float64 => "float64",
        Type::String => "string",
        Type::Uuid => "uuid",
        Type::Bytes | Type::Records => "bytes",
        other => return Err(anyhow!("no sample of {other:?}")),
    })
}
