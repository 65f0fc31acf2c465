//! `cargo xtask codegen`: the wire messages, from the schemas that Apache Kafka publishes inside
//! its jars.

pub mod kafka_jars;
mod rust;
mod samples;
mod schema;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::kafka_jars::KAFKA_VERSION;
use self::schema::{Kind, Message};
use self::wanted::{WANTED, is_wanted};

/// The test file beside the golden bytes, below `crates/wire`.
const SAMPLES: &str = "tests/golden/samples.rs";

/// The folder of a message's file.
const MESSAGES: &str = "messages";
const METADATA_RECORDS: &str = "metadata_records";
const COORDINATOR_RECORDS: &str = "coordinator_records";

pub fn run(arguments: &[String]) -> Result<()> {
    let is_check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("usage: cargo xtask codegen [--check]"),
    };
    let files = generate(&messages()?)?;
    let wire = kafka_jars::root().join("crates/wire");
    let scratch = kafka_jars::root().join("target/codegen");
    let target = if is_check { &scratch } else { &wire };
    write_formatted(target, &files)?;
    if is_check {
        check(&wire, &scratch, &files)?;
    }
    Ok(())
}

/// A message, the place of its code, and its schema.
pub struct Source {
    pub message: Message,
    pub schema_path: PathBuf,
    /// The class that Apache Kafka generates from the same schema.
    pub java_class: String,
}

/// Every generated message, in the order of the jars and of the schemas' names.
pub fn messages() -> Result<Vec<Source>> {
    let jars = kafka_jars::fetch()?;
    let mut sources = Vec::new();
    for jar in &kafka_jars::SCHEMA_JARS {
        for schema_path in kafka_jars::schemas(&jars, jar)? {
            let text = fs::read_to_string(&schema_path)?;
            let parsed = schema::parse(&text).with_context(|| schema_path.display().to_string())?;
            let Some(message) = parsed else { continue };
            let (folder, name) = stem(&message);
            if !is_wanted(folder, name) {
                continue;
            }
            let suffix = if matches!(message.kind, Kind::Request | Kind::Response) {
                "Data"
            } else {
                ""
            };
            let java_class = format!("{}.{}{suffix}", jar.java_package, message.name);
            sources.push(Source {
                message,
                schema_path,
                java_class,
            });
        }
    }
    check_that_all_are_there(&sources)?;
    Ok(sources)
}

fn check_that_all_are_there(sources: &[Source]) -> Result<()> {
    let found: BTreeSet<(&str, &str)> = sources.iter().map(|source| stem(&source.message)).collect();
    for wanted in WANTED {
        let missing = wanted
            .names
            .iter()
            .find(|name| !found.contains(&(wanted.folder, **name)));
        if let Some(name) = missing {
            bail!("no schema of {name} ({}: {})", wanted.folder, wanted.reason);
        }
    }
    Ok(())
}

/// All generated files, before formatting, by their path below `crates/wire`.
fn generate(sources: &[Source]) -> Result<BTreeMap<String, String>> {
    let mut folders: BTreeMap<&str, BTreeMap<String, Vec<Message>>> = BTreeMap::new();
    for source in sources {
        let (folder, file) = destination(&source.message);
        folders
            .entry(folder)
            .or_default()
            .entry(file)
            .or_default()
            .push(source.message.clone());
    }
    let mut files = BTreeMap::new();
    let mut samples = header("the schemas of all messages");
    samples.push_str("use super::sample::*;\n\n");
    let mut table = String::new();
    for (folder, modules) in folders {
        let mut index = header(&format!("the schemas of {}", index_subject(folder)));
        for (module, messages) in &modules {
            let names: Vec<String> = messages
                .iter()
                .map(|message| format!("{}.json", message.name))
                .collect();
            let mut source = header(&names.join(" and "));
            source.push_str("use crate::primitives::*;\n\n");
            source.push_str(&rust::file(messages).with_context(|| module.clone())?);
            files.insert(format!("src/{folder}/{module}.rs"), source);
            writeln!(index, "pub mod {module};")?;
            samples.push_str(&samples::module(folder, module, messages)?);
            table.push_str(&samples::table(folder, module, messages)?);
        }
        index.push('\n');
        match folder {
            METADATA_RECORDS => index.push_str(&metadata_index(&modules)?),
            COORDINATOR_RECORDS => index.push_str(&coordinator_index(&modules)?),
            _ => {}
        }
        files.insert(format!("src/{folder}/mod.rs"), index);
    }
    writeln!(
        samples,
        "/// Every message.\npub const MESSAGES: &[Entry] = &[{table}];"
    )?;
    files.insert(SAMPLES.to_owned(), samples);
    Ok(files)
}

fn destination(message: &Message) -> (&'static str, String) {
    let (folder, stem) = stem(message);
    (folder, rust::snake(stem))
}

/// A message's folder, and its name without what it shares with others of its file.
fn stem(message: &Message) -> (&'static str, &str) {
    let (folder, suffixes): (_, &[&str]) = match message.kind {
        Kind::Request | Kind::Response | Kind::Data => (MESSAGES, &["Request", "Response"]),
        Kind::MetadataRecord => (METADATA_RECORDS, &["Record"]),
        Kind::CoordinatorKey | Kind::CoordinatorValue => (COORDINATOR_RECORDS, &["Key", "Value"]),
    };
    let stem = suffixes
        .iter()
        .find_map(|suffix| message.name.strip_suffix(suffix))
        .unwrap_or(&message.name);
    (folder, stem)
}

fn index_subject(folder: &str) -> &'static str {
    match folder {
        METADATA_RECORDS => "the records in `__cluster_metadata`",
        COORDINATOR_RECORDS => "the records in `__consumer_offsets` and `__transaction_state`",
        _ => "requests, responses and the data inside some of their fields",
    }
}

fn header(sources: &str) -> String {
    format!(
        "//! Generated by `cargo xtask codegen` from Apache Kafka {KAFKA_VERSION}: {sources}. Do not edit.\n\n"
    )
}

/// One enum over all metadata records, with their frame.
fn metadata_index(modules: &BTreeMap<String, Vec<Message>>) -> Result<String> {
    let mut variants = String::new();
    let mut decode = String::new();
    let mut encode = String::new();
    let mut keys = String::new();
    let mut ordered: Vec<(i16, &str, &Message)> = Vec::new();
    for (module, messages) in modules {
        for message in messages {
            ordered.push((
                message.key.context("a metadata record without a key")?,
                module,
                message,
            ));
        }
    }
    ordered.sort_by_key(|(key, _, _)| *key);
    for (key, module, message) in ordered {
        let name = &message.name;
        let variant = name.strip_suffix("Record").unwrap_or(name);
        let lifetime = rust::file(std::slice::from_ref(message))?.contains(&format!("pub struct {name}<'a>"));
        let lifetime = if lifetime { "<'a>" } else { "" };
        writeln!(variants, "{variant}({module}::{name}{lifetime}),")?;
        writeln!(
            decode,
            "{key} => MetadataRecord::{variant}({module}::{name}::decode(&mut reader, version)?),"
        )?;
        writeln!(
            encode,
            "MetadataRecord::{variant}(record) => record.encode(buffer, version),"
        )?;
        writeln!(keys, "MetadataRecord::{variant}(_) => {key},")?;
    }
    Ok(format!(
        "use crate::primitives::{{DecodeError, Reader, put_uvarint}};\n\n\
         /// The only frame version there is.\nconst FRAME_VERSION: u32 = 1;\n\n\
         /// One record of the metadata log.\n#[derive(Clone, Debug, PartialEq)]\n\
         pub enum MetadataRecord<'a> {{ {variants} }}\n\n\
         impl MetadataRecord<'_> {{\n/// The number that names the record's type in its frame.\n\
         pub fn record_type(&self) -> i16 {{ match self {{ {keys} }} }}\n}}\n\n\
         /// Writes a record's value: frame version, record type and record version as unsigned
         /// varints, then the body.\n\
         pub fn encode_frame(buffer: &mut Vec<u8>, record: &MetadataRecord<'_>, version: i16) {{\n\
         put_uvarint(buffer, FRAME_VERSION);\nput_uvarint(buffer, record.record_type() as u32);\n\
         put_uvarint(buffer, version as u32);\nmatch record {{ {encode} }}\n}}\n\n\
         /// Reads a record's value and returns it with its version.\n///\n\
         /// - Errors: `UnknownKey` for a type this version of Kafka does not have,
         ///   `UnsupportedVersion` likewise for \
         the frame or\n///   the record.\n\
         pub fn decode_frame(value: &[u8]) -> Result<(MetadataRecord<'_>, i16), DecodeError> {{\n\
         let mut reader = Reader::new(value);\nlet frame_version = reader.uvarint()?;\n\
         if frame_version != FRAME_VERSION {{\n\
         return Err(DecodeError::UnsupportedVersion {{ version: frame_version.min(i16::MAX as u32) as i16 }});\n}}\n\
         let key = reader.uvarint()?;\nlet version = reader.uvarint()?.min(i16::MAX as u32) as i16;\n\
         let record = match key {{ {decode} _ => return Err(DecodeError::UnknownKey {{ key: key.into() }}) }};\n\
         reader.finish()?;\nOk((record, version))\n}}\n"
    ))
}

/// One enum over the keys of `__consumer_offsets`.
fn coordinator_index(modules: &BTreeMap<String, Vec<Message>>) -> Result<String> {
    let mut variants = String::new();
    let mut decode = String::new();
    let mut ordered: Vec<(i16, &str, &Message)> = Vec::new();
    for (module, messages) in modules {
        // `__transaction_state` has its own numbers of record types.
        if module.starts_with("transaction_log") {
            continue;
        }
        for message in messages
            .iter()
            .filter(|message| message.kind == Kind::CoordinatorKey)
        {
            ordered.push((
                message.key.context("a coordinator key without a type")?,
                module,
                message,
            ));
        }
    }
    ordered.sort_by_key(|(key, _, _)| *key);
    for (key, module, message) in ordered {
        let name = &message.name;
        let variant = name.strip_suffix("Key").unwrap_or(name);
        writeln!(variants, "{variant}({module}::{name}<'a>),")?;
        writeln!(
            decode,
            "{key} => GroupRecordKey::{variant}({module}::{name}::decode(&mut reader, {module}::{name}::MAX_VERSION)?),"
        )?;
    }
    Ok(format!(
        "use crate::primitives::{{DecodeError, Reader}};\n\n\
         /// The key of a record in `__consumer_offsets`.\n#[derive(Clone, Debug, PartialEq)]\n\
         pub enum GroupRecordKey<'a> {{ {variants} \
         /// A type we keep but do not read: share groups, streams groups, or something newer.\n\
         Unknown {{ record_type: i16 }}, }}\n\n\
         impl<'a> GroupRecordKey<'a> {{\n/// Reads a record's key, whose first two bytes are the record type.\n\
         pub fn decode(bytes: &'a [u8]) -> Result<GroupRecordKey<'a>, DecodeError> {{\n\
         let mut reader = Reader::new(bytes);\nlet record_type = reader.i16()?;\n\
         let key = match record_type {{ {decode} _ => return Ok(GroupRecordKey::Unknown {{ record_type }}) }};\n\
         reader.finish()?;\nOk(key)\n}}\n}}\n"
    ))
}

fn write_formatted(target: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    for folder in [MESSAGES, METADATA_RECORDS, COORDINATOR_RECORDS] {
        let directory = target.join("src").join(folder);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
    }
    fs::create_dir_all(target.join(SAMPLES).parent().expect("a file lies in a folder"))?;
    for (path, source) in files {
        fs::write(target.join(path), source)?;
    }
    // rustfmt finds all other files through the index files.
    let roots = files
        .keys()
        .filter(|path| path.ends_with("/mod.rs") || *path == SAMPLES);
    let mut rustfmt = Command::new("rustfmt");
    rustfmt
        .arg("--edition=2024")
        .arg("--config-path")
        .arg(kafka_jars::root());
    rustfmt.args(roots.map(|path| target.join(path)));
    kafka_jars::run_tool(&mut rustfmt, "formats generated code")?;
    Ok(())
}

fn check(wire: &Path, scratch: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    for folder in [MESSAGES, METADATA_RECORDS, COORDINATOR_RECORDS] {
        for entry in fs::read_dir(wire.join("src").join(folder))? {
            let name = format!("src/{folder}/{}", entry?.file_name().to_string_lossy());
            if !files.contains_key(&name) {
                bail!("crates/wire/{name} has no schema; run `cargo xtask codegen`");
            }
        }
    }
    for path in files.keys() {
        if fs::read(wire.join(path)).ok() != Some(fs::read(scratch.join(path))?) {
            bail!("crates/wire/{path} is stale; run `cargo xtask codegen`");
        }
    }
    Ok(())
}
