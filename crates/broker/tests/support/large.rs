//! Requests that name a hundred thousand things, and the expected size of their answers.

use ottla_broker::broker::{Additions, Broker};
use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use ottla_wire::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicRequest,
};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use ottla_wire::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use super::{Client, frame, frame_of};

pub const NAMED: i32 = 100_000;
pub const TOPIC: &str = "t";
/// Of the topic; the other partitions named do not exist.
pub const PARTITIONS: i32 = 3;

/// A single loop: a request that holds it up delays all clients.
pub const PROPERTIES: [(&str, &str); 3] = [
    ("num.network.threads", "1"),
    ("ottla.admin.listener", "127.0.0.1:0"),
    ("auto.create.topics.enable", "false"),
];

pub fn start() -> Broker {
    let broker = Broker::start_temporary(&PROPERTIES).unwrap();
    create_topic(&broker, TOPIC, PARTITIONS);
    broker
}

/// Starts with a second topic, `many`, on a memory disk to avoid its thousands of files.
pub fn start_with_many(partitions: i32) -> Broker {
    let additions = Additions {
        disk: Some(MemoryDisk::new(1).shared()),
        ..Additions::default()
    };
    let broker = Broker::start_temporary_with(&PROPERTIES, additions).unwrap();
    create_topic(&broker, TOPIC, PARTITIONS);
    create_topic(&broker, "many", partitions);
    broker
}

pub fn create_topic(broker: &Broker, name: &str, num_partitions: i32) {
    let mut client = Client::connect(broker.address());
    let topic = CreatableTopic {
        name,
        num_partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 60_000,
        ..Default::default()
    };
    client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    let body = client.receive(ApiKey::CreateTopics, 5, 1);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::None.code());
}

/// A very large request, and how many things its answer names.
pub struct Large {
    pub api_key: ApiKey,
    pub version: i16,
    pub body: Vec<u8>,
    pub count: fn(&[u8]) -> usize,
    /// The expected count.
    pub expected: i32,
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    encode(&mut body);
    body
}

pub fn names() -> Vec<String> {
    (0..NAMED).map(|number| format!("name-{number}")).collect()
}

pub fn large_metadata(names: &[String]) -> Large {
    let topic = |name| MetadataRequestTopic {
        name: Some(name),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some(names.iter().map(|name| topic(&**name)).collect()),
        ..Default::default()
    };
    Large {
        api_key: ApiKey::Metadata,
        version: 9,
        body: encoded(|body| request.encode(body, 9)),
        count: |body| {
            let response = MetadataResponse::decode(&mut Reader::new(body), 9).unwrap();
            response.topics.len()
        },
        expected: NAMED,
    }
}

pub fn large_list_offsets() -> Large {
    let partition = |partition_index| ListOffsetsPartition {
        partition_index,
        timestamp: -1,
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC,
            partitions: (0..NAMED).map(partition).collect(),
        }],
        ..Default::default()
    };
    Large {
        api_key: ApiKey::ListOffsets,
        version: 5,
        body: encoded(|body| request.encode(body, 5)),
        count: |body| {
            let response = ListOffsetsResponse::decode(&mut Reader::new(body), 5).unwrap();
            let partitions = &response.topics[0].partitions;
            let is_found = |index: i32| partitions[index as usize].error_code == 0;
            assert!(is_found(PARTITIONS - 1) && !is_found(PARTITIONS));
            partitions.len()
        },
        expected: NAMED,
    }
}

pub fn large_offset_fetch() -> Large {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g",
            topics: Some(vec![OffsetFetchRequestTopics {
                name: TOPIC,
                partition_indexes: (0..NAMED).collect(),
                ..Default::default()
            }]),
            ..Default::default()
        }],
        ..Default::default()
    };
    Large {
        api_key: ApiKey::OffsetFetch,
        version: 8,
        body: encoded(|body| request.encode(body, 8)),
        count: |body| {
            let response = OffsetFetchResponse::decode(&mut Reader::new(body), 8).unwrap();
            let group = &response.groups[0];
            // There is no offsets topic yet, so all are answered with one error.
            assert_ne!(group.error_code, ErrorCode::None.code());
            response.groups.len()
        },
        expected: 1,
    }
}

pub fn large_offset_commit() -> Large {
    let partition = |partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 7,
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: "g",
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC,
            partitions: (0..NAMED).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    Large {
        api_key: ApiKey::OffsetCommit,
        version: 8,
        body: encoded(|body| request.encode(body, 8)),
        count: |body| {
            let response = OffsetCommitResponse::decode(&mut Reader::new(body), 8).unwrap();
            response.topics[0].partitions.len()
        },
        expected: NAMED,
    }
}

/// A small request with a large answer.
pub fn large_describe_configs() -> Large {
    const TIMES: usize = 100;
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: TOPIC,
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource; TIMES],
        ..Default::default()
    };
    Large {
        api_key: ApiKey::DescribeConfigs,
        version: 4,
        body: encoded(|body| request.encode(body, 4)),
        count: |body| {
            let response = DescribeConfigsResponse::decode(&mut Reader::new(body), 4).unwrap();
            response.results.len()
        },
        expected: TIMES as i32,
    }
}

pub fn large_describe_log_dirs() -> Large {
    Large {
        api_key: ApiKey::DescribeLogDirs,
        version: 4,
        body: encoded(|body| DescribeLogDirsRequest { topics: None }.encode(body, 4)),
        count: |body| {
            let response = DescribeLogDirsResponse::decode(&mut Reader::new(body), 4).unwrap();
            response.results[0].topics[0].partitions.len()
        },
        expected: PARTITIONS,
    }
}

pub fn large_delete_topics(names: &[String]) -> Large {
    let request = DeleteTopicsRequest {
        topic_names: names.iter().map(|name| &**name).collect(),
        timeout_ms: 60_000,
        ..Default::default()
    };
    Large {
        api_key: ApiKey::DeleteTopics,
        version: 5,
        body: encoded(|body| request.encode(body, 5)),
        count: |body| {
            let response = DeleteTopicsResponse::decode(&mut Reader::new(body), 5).unwrap();
            response.responses.len()
        },
        expected: NAMED,
    }
}

pub fn large_describe_topic_partitions(names: &[String]) -> Large {
    let request = DescribeTopicPartitionsRequest {
        topics: names.iter().map(|name| TopicRequest { name }).collect(),
        response_partition_limit: 2_000,
        ..Default::default()
    };
    Large {
        api_key: ApiKey::DescribeTopicPartitions,
        version: 0,
        body: encoded(|body| request.encode(body, 0)),
        count: |body| {
            let response = DescribeTopicPartitionsResponse::decode(&mut Reader::new(body), 0).unwrap();
            response.topics.len()
        },
        expected: NAMED,
    }
}

pub fn large_offset_for_leader_epoch() -> Large {
    let partition = |partition| OffsetForLeaderPartition {
        partition,
        current_leader_epoch: -1,
        leader_epoch: 0,
    };
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: TOPIC,
            partitions: (0..NAMED).map(partition).collect(),
        }],
    };
    Large {
        api_key: ApiKey::OffsetForLeaderEpoch,
        version: 4,
        body: encoded(|body| request.encode(body, 4)),
        count: |body| {
            let response = OffsetForLeaderEpochResponse::decode(&mut Reader::new(body), 4).unwrap();
            response.topics[0].partitions.len()
        },
        expected: NAMED,
    }
}

pub fn fetch_body(topic: &str, partitions: i32, session: (i32, i32), max_wait_ms: i32) -> Vec<u8> {
    let partition = |partition| FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = FetchTopic {
        topic,
        partitions: (0..partitions).map(partition).collect(),
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_id: session.0,
        session_epoch: session.1,
        topics: Vec::from_iter((partitions > 0).then_some(topic)),
        ..Default::default()
    };
    encoded(|body| request.encode(body, 11))
}

pub fn large_fetch() -> Large {
    Large {
        api_key: ApiKey::Fetch,
        version: 11,
        body: fetch_body(TOPIC, NAMED, (0, 0), 0),
        count: |body| {
            let response = FetchResponse::decode(&mut Reader::new(body), 11).unwrap();
            response.responses[0].partitions.len()
        },
        expected: NAMED,
    }
}

pub fn produce_body(topic: &str, indexes: impl Iterator<Item = i32>, acks: i16) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(b"value"), &[]);
    let records = builder.finish();
    let partition = |index| PartitionProduceData {
        index,
        records: Some(&records),
    };
    let request = ProduceRequest {
        acks,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: indexes.map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    encoded(|body| request.encode(body, 9))
}

pub fn large_produce() -> Large {
    Large {
        api_key: ApiKey::Produce,
        version: 9,
        body: produce_body(TOPIC, PARTITIONS..PARTITIONS + NAMED, -1),
        count: |body| {
            let response = ProduceResponse::decode(&mut Reader::new(body), 9).unwrap();
            response.responses[0].partition_responses.len()
        },
        expected: NAMED,
    }
}

pub fn request(large: &Large, client_id: &str) -> Vec<u8> {
    frame_of(client_id, large.api_key, large.version, 1, |bytes| {
        bytes.extend_from_slice(&large.body);
    })
}
