//! The effect of a change on a producer: larger requests, more of them under way, a larger window.

use super::pipe::{Pipe, PipeValue};
use super::setting::Wanted;
use super::{Change, Prediction};
use crate::doctor::calculator::Invalid;
use crate::doctor::diagnosis::{Evidence, Promise, Refusal, Verdict, Words};
use crate::doctor::rules;
use crate::doctor::snapshot::Snapshot;
use crate::formulas::batching::{expected_batch_bytes, records_per_linger};
use crate::formulas::buffer::{queue_ms_max, seconds_until_full, wait_ms};
use crate::formulas::ceiling::in_flight_useful;
use crate::formulas::latency::worker_use;
use crate::formulas::wire::bytes_per_second_refined;
use crate::model::constants::{FULL, ORDERED_IN_FLIGHT};
use crate::model::pipe::connection;
use crate::numbers::{bytes, number, percent};

/// Batches emptier than this are not closed by batch.size (F18).
const FILL_LOW: f64 = 0.5;

pub fn predict(snapshot: &Snapshot, wanted: &Wanted) -> Result<Prediction, Invalid> {
    let before = Pipe::of(snapshot)?;
    let mut work = Work {
        snapshot,
        verdict: rules::examine(snapshot).verdict,
        before,
        after: before,
        growth: 1.0,
        prediction: Prediction::default(),
    };
    for (name, text) in wanted.texts() {
        let from = known_of(&before, name).map(|known| format!("{} ({})", known.value, known.origin));
        work.prediction.changes.push(Change {
            set: name.to_owned(),
            from,
            to: text.to_owned(),
        });
    }
    work.requests(wanted);
    work.in_flight(wanted);
    work.window(wanted);
    work.compression(wanted);
    work.durability(wanted);
    work.memory(wanted);
    work.threads(wanted);
    work.conclude();
    Ok(work.prediction)
}

fn known_of(pipe: &Pipe, name: &str) -> Option<PipeValue> {
    match name {
        "batch.size" => Some(pipe.batch_bytes),
        "linger.ms" => Some(pipe.linger_ms),
        "max.in.flight.requests.per.connection" => Some(pipe.in_flight),
        "send.buffer.bytes" => Some(pipe.send_buffer_bytes),
        "max.request.size" => Some(pipe.max_request_bytes),
        "buffer.memory" => Some(pipe.buffer_bytes),
        "threads" => pipe.threads.map(|value| PipeValue {
            value,
            origin: "stated",
        }),
        "partitions" => Some(PipeValue {
            value: pipe.partitions_per_broker * pipe.brokers,
            origin: "inferred",
        }),
        _ => None,
    }
}

/// A prediction in progress.
pub struct Work<'a> {
    pub snapshot: &'a Snapshot,
    /// The doctor's verdict on the client as it is.
    pub verdict: Verdict,
    pub before: Pipe,
    pub after: Pipe,
    /// g: the factor by which requests grow.
    pub growth: f64,
    pub prediction: Prediction,
}

impl Work<'_> {
    fn unchanged(&mut self, set: &'static str, why: impl Into<Words>) {
        self.prediction.unchanged.push(Refusal {
            set: set.into(),
            why: why.into(),
        });
    }

    fn set(&mut self, wanted: &Wanted, name: &str, of: fn(&mut Pipe) -> &mut PipeValue) -> bool {
        match wanted.get(name) {
            Some(value) => {
                *of(&mut self.after) = PipeValue {
                    value,
                    origin: "wanted",
                };
                true
            }
            None => false,
        }
    }

    /// The effect of batch.size, linger.ms, max.request.size and partitions: the size of requests.
    fn requests(&mut self, wanted: &Wanted) {
        let has_batch = self.set(wanted, "batch.size", |pipe| &mut pipe.batch_bytes);
        let has_linger = self.set(wanted, "linger.ms", |pipe| &mut pipe.linger_ms);
        let has_limit = self.set(wanted, "max.request.size", |pipe| &mut pipe.max_request_bytes);
        let has_partitions = match wanted.get("partitions") {
            Some(partitions) => {
                self.after.partitions_per_broker = (partitions / self.before.brokers).max(1.0);
                true
            }
            None => false,
        };
        if !(has_batch || has_linger || has_limit || has_partitions) {
            return;
        }
        let fill = self.before.fill_share();
        self.prediction.lines.push(
            Evidence::new("F18", "phi", "b / batch.size", fill, "")
                .measured(
                    "b",
                    self.before
                        .batch_bytes_mean
                        .unwrap_or(fill * self.before.batch_bytes.value),
                    "B",
                )
                .with(
                    "batch.size",
                    self.before.batch_bytes.value,
                    "B",
                    self.before.batch_bytes.origin,
                ),
        );
        if self.before.has_backlog() {
            self.full_batches(fill, [has_batch, has_linger, has_limit, has_partitions]);
        } else {
            self.lingering_batches([has_batch, has_linger, has_limit, has_partitions]);
        }
    }

    /// With a backlog batches fill completely, and requests take one batch of every partition.
    fn full_batches(&mut self, fill: f64, has: [bool; 4]) {
        let [has_batch, has_linger, has_limit, has_partitions] = has;
        if has_linger {
            let queue = self
                .before
                .queue_ms
                .map_or(String::new(), |queue| format!(" for {} ms", number(queue)));
            self.unchanged(
                "linger.ms",
                format!("batches stand in the queue{queue}, longer than any linger: they are sent when there is room, not when it ends"),
            );
        }
        if has_batch && fill < FILL_LOW && self.after.batch_bytes.value > self.before.batch_bytes.value {
            self.unchanged(
                "batch.size",
                format!("batches are {} full: something else closes them", percent(fill)),
            );
            self.after.batch_bytes = self.before.batch_bytes;
        }
        let grown = (self.after.request_bytes_max() / self.before.request_bytes_max()).max(1e-6);
        if has_limit && !has_batch && !has_partitions && (grown - 1.0).abs() < 1e-9 {
            let why = format!(
                "a request holds {} at most, by batches and partitions",
                bytes(self.before.request_bytes_max())
            );
            self.unchanged("max.request.size", why);
        }
        self.growth = grown;
        if has_partitions {
            self.prediction.notes.push(String::from(
                "partitions are permanent: they cost every broker and every follower, and keys move to other partitions",
            ));
        }
    }

    /// Without a backlog, batches hold what a linger collects.
    fn lingering_batches(&mut self, has: [bool; 4]) {
        let [has_batch, has_linger, has_limit, has_partitions] = has;
        let expected = |pipe: &Pipe| {
            let per_linger = records_per_linger(pipe.records_per_second, pipe.linger_ms.value).max(1.0);
            expected_batch_bytes(pipe.batch_bytes.value, per_linger, pipe.record_bytes(), 1.0)
        };
        let (old, new) = (expected(&self.before), expected(&self.after));
        let line = |pipe: &Pipe, result: f64| {
            Evidence::new(
                "F19",
                "b",
                "min(batch.size, max(1, X * linger / 1000) * record)",
                result,
                "B",
            )
            .with("batch.size", pipe.batch_bytes.value, "B", pipe.batch_bytes.origin)
            .measured("X", pipe.records_per_second, "records/s")
            .with("linger", pipe.linger_ms.value, "ms", pipe.linger_ms.origin)
            .measured("record", pipe.record_bytes(), "B")
        };
        self.prediction.lines.push(line(&self.before, old));
        self.prediction.lines.push(line(&self.after, new));
        // Scaled by the growth of the expected size; the measured size stays the base.
        self.growth = (new / old).max(1e-6);
        if has_batch && !has_linger && (self.growth - 1.0).abs() < 0.01 {
            self.unchanged(
                "batch.size",
                format!("linger closes batches at {}: they do not reach it", bytes(old)),
            );
        }
        let is_synchronous = self.verdict == Verdict::Synchronous;
        if has_linger && !has_batch && !is_synchronous && (self.growth - 1.0).abs() < 0.01 {
            self.unchanged(
                "linger.ms",
                "no more records come in that time than go into a batch already",
            );
        }
        if has_limit {
            self.unchanged("max.request.size", "requests are smaller");
        }
        if has_partitions {
            self.unchanged(
                "partitions",
                "there is no backlog; records with keys would only fill batches less",
            );
            self.after.partitions_per_broker = self.before.partitions_per_broker;
        }
        if self.growth != 1.0 {
            let now = self.before.requests_per_second;
            self.prediction.changed.push(Promise {
                figure: String::from("requests_per_second"),
                now: Some(now),
                low: (now / self.growth).min(now),
                high: (now / self.growth).max(now.min(now / self.growth.sqrt())),
                unit: String::from("requests/s"),
                assumption: String::from(
                    "records go to one partition after the other; with keys fewer come together",
                ),
                unknown: None,
            });
        }
    }

    fn in_flight(&mut self, wanted: &Wanted) {
        let name = "max.in.flight.requests.per.connection";
        if !self.set(wanted, name, |pipe| &mut pipe.in_flight) {
            return;
        }
        let (before, after) = (
            self.before.in_flight_effective(),
            self.after.in_flight_effective(),
        );
        if self.before.in_flight_use() < FULL && after >= before {
            let used = percent(self.before.in_flight_use());
            self.unchanged(
                name,
                format!("only {used} of the requests that may be under way are"),
            );
        } else if after <= before && self.after.in_flight.value > self.before.in_flight.value {
            let size = bytes(self.before.request_bytes);
            self.unchanged(
                name,
                format!("requests of {size} fill the socket's buffers: {} are under way, whatever is allowed (F8b)", number(before)),
            );
        }
        if let Some(window) = self.before.full_window().filter(|_| after > before) {
            let holds = bytes(window);
            self.unchanged(
                name,
                format!("the window holds {holds} and is full: more requests at once only wait for it (F12)"),
            );
        }
        if let (Some(round_trip), Some(broker)) = (self.before.round_trip_ms, self.before.broker_ms) {
            let useful = in_flight_useful(round_trip, broker);
            self.prediction.lines.push(
                Evidence::new("F14", "M_useful", "1 + RTT / D", useful, "")
                    .measured("RTT", round_trip, "ms")
                    .measured("D", broker, "ms"),
            );
            if self.after.in_flight.value > self.before.in_flight.value
                && self.before.in_flight.value >= useful
            {
                self.unchanged(
                    name,
                    format!(
                        "a broker serves a connection's requests one after another: {} suffice (F14)",
                        number(useful)
                    ),
                );
            }
        }
        if self.after.in_flight.value > ORDERED_IN_FLIGHT {
            self.prediction.notes.push(String::from(
                "more than 5 in flight are only allowed without idempotence, and then a retry can change the order",
            ));
        }
    }

    fn window(&mut self, wanted: &Wanted) {
        if !self.set(wanted, "send.buffer.bytes", |pipe| &mut pipe.send_buffer_bytes) {
            return;
        }
        let Some(round_trip) = self.before.round_trip_ms else {
            self.prediction.missing.push(String::from(
                "the round trip: without it nothing is known of the window",
            ));
            self.unchanged("send.buffer.bytes", "not known to be the limit");
            self.after.send_buffer_bytes = self.before.send_buffer_bytes;
            return;
        };
        let speed = |pipe: &Pipe| {
            let connection = connection(
                (round_trip, pipe.broker_ms),
                pipe.window(),
                pipe.link_bytes_per_second,
                pipe.in_flight.value,
            );
            bytes_per_second_refined(&connection, pipe.request_bytes * self.growth)
        };
        // A measured window grows with the buffer, up to what the kernel allows.
        let share = self.after.send_buffer_bytes.value / self.before.send_buffer_bytes.value;
        self.after.window_bytes = self.before.window_bytes.map(|window| window * share);
        let (old, new) = (speed(&self.before), speed(&self.after));
        for (name, speed, pipe) in [("speed", old, &self.before), ("speed'", new, &self.after)] {
            self.prediction.lines.push(
                Evidence::new(
                    "F13",
                    name,
                    "min(1000 * M * request / t, 1000 * W / RTT)",
                    speed,
                    "B/s per broker",
                )
                .with("M", pipe.in_flight.value, "", pipe.in_flight.origin)
                .measured("request", pipe.request_bytes * self.growth, "B")
                .with("W", pipe.window(), "B", pipe.send_buffer_bytes.origin)
                .measured("RTT", round_trip, "ms"),
            );
        }
        if new <= 1.05 * old && share > 1.0 {
            self.unchanged(
                "send.buffer.bytes",
                format!(
                    "{} may be under way already; requests need {}",
                    bytes(self.before.window()),
                    bytes(self.before.request_bytes)
                ),
            );
        } else {
            // Fewer round trips per request shorten its latency by as much.
            self.after.request_ms = self.before.request_ms * (old / new).clamp(1e-3, 1e3);
        }
        self.prediction.notes.push(String::from(
            "the kernel doubles the buffer up to net.core.wmem_max, and the receiver's window limits too",
        ));
    }

    fn compression(&mut self, wanted: &Wanted) {
        if let Some(rate) = wanted.get("compression.rate") {
            let share = rate / self.before.compression_rate;
            self.prediction.lines.push(
                Evidence::new("F2", "share", "c' / c", share, "of the bytes on the wire")
                    .with("c'", rate, "", "wanted")
                    .measured("c", self.before.compression_rate, ""),
            );
            // Requests of the same size hold proportionally more records.
            self.after.records_per_second = self.before.records_per_second / share.max(1e-6);
            self.after.compression_rate = rate;
        } else if wanted.get("compression.type").is_some() {
            self.prediction.missing.push(String::from(
                "how far these records compress: give compression.rate=0.6 for what another codec is expected to reach",
            ));
            self.unchanged(
                "compression.type",
                "without the rate nothing can be promised; the sending threads' work changes with it",
            );
        }
    }

    fn durability(&mut self, wanted: &Wanted) {
        let Some(acks) = wanted.get("acks") else {
            return;
        };
        let remote_ms = self
            .snapshot
            .brokers
            .iter()
            .filter_map(|side| super::pipe::positive(side.remote_micros))
            .reduce(f64::max)
            .map(|micros| micros / 1_000.0);
        match remote_ms {
            Some(remote) if acks >= 0.0 => {
                let latency = (self.before.request_ms - remote).max(self.before.request_ms * 0.01);
                self.prediction.lines.push(
                    Evidence::new("F23", "L'", "L - remote", latency, "ms")
                        .measured("L", self.before.request_ms, "ms")
                        .measured("remote", remote, "ms"),
                );
                self.after.request_ms = latency;
                self.after.broker_ms = self.before.broker_ms.map(|broker| (broker - remote).max(0.0));
            }
            _ if acks >= 0.0 => self.unchanged(
                "acks",
                "no time is known to be spent on followers; a round trip stays a round trip",
            ),
            _ => self.prediction.missing.push(String::from(
                "how long followers take: remote time of produce requests with acks=all",
            )),
        }
        self.prediction.notes.push(String::from(
            "acks decides which records may be lost, not only how fast they go",
        ));
    }

    fn memory(&mut self, wanted: &Wanted) {
        if self.set(wanted, "buffer.memory", |pipe| &mut pipe.buffer_bytes) {
            let drained = self.before.request_bytes * self.before.requests_per_second;
            for (name, pipe) in [("q_max", &self.before), ("q_max'", &self.after)] {
                self.prediction.lines.push(
                    Evidence::new(
                        "F16",
                        name,
                        "1000 * B / drained",
                        queue_ms_max(pipe.buffer_bytes.value, drained),
                        "ms",
                    )
                    .with("B", pipe.buffer_bytes.value, "B", pipe.buffer_bytes.origin)
                    .measured("drained", drained, "B/s"),
                );
            }
            if let Some(offered) = self.before.offered {
                let offered = offered * self.before.record_bytes();
                self.prediction.lines.push(
                    Evidence::new(
                        "F17",
                        "t_full'",
                        "B / (offered - drained)",
                        seconds_until_full(self.after.buffer_bytes.value, offered, drained),
                        "s",
                    )
                    .with("B", self.after.buffer_bytes.value, "B", "wanted")
                    .with("offered", offered, "B/s", "stated")
                    .measured("drained", drained, "B/s"),
                );
            }
            self.unchanged("buffer.memory", "throughput: the buffer only decides how long it takes until send() blocks, and how old records get");
        }
        if let Some(block) = wanted.get("max.block.ms") {
            let drained = self.before.request_bytes * self.before.requests_per_second;
            let waiting = self
                .snapshot
                .producer
                .as_ref()
                .and_then(|producer| producer.waiting_threads)
                .unwrap_or(0.0);
            let wait = wait_ms(waiting, self.after.batch_bytes.value, drained);
            let errors = if wait > block {
                "send() fails"
            } else {
                "send() does not fail for that"
            };
            self.unchanged(
                "max.block.ms",
                format!(
                    "throughput: a batch waits {} ms for memory, so {errors}",
                    number(wait)
                ),
            );
        }
        if wanted.get("delivery.timeout.ms").is_some() {
            self.unchanged(
                "delivery.timeout.ms",
                "throughput: it decides how old records may get before they fail, which hides a ceiling",
            );
        }
    }

    fn threads(&mut self, wanted: &Wanted) {
        let Some(threads) = wanted.get("threads") else {
            return;
        };
        let (Some(now), Some(micros)) = (self.before.threads, self.before.send_micros_own()) else {
            self.prediction.missing.push(String::from(
                "threads now and the time of send(): no client sends them",
            ));
            self.unchanged("threads", "whether they are the limit is not known");
            return;
        };
        let used = worker_use(self.before.records_per_second, micros, now);
        self.prediction.lines.push(
            Evidence::new("F6", "use", "X * W / T / 1000000", used, "")
                .measured("X", self.before.records_per_second, "records/s")
                .with("W", micros, "µs", "stated")
                .with("T", now, "", "stated"),
        );
        self.after.threads = Some(threads);
        if used < 0.8 {
            self.unchanged(
                "threads",
                format!("the sending threads are used {} of the time", percent(used)),
            );
        } else if !self.before.has_backlog() {
            // Nine tenths: threads share locks and caches.
            self.after.records_per_second =
                self.before.records_per_second * (threads / now) * if threads > now { 0.9 } else { 1.0 };
        }
    }
}
