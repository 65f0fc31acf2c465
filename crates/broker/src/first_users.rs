//! The users that an empty directory begins with: from the command line, and from the file
//! `ottla.bootstrap.scram.file`, whose passwords no other process sees in a list of processes.

use std::path::Path;

use ottla_core::config::{ConfigError, FirstUser};
use ottla_core::random::SecretSeed;
use ottla_core::sasl::nonce::Nonces;

use crate::properties::Properties;

const OPTION: &str = "--add-scram";
const FILE: &str = "ottla.bootstrap.scram.file";

/// Parses the users of the command line.
pub fn of_arguments(arguments: &[String], seed: SecretSeed) -> Result<Vec<FirstUser>, ConfigError> {
    let salts = Nonces::new(seed, "salts of arguments");
    let users = arguments
        .iter()
        .map(|text| parse(text, &salts).map_err(|problem| ConfigError::new(OPTION, "[hidden]", problem)));
    users.collect()
}

/// Reads the users of the file, if one is configured.
pub fn of_file(properties: &Properties, seed: SecretSeed) -> Result<Vec<FirstUser>, ConfigError> {
    let path = properties.get(FILE).map(|path| path.trim());
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(Vec::new());
    };
    let refuse = |problem: String| ConfigError::new(FILE, path, problem);
    let text = std::fs::read_to_string(Path::new(path)).map_err(|error| refuse(error.to_string()))?;
    let salts = Nonces::new(seed, "salts of the file");
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            parse(line, &salts).map_err(|problem| refuse(format!("line {}: {problem}", index + 1)))
        })
        .collect()
}

fn parse(text: &str, salts: &Nonces) -> Result<FirstUser, String> {
    FirstUser::parse(text, || salts.text().into_bytes().into())
}
