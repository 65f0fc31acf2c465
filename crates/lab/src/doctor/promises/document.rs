//! The list of promises as commands print it and other programs read it.

use serde::{Deserialize, Serialize};

use super::super::diagnosis::Verdict;
use super::super::snapshot::Role;
use super::score::Score;
use crate::numbers::{count, number};

/// Version of the JSON; it changes when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// All promises that are kept in mind, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Promises {
    pub version: u32,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub promises: Vec<Row>,
    /// Promises that were decided since the start; those that are no longer listed count as well.
    pub kept: u64,
    pub not_kept: u64,
    pub not_tested: u64,
    /// The client came back, and nothing shows whether it has the setting: not counted above.
    pub unknown: u64,
    /// Recommendations that are not followed up because the list is full.
    pub left_out: u64,
}

/// One promise to one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub client_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub principal: String,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The instance that it was promised to, and the one that it was measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_after: Option<String>,
    /// `batch.size=16384`
    pub set: String,
    pub figure: String,
    pub unit: String,
    /// The figure when it was promised.
    pub before: Option<f64>,
    pub low: f64,
    pub high: f64,
    pub assumption: String,
    pub promised_ms: i64,
    pub verdict_before: Verdict,
    pub score: Score,
    /// How it is known that the setting was applied; empty as long as it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied: String,
    /// The figure after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict_after: Option<Verdict>,
    /// Why it was not kept, not tested, or cannot be told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_ms: Option<i64>,
}

impl Row {
    /// `4,000 records/s`, `4,000 to 5,000 records/s`
    pub fn promised(&self) -> String {
        let (low, high) = (number(self.low), number(self.high));
        let range = match low == high {
            true => low,
            false => format!("{low} to {high}"),
        };
        self.with_unit(range)
    }

    pub fn with_unit(&self, value: String) -> String {
        match self.unit.as_str() {
            "" => value,
            unit => format!("{value} {unit}"),
        }
    }

    /// `Promised 4,000 records/s by batch.size=16384; measured 3,980: kept.`
    pub fn sentence(&self) -> String {
        let measured = match self.after {
            Some(after) => format!("; measured {}", number(after)),
            None => String::new(),
        };
        let because = match self.because.as_str() {
            "" => String::new(),
            because => format!(", because {because}"),
        };
        format!(
            "Promised {} by {}{measured}: {}{because}.",
            self.promised(),
            self.set,
            self.score.name()
        )
    }
}

impl Promises {
    /// The newest promise that was decided about this client at `since_ms` or later.
    pub fn decided_lately(
        &self,
        client_id: &str,
        instance_id: Option<&str>,
        role: Role,
        since_ms: i64,
    ) -> Option<&Row> {
        let rows = self.promises.iter().filter(|row| {
            row.client_id == client_id
                && row.role == role
                && (row.instance_after.as_deref() == instance_id || row.instance_after.is_none())
                && row.decided_ms.is_some_and(|decided_ms| decided_ms >= since_ms)
        });
        rows.max_by_key(|row| row.decided_ms)
    }

    /// `7 promises: 5 kept, 1 not kept, 1 not tested`
    pub fn summary(&self) -> String {
        let listed =
            |score: fn(Score) -> bool| self.promises.iter().filter(|row| score(row.score)).count() as u64;
        let open = listed(|score| !score.is_decided());
        let decided = self.kept + self.not_kept + self.not_tested;
        let mut text = match decided {
            0 => String::from("No promise has been decided"),
            1 => String::from("1 promise"),
            many => format!("{} promises", count(many)),
        };
        let parts = [
            (self.kept, "kept"),
            (self.not_kept, "not kept"),
            (self.not_tested, "not tested"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(number)))
            .collect();
        if !parts.is_empty() {
            text.push_str(": ");
            text.push_str(&parts.join(", "));
        }
        let more = [
            (open, "waiting for the client to come back with the setting"),
            (
                self.unknown,
                "not counted: nothing shows whether the setting was applied",
            ),
            (self.left_out, "not followed up: the list is full"),
        ];
        for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
            text.push_str(&format!("; {} {what}", count(number)));
        }
        text.push('.');
        text
    }
}
