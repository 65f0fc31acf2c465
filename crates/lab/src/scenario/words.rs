//! The words of a scenario for kinds of load: contents, keys, partitioning.

use std::sync::Arc;

use super::error::hint;
use crate::load::requests::Api;
use crate::load::{Contents, Keys, Partitioning};

/// The largest file with example values: all of it is kept in memory.
const CONTENTS_FILE_BYTES_MAX: u64 = 64 << 20;

/// Parses `random`, `json`, `letters`, or `file:PATH` with one value per line.
///
/// - Errors: what is wrong, in words, including an unreadable or empty file.
pub fn contents(text: &str) -> Result<Contents, String> {
    match text {
        "random" => Ok(Contents::Random),
        "json" => Ok(Contents::Json),
        "letters" => Ok(Contents::Letters),
        _ => match text.strip_prefix("file:") {
            Some(path) => lines_of(path).map(Contents::Given),
            None => Err(unknown(text, &["random", "json", "letters", "file:PATH"])),
        },
    }
}

fn lines_of(path: &str) -> Result<Arc<[Vec<u8>]>, String> {
    let told = |error: std::io::Error| format!("{path}: {error}");
    let bytes = std::fs::metadata(path).map_err(told)?.len();
    if bytes > CONTENTS_FILE_BYTES_MAX {
        return Err(format!(
            "{path} has {bytes} bytes; at most {CONTENTS_FILE_BYTES_MAX} are read"
        ));
    }
    let text = std::fs::read(path).map_err(told)?;
    let lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    if lines.is_empty() {
        return Err(format!("{path} has no lines"));
    }
    Ok(lines.into())
}

/// Parses `none`, `sequential:N` or `random:N`.
pub fn keys(text: &str) -> Result<Keys, String> {
    if text == "none" {
        return Ok(Keys::None);
    }
    let Some((kind, count)) = text.split_once(':') else {
        return Err(unknown(text, &["none", "sequential:N", "random:N"]));
    };
    let count: u64 = match count.parse() {
        Ok(0) | Err(_) => return Err(format!("{count} in {text} is not a number of keys of at least 1")),
        Ok(count) => count,
    };
    match kind {
        "sequential" => Ok(Keys::Sequential(count)),
        "random" => Ok(Keys::Random(count)),
        _ => Err(unknown(text, &["none", "sequential:N", "random:N"])),
    }
}

/// Parses `client`, `round-robin` or `own`.
pub fn partitioning(text: &str) -> Result<Partitioning, String> {
    match text {
        "client" => Ok(Partitioning::Client),
        "round-robin" => Ok(Partitioning::RoundRobin),
        "own" => Ok(Partitioning::OwnPerThread),
        _ => Err(unknown(text, &["client", "round-robin", "own"])),
    }
}

/// Parses `produce`, `metadata` or `api-versions`.
pub fn api(text: &str) -> Result<Api, String> {
    match text {
        "produce" => Ok(Api::Produce),
        "metadata" => Ok(Api::Metadata),
        "api-versions" => Ok(Api::ApiVersions),
        _ => Err(unknown(text, &["produce", "metadata", "api-versions"])),
    }
}

fn unknown(word: &str, known: &[&str]) -> String {
    let near = hint(word, known.iter().copied());
    format!("{word} is none of {}{near}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        assert_eq!(contents("json"), Ok(Contents::Json));
        assert_eq!(keys("sequential:12"), Ok(Keys::Sequential(12)));
        assert_eq!(keys("random:1"), Ok(Keys::Random(1)));
        assert_eq!(partitioning("own"), Ok(Partitioning::OwnPerThread));
        assert_eq!(api("metadata"), Ok(Api::Metadata));
    }

    #[test]
    fn a_misspelt_word_is_reported_with_the_nearest_one() {
        assert!(
            partitioning("round_robin")
                .unwrap_err()
                .ends_with("; round-robin may be meant")
        );
        assert!(
            api("api_versions")
                .unwrap_err()
                .ends_with("; api-versions may be meant")
        );
        assert!(
            contents("leters")
                .unwrap_err()
                .ends_with("; letters may be meant")
        );
        assert!(
            keys("sequential:none")
                .unwrap_err()
                .contains("none in sequential:none")
        );
        assert!(keys("random:0").unwrap_err().contains("at least 1"));
    }

    #[test]
    fn values_come_from_the_lines_of_a_file() {
        let path = std::env::temp_dir().join(format!("ottla-lab-contents-{}", std::process::id()));
        std::fs::write(&path, "one\r\n\ntwo\n").unwrap();
        let read = contents(&format!("file:{}", path.display()));
        std::fs::write(&path, "\n").unwrap();
        let empty = contents(&format!("file:{}", path.display()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            read,
            Ok(Contents::Given(vec![b"one".to_vec(), b"two".to_vec()].into()))
        );
        assert!(empty.unwrap_err().ends_with("has no lines"));
    }
}
