//! What the screen shows: three documents of the admin address.

use std::collections::BTreeMap;

use ottla_lab::ask::Door;
use ottla_lab::doctor::diagnosis::Diagnosis;
use ottla_lab::tenants::document::Document;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The limit of an answer: ten thousand clients with all their reasoning are about 100 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The version of the console's documents that is understood.
const VERSION: u32 = 1;

#[derive(Clone, Debug)]
pub struct Overview {
    pub broker: Broker,
    pub groups: Vec<GroupLag>,
    pub tenants: Document,
}

/// `GET /index.json`. What is not known yet is `None`.
#[derive(Clone, Debug, Deserialize)]
pub struct Broker {
    version: u32,
    pub summary: String,
    pub records_in_per_second: Option<f64>,
    pub bytes_in_per_second: Option<f64>,
    pub bytes_out_per_second: Option<f64>,
    pub cold_reads_per_second: Option<f64>,
    pub event_loops_busy: Option<f64>,
    pub connections: Option<u64>,
    pub resident_memory_bytes: Option<u64>,
    pub disk: Option<Disk>,
    pub apis: Vec<Api>,
    pub clients: Option<Vec<Diagnosis>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Disk {
    pub used_bytes: u64,
    pub total_bytes: u64,
}

/// Requests of one API in the last minute.
#[derive(Clone, Debug, Deserialize)]
pub struct Api {
    pub api: String,
    pub requests_per_second: f64,
    pub own_mean_ms: f64,
    pub own_p50_ms: Option<f64>,
    pub own_p99_ms: Option<f64>,
    pub stage_means_ms: BTreeMap<String, f64>,
}

/// `GET /groups.json`.
#[derive(Clone, Debug, Deserialize)]
struct Groups {
    version: u32,
    groups: Vec<GroupLag>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct GroupLag {
    pub group: Group,
    pub lag_records: i64,
    /// `None`: not known of every partition.
    pub lag_seconds: Option<f64>,
    /// Of the partitions where it is known.
    #[serde(default)]
    pub lag_seconds_known_max: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub group_id: String,
    pub members: Vec<serde::de::IgnoredAny>,
    /// The lag is at least what is told, where these were left out.
    #[serde(default)]
    pub cut_partitions: usize,
}

impl Overview {
    /// Asks a broker.
    ///
    /// - Errors: no answer, or one that is not understood, in words.
    pub fn ask(door: &Door) -> Result<Overview, String> {
        let broker: Broker = read(door, "/index.json")?;
        let groups: Groups = read(door, "/groups.json")?;
        for version in [broker.version, groups.version] {
            if version != VERSION {
                return Err(format!(
                    "{door}: its documents have version {version}, this program knows {VERSION}"
                ));
            }
        }
        let tenants = text(door, "/tenants")?;
        Ok(Overview {
            broker,
            groups: groups.groups,
            tenants: Document::read(&tenants).map_err(|problem| format!("{door}: {problem}"))?,
        })
    }
}

fn read<T: DeserializeOwned>(door: &Door, path: &str) -> Result<T, String> {
    serde_json::from_str(&text(door, path)?).map_err(|error| format!("{door}: {path}: {error}"))
}

fn text(door: &Door, path: &str) -> Result<String, String> {
    door.ask("GET", path, ANSWER_BYTES_MAX)
        .map_err(|error| format!("{door}: {error}"))
}

/// The console's invented broker under load, as its JSON shows it.
#[cfg(test)]
pub fn sample() -> Overview {
    use ottla_console::sample::{State, site};
    use ottla_console::site::Ask;

    let site = site(State::Hostile, 0);
    let body = |path| {
        let ask = Ask {
            path,
            query: "",
            wants_json: true,
        };
        site.answer(ask).body
    };
    let broker: Broker = serde_json::from_str(&body("/")).unwrap();
    let groups: Groups = serde_json::from_str(&body("/groups")).unwrap();
    Overview {
        broker,
        groups: groups.groups,
        tenants: crate::cli::tenants::sample(),
    }
}
