//! The effect of changes on a consumer: fetch sizes and waits, more consumers.

use super::setting::Wanted;
use super::{Change, Prediction};
use crate::doctor::calculator::Invalid;
use crate::doctor::diagnosis::{Evidence, Promise, Refusal, Words};
use crate::doctor::rules::consumer::reading::{Reading, sane};
use crate::doctor::snapshot::{Consumer, Snapshot};
use crate::formulas::consumer::{catch_up_seconds, work_ms};
use crate::model::growth::share_left;
use crate::numbers::{bytes, number, percent};

pub fn predict(snapshot: &Snapshot, wanted: &Wanted) -> Result<Prediction, Invalid> {
    let nothing = Consumer::default();
    let consumer = snapshot.consumer.as_ref().unwrap_or(&nothing);
    let reading = Reading::of(snapshot, consumer);
    let Some(consumed) = reading.consumed.filter(|rate| *rate > 0.0) else {
        return Err(Invalid(String::from(
            "the snapshot has no records per second: nothing can be predicted",
        )));
    };
    let mut work = Work {
        reading,
        consumed,
        prediction: Prediction::default(),
    };
    for (name, text) in wanted.texts() {
        let from = work.now(name);
        work.prediction.changes.push(Change {
            set: name.to_owned(),
            from,
            to: text.to_owned(),
        });
    }
    work.waits(wanted);
    work.sizes(wanted);
    work.polls(wanted);
    work.members(wanted);
    work.next();
    Ok(work.prediction)
}

struct Work<'a> {
    reading: Reading<'a>,
    consumed: f64,
    prediction: Prediction,
}

impl Work<'_> {
    fn now(&self, name: &str) -> Option<String> {
        let told = |known: (f64, &str)| Some(format!("{} ({})", known.0, known.1));
        match name {
            "fetch.min.bytes" => told(self.reading.min_bytes),
            "fetch.max.wait.ms" => told(self.reading.wait_ms),
            "fetch.max.bytes" => told(self.reading.max_bytes),
            "max.partition.fetch.bytes" => told(self.reading.partition_bytes),
            "consumers" => sane(self.reading.consumer.group_members).map(number),
            "partitions" => self.reading.partitions.map(number),
            _ => None,
        }
    }

    fn unchanged(&mut self, set: &'static str, why: impl Into<Words>) {
        self.prediction.unchanged.push(Refusal {
            set: set.into(),
            why: why.into(),
        });
    }

    fn is_behind(&self) -> bool {
        self.reading.is_lag_small() == Some(false)
    }

    fn promise_rate(&mut self, low: f64, high: f64, assumption: &str) {
        // A consumer that keeps up reads what is produced, not more.
        let high = if self.is_behind() {
            high
        } else {
            high.min(self.consumed)
        };
        self.prediction.changed.push(Promise {
            figure: String::from("records_per_second"),
            now: Some(self.consumed),
            low: low.min(high),
            high,
            unit: String::from("records/s"),
            assumption: assumption.to_owned(),
            unknown: None,
        });
        if let (Some(lag), Some(produced)) = (self.reading.lag, self.reading.produced) {
            for rate in [low.min(high), high] {
                self.prediction.lines.push(
                    Evidence::new(
                        "F29",
                        "catch_up'",
                        "lag / (consumed - produced)",
                        catch_up_seconds(lag, rate, produced),
                        "s",
                    )
                    .measured("lag", lag, "records")
                    .with("consumed", rate, "records/s", "worked out")
                    .measured("produced", produced, "records/s"),
                );
            }
        }
    }

    fn waits(&mut self, wanted: &Wanted) {
        let names = ["fetch.min.bytes", "fetch.max.wait.ms"];
        let given: Vec<&str> = names
            .into_iter()
            .filter(|name| wanted.get(name).is_some())
            .collect();
        if given.is_empty() {
            return;
        }
        let waits = self.reading.is_fetch_waiting() == Some(true);
        let Some(fetch_ms) = self.reading.fetch_ms.filter(|_| waits) else {
            for name in given {
                self.unchanged(
                    name,
                    "fetches do not take as long as fetch.max.wait.ms: they are not waiting for records",
                );
            }
            return;
        };
        let wait = wanted.get("fetch.max.wait.ms").unwrap_or(self.reading.wait_ms.0);
        let min_bytes = wanted.get("fetch.min.bytes").unwrap_or(self.reading.min_bytes.0);
        let rate = sane(self.reading.consumer.bytes_per_second).filter(|rate| *rate > 0.0);
        // The time until this many bytes have arrived.
        let filled = rate.map_or(wait, |rate| 1_000.0 * min_bytes / rate);
        let after = filled.min(wait);
        self.prediction.lines.push(
            Evidence::new(
                "fetch wait",
                "wait'",
                "min(fetch.max.wait.ms, 1000 * fetch.min.bytes / bytes)",
                after,
                "ms",
            )
            .with("fetch.max.wait.ms", wait, "ms", "wanted or now")
            .with("fetch.min.bytes", min_bytes, "B", "wanted or now")
            .measured("bytes", rate.unwrap_or(0.0), "B/s"),
        );
        self.prediction.changed.push(Promise {
            figure: String::from("fetch_ms"),
            now: Some(fetch_ms),
            low: after.min(fetch_ms),
            high: (after + sane(self.reading.snapshot.network.round_trip_ms).unwrap_or(0.0))
                .max(after.min(fetch_ms)),
            unit: String::from("ms"),
            assumption: String::from("records come as evenly as now"),
            unknown: None,
        });
        self.prediction.notes.push(format!(
            "the rate stays {} records/s: what is produced is read, only earlier or later",
            number(self.consumed)
        ));
    }

    fn sizes(&mut self, wanted: &Wanted) {
        for (name, now) in [
            ("max.partition.fetch.bytes", self.reading.partition_bytes.0),
            ("fetch.max.bytes", self.reading.max_bytes.0),
        ] {
            let Some(value) = wanted.get(name) else {
                continue;
            };
            let size = self.reading.fetch_bytes;
            let is_limit = size.is_some_and(|size| size >= 0.85 * now);
            let waits = self.reading.idle.is_some_and(|idle| idle > 0.5);
            if value >= now && !(is_limit && waits) {
                let why = match (size, self.reading.idle) {
                    (_, Some(idle)) if idle <= 0.5 => {
                        format!(
                            "polls wait {} of the time only: the application, not the fetches, is the limit",
                            percent(idle)
                        )
                    }
                    (Some(size), _) if !is_limit => {
                        format!("fetches bring {} and do not reach it", bytes(size))
                    }
                    _ => String::from("that fetches reach it is not known"),
                };
                self.unchanged(name, why);
                continue;
            }
            self.resized(name, value / now, size.unwrap_or(now));
        }
    }

    fn resized(&mut self, name: &str, growth: f64, size: f64) {
        let fetch_ms = self.reading.fetch_ms.unwrap_or(0.0);
        let fixed_ms = self.reading.round_trip_ms.unwrap_or(0.0);
        let full = self.consumed * growth;
        let bounded = self.reading.work_limit().map_or(full, |limit| full.min(limit));
        let low = match self.reading.fetch_ms {
            Some(fetch_ms) => full * share_left(growth, fetch_ms, fixed_ms),
            None => self.consumed,
        };
        self.prediction.lines.push(
            Evidence::new(
                "F29",
                "fetch_max'",
                "1000 * size / latency",
                1_000.0 * size * growth / fetch_ms,
                "B/s per broker",
            )
            .with("size", size * growth, "B", "worked out")
            .measured("latency", fetch_ms, "ms"),
        );
        self.promise_rate(
            low.min(bounded),
            bounded,
            "at unchanged fetch latency; the lower bound where all of it but the round trip grows with the size",
        );
        self.prediction.notes.push(format!(
            "{name}: memory at the consumer grows with it, for each partition"
        ));
    }

    fn polls(&mut self, wanted: &Wanted) {
        if let Some(records) = wanted.get("max.poll.records") {
            let per_poll = work_ms(self.reading.idle.unwrap_or(0.0), self.consumed) * records;
            self.prediction.lines.push(
                Evidence::new(
                    "polls",
                    "between",
                    "work * max.poll.records",
                    per_poll,
                    "ms between polls at most",
                )
                .with("work", per_poll / records, "ms", "worked out")
                .with("max.poll.records", records, "", "wanted"),
            );
            self.unchanged(
                "max.poll.records",
                "throughput, unless the application waits once for each poll, as for a transaction of a database",
            );
        }
        if wanted.get("max.poll.interval.ms").is_some() {
            self.unchanged(
                "max.poll.interval.ms",
                "throughput: it only decides when a member that does not poll is expelled",
            );
        }
    }

    fn members(&mut self, wanted: &Wanted) {
        if wanted.get("partitions").is_some() && wanted.get("consumers").is_none() {
            self.unchanged(
                "partitions",
                "one consumer reads them all, at the same rate; more of them need more consumers",
            );
        }
        let Some(consumers) = wanted.get("consumers") else {
            return;
        };
        let members = sane(self.reading.consumer.group_members).unwrap_or(1.0).max(1.0);
        let partitions = wanted
            .get("partitions")
            .or(sane(self.reading.consumer.group_partitions))
            .or(self.reading.partitions.filter(|_| members <= 1.0));
        let working = partitions.map_or(consumers, |partitions| consumers.min(partitions));
        if working < consumers {
            self.unchanged(
                "consumers",
                format!(
                    "{} of them would be idle: there are {} partitions",
                    number(consumers - working),
                    number(working)
                ),
            );
        }
        let full = self.consumed * working / members;
        self.prediction.lines.push(
            Evidence::new(
                "F29",
                "together",
                "X * members",
                self.consumed * working,
                "records/s of the group",
            )
            .measured("X", self.consumed, "records/s")
            .with("members", working, "", "wanted"),
        );
        if self.reading.idle.is_some_and(|idle| idle > 0.8) && !self.is_behind() {
            self.unchanged(
                "consumers",
                "it keeps up: more of them would share what is produced",
            );
            return;
        }
        self.promise_rate(
            0.9 * full,
            full,
            "at unchanged work per record, for the partitions that this consumer has now",
        );
    }

    fn next(&mut self) {
        let mut ceilings = Vec::new();
        if let Some(limit) = self.reading.work_limit() {
            ceilings.push((limit, "the application's work on records (F29)"));
        }
        if let Some(limit) = crate::doctor::rules::consumer::fetches::records_per_second_max(&self.reading) {
            ceilings.push((limit, "fetches: size over latency (F29)"));
        }
        ceilings.sort_by(|one, other| one.0.total_cmp(&other.0));
        self.prediction.next_ceiling = match ceilings.first() {
            Some((rate, name)) => format!("{} records/s in each consumer: {name}", number(*rate)),
            None => String::from("not known: the idle share of polls and fetch sizes are missing"),
        };
    }
}
