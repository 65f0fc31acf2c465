//! What the counts were in the last fifteen minutes: rates, means and percentiles come from the
//! difference of two readings.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::source::{ApiCounts, Counts, Disk};
use crate::stage::{STAGE_COUNT, StageMicros};
use crate::trend::Histories;
use crate::worst::Worst;

/// Time between two samples.
pub const INTERVAL_MS: u64 = 5_000;

/// Fifteen minutes, and one sample to subtract.
const SAMPLES_MAX: usize = 181;

/// The window of rates and means.
const MINUTE_MICROS: u64 = 60_000_000;

/// Topics with rates of their own: a name and 7 numbers for each of 13 samples, 1.8 MiB.
const TOPICS_MAX: usize = 2_000;

/// Samples that keep what only the last minute needs: percentiles, topics and groups.
pub const MINUTE_SAMPLES: usize = 13;

/// One reading, without what is needed for a minute only.
#[derive(Clone, Debug, Default)]
struct Sample {
    moment_micros: u64,
    at_ms: i64,
    records_in: u64,
    bytes_in: u64,
    bytes_out: u64,
    busy_micros: u64,
    connections: u64,
    memory_bytes: Option<u64>,
    disk: Option<Disk>,
    cold_reads: u64,
    apis: BTreeMap<&'static str, (u64, StageMicros)>,
}

/// Readings, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Series {
    samples: VecDeque<Sample>,
    detailed: VecDeque<Arc<Counts>>,
    pub groups: Histories,
    pub worst: Worst,
}

impl Series {
    /// Adds a reading; one that is older than the last means that the broker was started again, and
    /// forgets what was before.
    pub fn add(&mut self, mut counts: Counts, at_ms: i64) {
        let is_older = |last: &Sample| counts.moment_micros < last.moment_micros;
        if self.samples.back().is_some_and(is_older) {
            self.samples.clear();
            self.detailed.clear();
        }
        counts.topics.truncate(TOPICS_MAX);
        self.samples.push_back(sample(&counts, at_ms));
        self.detailed.push_back(Arc::new(counts));
        while self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        while self.detailed.len() > MINUTE_SAMPLES {
            self.detailed.pop_front();
        }
    }

    /// The last minute before `now`; `None` without an earlier reading.
    pub fn minute(&self, now: &Counts) -> Option<Minute> {
        let is_within = |counts: &&Arc<Counts>| {
            let age = now.moment_micros.checked_sub(counts.moment_micros);
            age.is_some_and(|age| age > 0 && age <= MINUTE_MICROS + INTERVAL_MS * 1_000)
        };
        let before = self.detailed.iter().find(is_within)?;
        Some(Minute::between(before, now))
    }

    /// The course of something over the last fifteen minutes: one value for each sample but the
    /// first.
    fn course<T>(&self, of: impl Fn(&Sample, &Sample, f64) -> T) -> Vec<T> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs
            .map(|(before, after)| {
                let seconds = (after.moment_micros - before.moment_micros) as f64 / 1e6;
                of(before, after, seconds.max(1e-3))
            })
            .collect()
    }

    pub fn vitals(&self) -> Vitals {
        let rate = |of: fn(&Sample) -> u64| {
            self.course(|before, after, seconds| of(after).saturating_sub(of(before)) as f64 / seconds)
        };
        Vitals {
            records_in: rate(|sample| sample.records_in),
            bytes_in: rate(|sample| sample.bytes_in),
            bytes_out: rate(|sample| sample.bytes_out),
            busy: rate(|sample| sample.busy_micros),
            cold_reads: rate(|sample| sample.cold_reads),
            connections: self.course(|_, after, _| after.connections as f64),
            memory: self.course(|_, after, _| after.memory_bytes.unwrap_or(0) as f64),
            disk: self.course(|_, after, _| after.disk.map_or(0, |disk| disk.used_bytes) as f64),
        }
    }

    /// The mean stages of one API's requests over time; `None` where there was no request.
    pub fn stages(&self, api: &str) -> Course {
        let nothing = (0, [0; STAGE_COUNT]);
        let points = self.course(|before, after, _| {
            let (count_before, stages_before) = before.apis.get(api).unwrap_or(&nothing);
            let (count, stages) = after.apis.get(api).unwrap_or(&nothing);
            let requests = count.saturating_sub(*count_before);
            let mean = |index: usize| {
                stages[index].saturating_sub(stages_before[index]) as f64 / requests as f64 / 1e3
            };
            let point: [f64; STAGE_COUNT] = std::array::from_fn(mean);
            (requests > 0).then_some(point)
        });
        let from_ms = self.samples.front().map_or(0, |sample| sample.at_ms);
        let to_ms = self.samples.back().map_or(0, |sample| sample.at_ms);
        Course {
            from_ms,
            to_ms,
            points,
        }
    }

    /// Bytes by which the disk fills per second, over what is remembered.
    pub fn disk_growth(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = (last.moment_micros - first.moment_micros) as f64 / 1e6;
        let (before, after) = (first.disk?.used_bytes as f64, last.disk?.used_bytes as f64);
        (seconds >= 60.0).then(|| (after - before) / seconds)
    }
}

fn sample(counts: &Counts, at_ms: i64) -> Sample {
    Sample {
        moment_micros: counts.moment_micros,
        at_ms,
        records_in: counts.records_in,
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
        busy_micros: counts.busy_micros,
        connections: counts.connections,
        memory_bytes: counts.memory_bytes,
        disk: counts.disk,
        cold_reads: counts.apis.iter().map(|api| api.cold_reads).sum(),
        apis: counts
            .apis
            .iter()
            .map(|api| (api.name, (api.requests, api.stage_micros)))
            .collect(),
    }
}

/// Values over the last fifteen minutes, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    pub records_in: Vec<f64>,
    pub bytes_in: Vec<f64>,
    pub bytes_out: Vec<f64>,
    /// Microseconds per second, of all event loops.
    pub busy: Vec<f64>,
    pub cold_reads: Vec<f64>,
    pub connections: Vec<f64>,
    pub memory: Vec<f64>,
    pub disk: Vec<f64>,
}

/// Mean milliseconds by stage over time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    pub from_ms: i64,
    pub to_ms: i64,
    pub points: Vec<Option<[f64; STAGE_COUNT]>>,
}

/// What happened between two readings.
#[derive(Clone, Debug, Default)]
pub struct Minute {
    pub seconds: f64,
    /// The most requests first.
    pub apis: Vec<ApiMinute>,
    pub records_in: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// Share of the event loops' time.
    pub busy: f64,
    pub cold_reads: f64,
    pub topics: BTreeMap<Arc<str>, TopicRates>,
}

/// What went through a topic, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopicRates {
    pub records_in: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    pub produce_requests: f64,
    pub fetch_requests: f64,
    pub failed_produce_requests: f64,
    pub failed_fetch_requests: f64,
}

impl TopicRates {
    pub fn requests(&self) -> f64 {
        self.produce_requests + self.fetch_requests
    }

    pub fn failed_requests(&self) -> f64 {
        self.failed_produce_requests + self.failed_fetch_requests
    }
}

#[derive(Clone, Debug, Default)]
pub struct ApiMinute {
    pub name: &'static str,
    pub requests: u64,
    pub per_second: f64,
    pub stage_micros: StageMicros,
    own_buckets: Vec<(u32, u64)>,
}

impl ApiMinute {
    /// Mean milliseconds in each stage.
    pub fn mean_ms(&self) -> [f64; STAGE_COUNT] {
        let requests = self.requests.max(1) as f64;
        self.stage_micros.map(|micros| micros as f64 / requests / 1e3)
    }

    /// A percentile of the time without asked-for waits, in milliseconds, at most a sixteenth too
    /// high.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let all: u64 = self.own_buckets.iter().map(|(_, count)| count).sum();
        let wanted = (quantile * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.own_buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        })?;
        Some(f64::from(found.0) / 1e3)
    }
}

impl Minute {
    fn between(before: &Counts, now: &Counts) -> Minute {
        let seconds = (now.moment_micros - before.moment_micros) as f64 / 1e6;
        let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
        let earlier: BTreeMap<&str, &ApiCounts> = before.apis.iter().map(|api| (api.name, api)).collect();
        let mut apis: Vec<ApiMinute> = (now.apis.iter())
            .map(|api| api_minute(api, earlier.get(api.name).copied(), seconds))
            .filter(|api| api.requests > 0)
            .collect();
        apis.sort_by(|one, other| other.requests.cmp(&one.requests).then(one.name.cmp(other.name)));
        let topics: BTreeMap<&str, &crate::source::TopicCounts> =
            before.topics.iter().map(|topic| (&*topic.name, topic)).collect();
        let topics = now.topics.iter().take(TOPICS_MAX).map(|topic| {
            // A topic that is new, or was created again, began at zero.
            let earlier = topics
                .get(&*topic.name)
                .filter(|earlier| earlier.records_in <= topic.records_in);
            let of = |of: fn(&crate::source::TopicCounts) -> u64| {
                rate(of(topic), earlier.map_or(0, |topic| of(topic)))
            };
            let rates = TopicRates {
                records_in: of(|topic| topic.records_in),
                bytes_in: of(|topic| topic.bytes_in),
                bytes_out: of(|topic| topic.bytes_out),
                produce_requests: of(|topic| topic.produce_requests),
                fetch_requests: of(|topic| topic.fetch_requests),
                failed_produce_requests: of(|topic| topic.failed_produce_requests),
                failed_fetch_requests: of(|topic| topic.failed_fetch_requests),
            };
            (topic.name.clone(), rates)
        });
        Minute {
            seconds,
            records_in: rate(now.records_in, before.records_in),
            bytes_in: rate(now.bytes_in, before.bytes_in),
            bytes_out: rate(now.bytes_out, before.bytes_out),
            busy: rate(now.busy_micros, before.busy_micros) / 1e6 / now.loop_count.max(1) as f64,
            cold_reads: rate(
                now.apis.iter().map(|api| api.cold_reads).sum(),
                before.apis.iter().map(|api| api.cold_reads).sum(),
            ),
            topics: topics.collect(),
            apis,
        }
    }
}

fn api_minute(now: &ApiCounts, before: Option<&ApiCounts>, seconds: f64) -> ApiMinute {
    let nothing = ApiCounts::default();
    let before = before.unwrap_or(&nothing);
    let earlier: BTreeMap<u32, u64> = before.own_buckets.iter().copied().collect();
    let own_buckets = now.own_buckets.iter().filter_map(|(end, count)| {
        let more = count.saturating_sub(earlier.get(end).copied().unwrap_or(0));
        (more > 0).then_some((*end, more))
    });
    let requests = now.requests.saturating_sub(before.requests);
    ApiMinute {
        name: now.name,
        requests,
        per_second: requests as f64 / seconds,
        stage_micros: std::array::from_fn(|index| {
            now.stage_micros[index].saturating_sub(before.stage_micros[index])
        }),
        own_buckets: own_buckets.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;

    fn counts(second: u64, requests: u64) -> Counts {
        let mut stage_micros = [0; STAGE_COUNT];
        stage_micros[Stage::Synced as usize] = requests * 800;
        Counts {
            moment_micros: second * 1_000_000,
            records_in: requests * 10,
            loop_count: 2,
            busy_micros: second * 1_000_000,
            apis: vec![ApiCounts {
                name: "Produce",
                requests,
                stage_micros,
                own_buckets: vec![(799, requests / 2), (1_023, requests - requests / 2)],
                cold_reads: 0,
            }],
            ..Counts::default()
        }
    }

    #[test]
    fn a_minute_is_the_difference_to_a_minute_ago() {
        let mut series = Series::default();
        for second in (0..=120).step_by(5) {
            series.add(counts(second, second * 100), 0);
        }
        let minute = series.minute(&counts(121, 12_100)).unwrap();
        assert_eq!(minute.seconds, 61.0);
        assert_eq!((minute.records_in, minute.busy), (1_000.0, 0.5));
        let produce = &minute.apis[0];
        assert_eq!((produce.per_second, produce.requests), (100.0, 6_100));
        assert_eq!(produce.mean_ms()[Stage::Synced as usize], 0.8);
        assert_eq!(
            (produce.quantile_ms(0.5), produce.quantile_ms(0.99)),
            (Some(0.799), Some(1.023))
        );
    }

    #[test]
    fn a_broker_that_was_started_again_begins_a_new_series() {
        let mut series = Series::default();
        series.add(counts(100, 1_000), 0);
        series.add(counts(1, 5), 0);
        assert!(series.minute(&counts(1, 5)).is_none());
        assert_eq!(series.minute(&counts(2, 15)).unwrap().apis[0].requests, 10);
    }

    /// 8 MB at 2,000 partitions: each in a topic and in a group of its own.
    #[test]
    fn the_memory_of_all_series_is_within_its_budget() {
        const APIS: usize = 64;
        const BUCKETS: usize = 100;
        let topics = MINUTE_SAMPLES * TOPICS_MAX * size_of::<crate::source::TopicCounts>();
        let of_api = size_of::<ApiCounts>() + BUCKETS * size_of::<(u32, u64)>();
        let detailed = MINUTE_SAMPLES * APIS * of_api;
        let of_sample = size_of::<Sample>() + APIS * size_of::<(&str, (u64, StageMicros))>();
        let groups = crate::trend::GROUPS_MAX * crate::trend::GROUP_BYTES;
        let all = topics + detailed + SAMPLES_MAX * of_sample + groups + crate::worst::BYTES;
        assert!(all <= 8_000_000, "{all} bytes");
        assert!(
            (1_600_000..1_800_000).contains(&groups),
            "{groups} bytes, not 1.7 MB"
        );
    }

    #[test]
    fn memory_is_bounded_by_time_and_by_topics() {
        let mut series = Series::default();
        let topics: Vec<crate::source::TopicCounts> = (0..10_000)
            .map(|number| crate::source::TopicCounts {
                name: format!("t{number}").into(),
                ..Default::default()
            })
            .collect();
        for second in 0..1_000 {
            series.add(
                Counts {
                    topics: topics.clone(),
                    ..counts(second * 5, second)
                },
                0,
            );
        }
        assert_eq!(
            (series.samples.len(), series.detailed.len()),
            (SAMPLES_MAX, MINUTE_SAMPLES)
        );
        assert!(
            series
                .detailed
                .iter()
                .all(|counts| counts.topics.len() == TOPICS_MAX)
        );
        assert_eq!(series.vitals().records_in.len(), 180);
    }
}
