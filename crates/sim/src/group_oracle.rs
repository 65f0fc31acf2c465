//! Safety properties of a group under any failure, checked continuously.

use std::collections::BTreeMap;

use ottla_client::consumer::TopicPartition;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::offset_commit::{OffsetCommitRequest, OffsetCommitResponse};
use ottla_wire::primitives::Reader;

use crate::group_links::Answered;

#[derive(Debug, Default)]
pub struct GroupOracle {
    seed: u64,
    /// The owner of a partition in a generation, which is identified together with a start of the
    /// broker.
    owners: BTreeMap<((i32, u64), TopicPartition), String>,
    /// The offset up to which each partition was processed without a gap.
    processed: BTreeMap<TopicPartition, i64>,
    /// The generation of the last commit that the broker accepted.
    committed: BTreeMap<TopicPartition, i32>,
    pub commits_accepted: u64,
    pub commits_refused: u64,
    pub records_processed: u64,
    /// Records that were processed again after a rebalance.
    pub records_repeated: u64,
    pub generations: i32,
}

impl GroupOracle {
    pub fn new(seed: u64) -> GroupOracle {
        GroupOracle {
            seed,
            ..GroupOracle::default()
        }
    }

    /// Checks a member's belief that it owns these partitions in this generation, joined in this
    /// start of the broker.
    pub fn owns<'a>(
        &mut self,
        member_id: &str,
        joined: (i32, u64),
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) {
        let (generation, _) = joined;
        if generation < 0 {
            return;
        }
        self.generations = self.generations.max(generation);
        for partition in partitions {
            let key = (joined, partition.clone());
            let owner = self.owners.entry(key).or_insert_with(|| member_id.to_string());
            assert_eq!(
                owner, member_id,
                "seed {}: {partition} belongs to two members in generation {generation}",
                self.seed
            );
        }
    }

    /// Notes that the application got the records `from..to`.
    pub fn processed(&mut self, member_id: &str, partition: &TopicPartition, from: i64, to: i64) {
        let until = self.processed.entry(partition.clone()).or_default();
        assert!(
            from <= *until,
            "seed {}: {member_id} goes on at {from} of {partition}, {until} was never processed",
            self.seed
        );
        self.records_repeated += (to.min(*until) - from).max(0) as u64;
        self.records_processed += (to - from) as u64;
        *until = to.max(*until);
    }

    /// Checks a request that the broker accepted.
    pub fn answered(&mut self, answered: &Answered) {
        if answered.api_key != ApiKey::OffsetCommit {
            return;
        }
        let version = answered.api_version;
        let request =
            OffsetCommitRequest::decode(&mut Reader::new(&answered.request), version).expect("decodes");
        let response =
            OffsetCommitResponse::decode(&mut Reader::new(&answered.answer), version).expect("decodes");
        let generation = request.generation_id_or_member_epoch;
        let accepted = |topic: &str, index: i32| {
            let topics = response.topics.iter().filter(|answer| answer.name == topic);
            topics
                .flat_map(|answer| &answer.partitions)
                .any(|answer| answer.partition_index == index && answer.error_code == 0)
        };
        for topic in &request.topics {
            for partition in &topic.partitions {
                if !accepted(topic.name, partition.partition_index) {
                    self.commits_refused += 1;
                    continue;
                }
                self.commits_accepted += 1;
                let name = TopicPartition::new(topic.name, partition.partition_index);
                let processed = self.processed.get(&name).copied().unwrap_or_default();
                assert!(
                    partition.committed_offset <= processed,
                    "seed {}: {name} is committed up to {}, processed up to {processed}",
                    self.seed,
                    partition.committed_offset
                );
                let last = self.committed.entry(name.clone()).or_insert(generation);
                assert!(
                    generation >= *last,
                    "seed {}: a commit of generation {generation} overwrites one of {last} for {name}",
                    self.seed
                );
                *last = generation;
            }
        }
    }
}
