//! The contents of records: written to files, so that every contender sends the same bytes and
//! spends no time on making them.

use super::case::Content;
use crate::interop::toolchain;
use anyhow::{Context, Result};
use ottla_wire::random;
use std::fs;
use std::path::PathBuf;

/// The number of different records, which are sent in turn: more than fits into any codec's window.
const COUNT: usize = 4096;

const CITIES: [&str; 6] = ["Praha", "Brno", "Ostrava", "Plzen", "Liberec", "Olomouc"];

/// The same numbers in every run.
struct Random(random::Random);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }
}

/// Returns the file with consecutive records of `bytes` each.
pub fn file(bytes: usize, content: Content) -> Result<PathBuf> {
    let folder = toolchain::cargo_target().join("bench-client/payloads");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}-{bytes}", content.name()));
    fs::write(&path, records(bytes, content)).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn records(bytes: usize, content: Content) -> Vec<u8> {
    let mut random = Random(random::Random::new(bytes as u64));
    let mut all = Vec::with_capacity(bytes * COUNT);
    for number in 0..COUNT {
        let mut record = Vec::with_capacity(bytes + 96);
        while record.len() < bytes {
            match content {
                Content::Random => record.extend_from_slice(&random.0.next_u64().to_le_bytes()),
                Content::Json => record.extend_from_slice(order(number, &mut random).as_bytes()),
            }
        }
        all.extend_from_slice(&record[..bytes]);
    }
    all
}

fn order(number: usize, random: &mut Random) -> String {
    format!(
        "{{\"order\":{},\"customer\":\"c-{:05}\",\"amount\":{}.{:02},\"city\":\"{}\",\"paid\":{}}},",
        number * 7919,
        random.below(50_000),
        random.below(1000),
        random.below(100),
        CITIES[random.below(6) as usize],
        random.below(2) == 0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_size_and_differ() {
        for content in [Content::Json, Content::Random] {
            let all = records(100, content);
            assert_eq!(all.len(), 100 * COUNT);
            let distinct: std::collections::BTreeSet<&[u8]> = all.chunks(100).collect();
            assert_eq!(distinct.len(), COUNT);
            assert_eq!(all, records(100, content));
        }
    }
}
