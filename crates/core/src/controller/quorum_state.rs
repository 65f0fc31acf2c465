//! `quorum-state`: the epoch in which this node last led the metadata log; it must never go back.

use std::fmt;
use std::path::Path;

use ottla_log::LogError;
use ottla_log::checkpoint::{read_file, write_file};
use ottla_log::disk::Disk;

pub const QUORUM_STATE_FILE: &str = "quorum-state";

/// The fields of Kafka's file that are used on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumState {
    pub leader_id: i32,
    pub leader_epoch: i32,
    /// 0: voters are listed in this file. 1: voters are in the log, as with kraft.version 1.
    pub data_version: i16,
}

impl QuorumState {
    /// Reads the file; `None` if it does not exist.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<QuorumState>, LogError> {
        let path = directory.join(QUORUM_STATE_FILE);
        let Some(bytes) = read_file(disk, &path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        let corrupt = |field: &str| LogError::Corrupt {
            path: path.clone(),
            position: 0,
            reason: format!("no number in {field}"),
        };
        let number = |field: &'static str| number_field(&text, field);
        Ok(Some(QuorumState {
            leader_id: number("leaderId").and_then(|id| id.try_into().ok()).unwrap_or(-1),
            leader_epoch: number("leaderEpoch")
                .and_then(|epoch| epoch.try_into().ok())
                .ok_or_else(|| corrupt("leaderEpoch"))?,
            data_version: number("data_version")
                .and_then(|version| version.try_into().ok())
                .unwrap_or(0),
        }))
    }

    /// Writes the file; it is durable on return.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        write_file(
            disk,
            &directory.join(QUORUM_STATE_FILE),
            self.to_string().as_bytes(),
        )
    }
}

impl fmt::Display for QuorumState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuorumState {
            leader_id,
            leader_epoch,
            data_version,
        } = self;
        if *data_version == 0 {
            return write!(
                f,
                "{{\"clusterId\":\"\",\"leaderId\":{leader_id},\"leaderEpoch\":{leader_epoch},\"votedId\":-1,\
                 \"appliedOffset\":0,\"currentVoters\":[{{\"voterId\":{leader_id}}}],\"data_version\":0}}"
            );
        }
        write!(
            f,
            "{{\"leaderId\":{leader_id},\"leaderEpoch\":{leader_epoch},\"votedId\":-1,\
             \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":{data_version}}}"
        )
    }
}

// The file is one flat object with known names, so no JSON parser is needed.
fn number_field(text: &str, field: &str) -> Option<i64> {
    let quoted = format!("\"{field}\"");
    let rest = text
        .split_once(quoted.as_str())?
        .1
        .trim_start()
        .strip_prefix(':')?
        .trim_start();
    let end = rest
        .find(|c: char| c != '-' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_file_is_read_and_written_unchanged() {
        let kafkas = include_str!("../../tests/golden/metadata-4.3.0/quorum-state");
        let state = QuorumState {
            leader_id: 1,
            leader_epoch: 1,
            data_version: 1,
        };
        assert_eq!(state.to_string(), kafkas);
        assert_eq!(number_field(kafkas, "leaderEpoch"), Some(1));
        assert_eq!(number_field("{ \"leaderEpoch\" : 12 }", "leaderEpoch"), Some(12));
        assert_eq!(number_field("{\"leaderEpoch\":x}", "leaderEpoch"), None);
    }
}
