//! The broker's activity as the lab's plain value: the lab does not know the broker's crates.

use ottla_broker::activity::{
    Activity, ActivityReading, ApiActivity, GroupOverview, Largest, MemberOverview, Moment, OpenTransaction,
    Stage, WrittenPartitions,
};
use ottla_broker::{Codec, ErrorCode};
use ottla_lab::doctor::observe::counts::{
    BrokerCounts, ConnectionCounts, DeniedCounts, DeniedWhat, FetchCounts, FetchLimits, GroupCounts,
    MemberCounts, OpenTransactionCounts, PartitionCounts, RequestCounts, WrittenCounts,
};
use ottla_lab::doctor::snapshot;
use ottla_lab::machine::host::HostCounts;

pub fn counts(mut reading: ActivityReading) -> BrokerCounts {
    let connections = std::mem::take(&mut reading.connections);
    BrokerCounts {
        node_id: reading.node_id,
        at_ms: reading.at.0,
        moment_micros: reading.moment.micros(),
        loop_count: reading.loop_count,
        busy_micros: reading.busy_micros,
        processor_count: reading.processor_count,
        processor_micros: reading.processor_micros,
        host: HostCounts::read(),
        connections: (connections.into_iter())
            .map(|activity| connection(&reading, activity))
            .collect(),
        transaction_version: reading.transaction_version(),
        groups: reading.groups.iter().map(group).collect(),
        open_transactions: reading.open_transactions.iter().map(open_transaction).collect(),
    }
}

fn open_transaction(open: &OpenTransaction) -> OpenTransactionCounts {
    OpenTransactionCounts {
        topic: open.topic.clone(),
        partition: open.partition,
        first_offset: open.first_offset,
        producer_id: open.producer_id,
        transactional_id: open.transactional_id.clone(),
        written_ms: open.written.0,
    }
}

fn connection(reading: &ActivityReading, activity: Activity) -> ConnectionCounts {
    let who = activity.who;
    let software = who.identity.software();
    let denied = who.identity.denied().last().into_iter();
    let denied = denied.map(|(denied, count)| DeniedCounts {
        what: DeniedWhat {
            operation: denied.operation,
            resource_type: denied.resource_type,
            resource: denied.resource,
            is_by_acl: denied.is_by_acl,
        },
        count,
    });
    let denied = denied.collect();
    let unknown_topics = who.identity.unknown_topics().last();
    ConnectionCounts {
        connection_id: who.connection_id,
        client_id: who.client_id,
        principal: who.principal,
        tls: who.spoken.map(|spoken| spoken.to_string().into()),
        address: who.address,
        is_local: who.is_local,
        instance_id: who.identity.instance_id().map(|id| id.to_string()),
        push_interval_ms: who.identity.push_interval_ms(),
        is_off_at_broker: !reading.asks_for_metrics || who.identity.is_unasked(),
        software: software.map(|software| (software.name.clone(), software.version.clone())),
        produce: (activity.produce.as_deref()).map(|api| requests(reading.moment, api)),
        fetch: (activity.fetch.as_deref()).map(|api| requests(reading.moment, api)),
        written: (activity.written.as_deref()).map(|partitions| written(reading, partitions)),
        other_micros: activity.other_micros,
        commits: activity.commits,
        commit_micros: activity.commit_micros,
        nameless_ends: activity.nameless_ends,
        denied,
        unknown_topics,
        round_trip_micros: activity.path.map(|path| path.round_trip_micros),
        smoothed_micros: activity.path.map(|path| path.smoothed_micros),
        sending_micros: activity.path.map_or(0, |path| path.sending_micros),
        fetched: activity.fetched.map(|(at, partitions)| {
            let positions = partitions.into_iter().map(|partition| FetchCounts {
                topic: partition.topic,
                partition: partition.index,
                offset: partition.offset,
                end: partition.end,
            });
            (at.micros(), positions.collect())
        }),
        is_unheard: activity.is_unheard,
        is_closed: activity.is_closed,
    }
}

/// Partitions of deleted topics are left out.
fn written(reading: &ActivityReading, written: &WrittenPartitions) -> WrittenCounts {
    let partitions = written.entries().iter().filter_map(|partition| {
        Some(PartitionCounts {
            topic: reading.topic_name(partition.topic_id)?.clone(),
            partition: partition.index,
            entry: partition.entry,
            batches: partition.batches,
            records: partition.records,
            bytes: partition.bytes,
        })
    });
    WrittenCounts {
        partitions: partitions.collect(),
        bits: written.bits(reading.moment),
    }
}

fn requests(now: Moment, api: &ApiActivity) -> RequestCounts {
    let [largest, before]: [Largest; 2] = api.largest.read(now);
    let largest = largest.or(before);
    let micros = |stages: &[Stage]| stages.iter().map(|stage| api.stage_micros[*stage as usize]).sum();
    let errors = api.errors.iter().filter(|(_, count)| *count > 0);
    RequestCounts {
        began_micros: api.began.map(Moment::micros),
        requests: api.requests,
        request_bytes: api.request_bytes,
        reply_bytes: api.reply_bytes,
        batches: api.batches,
        records: api.records,
        batch_bytes: api.batch_bytes,
        codecs: api.codecs.iter().map(codec).collect(),
        recompressed: api.recompressed.iter().map(codec).collect(),
        acks: api.acks,
        gaps: api.gaps,
        gap_micros: api.gap_micros,
        gaps_judged: api.gaps_judged,
        back_to_back: api.back_to_back,
        overlaps: api.overlaps,
        read_micros: micros(&[Stage::Read]),
        pause_squares: api.pause_squares,
        request_bytes_max: largest.request_bytes,
        batch_bytes_max: largest.batch_bytes,
        in_flight_max: largest.in_flight,
        fetch_limits: api.fetch_limits.map(|limits| FetchLimits {
            min_bytes: limits.min_bytes,
            max_wait_ms: limits.max_wait_ms,
            max_bytes: limits.max_bytes,
            partition_bytes_max: limits.partition_bytes_max,
        }),
        cold_reads: api.cold_reads,
        cold_bytes: api.cold_bytes,
        errors: errors.map(|(code, count)| (error(*code), *count)).collect(),
        queued_micros: micros(&[Stage::Queued]),
        handled_micros: micros(&[Stage::Handled, Stage::Appended]),
        synced_micros: micros(&[Stage::Synced]),
        cold_read_micros: micros(&[Stage::ColdRead]),
        asked_wait_micros: micros(&[Stage::WaitedForData, Stage::WaitedForGroup]),
        controller_micros: micros(&[Stage::Controller, Stage::WaitedForTransaction]),
        behind_micros: micros(&[Stage::Behind]),
        written_micros: micros(&[Stage::Written]),
        throttled_micros: micros(&[Stage::Throttled]),
    }
}

fn error(code: i16) -> String {
    ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |code| code.name().to_owned())
}

fn codec(codec: Codec) -> snapshot::Codec {
    match codec {
        Codec::None => snapshot::Codec::None,
        Codec::Gzip => snapshot::Codec::Gzip,
        Codec::Snappy => snapshot::Codec::Snappy,
        Codec::Lz4 => snapshot::Codec::Lz4,
        Codec::Zstd => snapshot::Codec::Zstd,
    }
}

fn group(group: &GroupOverview) -> GroupCounts {
    let late = group.departed.iter().filter(|gone| gone.why.is_late_poll());
    GroupCounts {
        group_id: group.group_id.clone(),
        members: group.members.iter().map(member).collect(),
        partition_count: group.partition_count,
        late: late.map(|gone| (gone.at.0, member(&gone.member))).collect(),
        committed: (group.committed.iter())
            .map(|committed| FetchCounts {
                topic: committed.topic.clone(),
                partition: committed.partition,
                offset: committed.offset,
                end: committed.end,
            })
            .collect(),
    }
}

fn member(member: &MemberOverview) -> MemberCounts {
    MemberCounts {
        member_id: member.member_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        session_timeout_ms: member.session_timeout_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_broker::activity::{CommittedOverview, Departed, Departure, Timestamp};

    #[test]
    fn every_stage_after_the_request_was_read_is_counted_once() {
        let mut api = ApiActivity::default();
        for (stage, micros) in api.stage_micros.iter_mut().enumerate() {
            *micros = 1 << stage;
        }
        let found = requests(Moment::from_micros(0), &api);
        let all: u64 = api.stage_micros.iter().sum();
        let read = api.stage_micros[Stage::Read as usize];
        assert_eq!(found.total_micros() + found.throttled_micros, all - read);
        assert_eq!(
            found.own_micros(),
            all - read
                - found.throttled_micros
                - api.stage_micros[Stage::WaitedForData as usize]
                - api.stage_micros[Stage::WaitedForGroup as usize]
        );
    }

    #[test]
    fn a_group_is_told_with_its_offsets_and_the_members_that_polled_late() {
        let departed = |number: u32, why| Departed {
            member: MemberOverview {
                member_id: format!("m-{number}").into(),
                client_id: "c".into(),
                client_host: "/10.0.0.1".into(),
                rebalance_timeout_ms: 300_000,
                session_timeout_ms: 45_000,
            },
            at: Timestamp(90_000),
            why,
        };
        let counts = group(&GroupOverview {
            group_id: "g".into(),
            members: Vec::new(),
            partition_count: 6,
            departed: vec![
                departed(1, Departure::left(Some("consumer poll timeout has expired."))),
                departed(2, Departure::left(Some("the consumer is being closed"))),
                departed(3, Departure::DidNotRejoin),
                departed(4, Departure::SessionExpired),
            ],
            rebalances: Vec::new(),
            committed: vec![CommittedOverview {
                topic: "t".into(),
                partition: 3,
                offset: 40,
                end: 100,
            }],
        });
        let committed = &counts.committed[0];
        assert_eq!((&*committed.topic, committed.partition), ("t", 3));
        assert_eq!((committed.offset, committed.end), (40, 100));
        let late: Vec<(i64, &str)> = counts
            .late
            .iter()
            .map(|(at_ms, member)| (*at_ms, &*member.member_id))
            .collect();
        assert_eq!(late, [(90_000, "m-1"), (90_000, "m-3")]);
    }
}
