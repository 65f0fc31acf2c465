//! The broker's counts, and its slowest requests.

use ottla_broker::AdminView;
use ottla_broker::activity::Stage;
use ottla_broker::admin::prometheus::resident_bytes;
use ottla_broker::metrics::recorder::ApiRecords;
use ottla_console::source::{ApiCounts, Counts, Disk, SlowRequest, TopicCounts};
use ottla_console::stage::{self, STAGE_COUNT, StageMicros};

/// Requests of `/requests`.
const SLOWEST_MAX: usize = 100;

pub fn read(view: &AdminView) -> Counts {
    let now = view.clock.moment();
    let totals = view.records.totals(now);
    let topics = of_topics(view);
    let sum = |of: fn(&TopicCounts) -> u64| topics.iter().map(of).sum();
    Counts {
        moment_micros: now.micros(),
        apis: totals
            .apis
            .iter()
            .map(|(api, records)| of_api(api.name(), records))
            .collect(),
        records_in: sum(|topic| topic.records_in),
        bytes_in: sum(|topic| topic.bytes_in),
        bytes_out: sum(|topic| topic.bytes_out),
        busy_micros: view.records.busy_micros(),
        loop_count: view.records.0.len() as u64,
        connections: view.connections.open() as u64,
        memory_bytes: resident_bytes(),
        disk: disk(view),
        topics,
    }
}

/// By name.
fn of_topics(view: &AdminView) -> Vec<TopicCounts> {
    let mut topics: Vec<TopicCounts> = Vec::new();
    for partition in view.node.storage.partitions.all() {
        let traffic = partition.traffic();
        // Partitions of one topic are neighbours in the list of all.
        if topics.last().is_none_or(|topic| topic.name != partition.topic) {
            topics.push(TopicCounts {
                name: partition.topic.clone(),
                ..TopicCounts::default()
            });
        }
        let Some(topic) = topics.last_mut() else { continue };
        topic.records_in += traffic.records_in;
        topic.bytes_in += traffic.bytes_in;
        topic.bytes_out += traffic.bytes_out;
        let requests = traffic.requests;
        topic.produce_requests += requests.produce;
        topic.fetch_requests += requests.fetch;
        topic.failed_produce_requests += requests.produce_failed;
        topic.failed_fetch_requests += requests.fetch_failed;
    }
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    topics
}

fn of_api(name: &'static str, records: &ApiRecords) -> ApiCounts {
    let cold = &records.stages[Stage::ColdRead as usize];
    ApiCounts {
        name,
        requests: records.count,
        stage_micros: stages(|stage| records.stages[stage as usize].sum()),
        own_buckets: records.own.buckets().collect(),
        // Requests that did not read the disk are counted as zeros.
        cold_reads: cold.count() - cold.count_up_to(0),
    }
}

/// The broker's stages in the console's order, which is the same.
fn stages(micros: impl Fn(Stage) -> u64) -> StageMicros {
    let mut all = [0; STAGE_COUNT];
    for stage in Stage::ALL {
        if let Some(known) = stage::Stage::of_name(stage.name()) {
            all[known as usize] = micros(stage);
        }
    }
    all
}

/// The file system of the first log directory.
fn disk(view: &AdminView) -> Option<Disk> {
    let path = view.node.config().log_directories.first()?;
    let status = rustix::fs::statvfs(path.as_path()).ok()?;
    let total_bytes = status.f_blocks * status.f_frsize;
    Some(Disk {
        used_bytes: total_bytes.saturating_sub(status.f_bavail * status.f_frsize),
        total_bytes,
    })
}

pub fn slow_requests(view: &AdminView) -> Vec<SlowRequest> {
    let now = view.clock.moment();
    let wall_clock_ms = view.clock.timestamp().0;
    let slowest = view.records.slowest(now);
    slowest
        .into_iter()
        .take(SLOWEST_MAX)
        .map(|slow| {
            let request = &slow.request;
            let age_ms = (now.micros_since(request.finished) / 1_000) as i64;
            SlowRequest {
                api: request.api_key.name(),
                client_id: slow.client_id.clone(),
                finished_at_ms: wall_clock_ms - age_ms,
                request_bytes: u64::from(request.request_bytes),
                reply_bytes: request.reply_bytes,
                stage_micros: stages(|stage| u64::from(request.times.get(stage))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_of_the_broker_is_one_of_the_console() {
        let all = stages(|stage| stage as u64 + 1);
        assert_eq!(all.iter().sum::<u64>(), (1..=STAGE_COUNT as u64).sum::<u64>());
        for stage in Stage::ALL {
            let known = stage::Stage::of_name(stage.name()).unwrap();
            assert_eq!(known.is_asked_for(), stage.is_asked_for());
        }
    }
}
