//! consumer 12: will unread records be deleted?
//!
//! Retention deletes by age, whether records were read or not. The age of the record that is read
//! next grows by 1 - consumed / produced seconds per second; when it reaches retention.ms the
//! reader loses records.
//!
//! - Numbers: age of the next record of each partition, retention.ms, records per second consumed
//!   and produced.
//! - Thresholds: none; reported whenever the age grows.
//! - Says: "will lose data in 3.2 h".
//! - Source: how retention deletes segments.

use super::super::super::diagnosis::Evidence;
use super::super::words;
use super::found::{Found, known};
use super::reading::{Reading, sane};
use crate::formulas::consumer::{age_growth, seconds_until_loss};
use crate::numbers::duration;

pub fn retention(reading: &Reading<'_>) -> Found {
    let setting = reading.snapshot.settings.retention_ms;
    let retention_ms = sane(setting.map(|setting| setting.value));
    let origin = setting.map_or("stated", |setting| words::origin(setting.origin));
    let age_ms = reading.age_ms();
    let numbers = [known("age", age_ms, "ms"), known("retention", retention_ms, "ms")].join(", ");
    let (Some(age), Some(retention)) = (age_ms, retention_ms) else {
        return Found::nothing(
            numbers,
            "the age of the next record or the retention is not known",
        );
    };
    if age >= retention && retention > 0.0 {
        let text = format!(
            "records are {} old and the retention is {}: unread records are being deleted",
            duration(age / 1_000.0),
            duration(retention / 1_000.0)
        );
        return Found::nothing(numbers, text.clone()).note(text);
    }
    let soonest = reading
        .consumer
        .partitions
        .iter()
        .filter_map(|partition| {
            let age = sane(partition.lag_ms)?;
            let produced = sane(partition.produced_per_second).filter(|rate| *rate > 0.0)?;
            let growth = age_growth(sane(partition.consumed_per_second)?, produced);
            Some((seconds_until_loss(age, retention, growth), partition, growth))
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|soonest| soonest.0.is_finite());
    let Some((seconds, partition, growth)) = soonest else {
        return Found::nothing(numbers, "no: the age of what is read does not grow");
    };
    let text = format!(
        "will lose data in {} ({}-{})",
        duration(seconds),
        partition.topic,
        partition.partition
    );
    Found::nothing(numbers, text.clone())
        .note(text)
        .evidence([Evidence::new(
            "retention",
            "loss",
            "(retention - age) / 1000 / growth",
            seconds,
            "s",
        )
        .with("retention", retention, "ms", origin)
        .measured("age", sane(partition.lag_ms).unwrap_or(0.0), "ms")
        .measured("growth", growth, "s/s")])
}
