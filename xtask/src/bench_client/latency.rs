//! Exact percentiles of a schedule: every record's latency is in a file, nothing is sampled, merged
//! or clipped.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Milliseconds from the moment a record was due to its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// From the due time to the call of `send`: how well the schedule was kept.
    pub late_p99_ms: f64,
    pub count: usize,
}

/// Reads `records` latencies and the same number of delays, in nanoseconds.
pub fn read(path: &Path, records: usize) -> Result<Latencies> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        bytes.len() == records * 16,
        "{} holds {} bytes, expected {}",
        path.display(),
        bytes.len(),
        records * 16
    );
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")))
        .collect();
    let (answered, late) = words.split_at(records);
    Ok(summary(answered.to_vec(), late.to_vec()))
}

fn summary(mut answered: Vec<u64>, mut late: Vec<u64>) -> Latencies {
    answered.sort_unstable();
    late.sort_unstable();
    let at = |sorted: &[u64], share: f64| {
        let place = (share * sorted.len() as f64) as usize;
        sorted
            .get(place.min(sorted.len().saturating_sub(1)))
            .map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
    };
    Latencies {
        p50: at(&answered, 0.5),
        p95: at(&answered, 0.95),
        p99: at(&answered, 0.99),
        p999: at(&answered, 0.999),
        max: at(&answered, 1.0),
        late_p99_ms: at(&late, 0.99),
        count: answered.len(),
    }
}

impl Latencies {
    pub fn json(&self) -> Value {
        json!({"p50": self.p50, "p95": self.p95, "p99": self.p99, "p999": self.p999, "max": self.max,
            "late_p99": self.late_p99_ms, "count": self.count})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let nanos: Vec<u64> = (1..=1000).rev().map(|n| n * 1_000_000).collect();
        let found = summary(nanos.clone(), nanos);
        assert_eq!((found.p50, found.p99, found.max), (501.0, 991.0, 1000.0));
        assert_eq!(found.late_p99_ms, 991.0);
    }
}
