//! Requests of administration tools through a whole node without sockets; and open transactions
//! found at a start.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignableTopic,
};
use ottla_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
};
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use ottla_wire::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_wire::messages::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, TopicPartitions};
use ottla_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use ottla_wire::messages::update_features::{
    FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use super::metadata_tests::{Broker, error, read};
use crate::config::NodeConfig;
use crate::storage::open_transactions;
use crate::time::Timestamp;
use crate::transaction::hanging;

fn elect(
    broker: &Broker,
    version: i16,
    request: &ElectLeadersRequest<'_>,
) -> (ErrorCode, Vec<(i32, ErrorCode)>) {
    let bytes = broker.ask(ApiKey::ElectLeaders, version, |body| {
        request.encode(body, version)
    });
    let response = read(&bytes, |reader| ElectLeadersResponse::decode(reader, version));
    let results = response
        .replica_election_results
        .iter()
        .flat_map(|topic| &topic.partition_result);
    let results = results.map(|result| (result.partition_id, error(result.error_code)));
    (error(response.error_code), results.collect())
}

#[test]
fn no_election_is_needed_and_an_unknown_election_type_is_refused() {
    let broker = Broker::new(&[]);
    broker.create("t", 2, 7);
    let request = |election_type, partitions: &[i32]| ElectLeadersRequest {
        election_type,
        topic_partitions: Some(vec![TopicPartitions {
            topic: "t",
            partitions: partitions.to_vec(),
        }]),
        timeout_ms: 1_000,
    };
    for version in 0..=2 {
        assert_eq!(
            elect(&broker, version, &request(0, &[0, 2])),
            (
                ErrorCode::None,
                vec![
                    (0, ErrorCode::ElectionNotNeeded),
                    (2, ErrorCode::UnknownTopicOrPartition)
                ]
            )
        );
    }
    let everywhere = ElectLeadersRequest {
        topic_partitions: None,
        ..request(1, &[])
    };
    assert_eq!(elect(&broker, 2, &everywhere), (ErrorCode::None, vec![]));
    // Answered without the controller, so not through `ask`.
    assert_eq!(
        elect(&broker, 2, &request(5, &[0])),
        (ErrorCode::InvalidRequest, vec![(0, ErrorCode::InvalidRequest)])
    );
}

#[test]
fn a_reassignment_to_the_current_node_changes_nothing_and_any_other_is_refused() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let before = broker.node.image().provenance;
    let request = |version| AlterPartitionReassignmentsRequest {
        timeout_ms: 1_000,
        allow_replication_factor_change: version == 0,
        topics: vec![
            ReassignableTopic {
                name: "t",
                partitions: [Some(vec![1]), Some(vec![2]), None]
                    .map(|replicas| ReassignablePartition {
                        partition_index: 0,
                        replicas,
                    })
                    .to_vec(),
            },
            ReassignableTopic {
                name: "empty",
                partitions: vec![],
            },
        ],
    };
    for version in 0..=1 {
        let bytes = broker.ask(ApiKey::AlterPartitionReassignments, version, |body| {
            request(version).encode(body, version);
        });
        let response = read(&bytes, |reader| {
            AlterPartitionReassignmentsResponse::decode(reader, version)
        });
        let names: Vec<&str> = response.responses.iter().map(|topic| topic.name).collect();
        assert_eq!(names, ["t", "empty"]);
        let results = response.responses[0].partitions.iter();
        let codes: Vec<ErrorCode> = results.map(|result| error(result.error_code)).collect();
        assert_eq!(
            codes,
            [
                ErrorCode::None,
                ErrorCode::InvalidReplicaAssignment,
                ErrorCode::NoReassignmentInProgress
            ]
        );
        let said = response.responses[0].partitions[1].error_message.unwrap();
        assert!(
            said.contains("broker 2") && said.contains("one node, 1"),
            "{said}"
        );
        assert_eq!(response.allow_replication_factor_change, version == 0);
    }
    let listing = ListPartitionReassignmentsRequest {
        timeout_ms: 1_000,
        topics: None,
    };
    let bytes = broker.ask(ApiKey::ListPartitionReassignments, 0, |body| {
        listing.encode(body, 0)
    });
    let response = read(&bytes, |reader| {
        ListPartitionReassignmentsResponse::decode(reader, 0)
    });
    assert_eq!((response.error_code, response.topics.len()), (0, 0));
    assert_eq!(broker.node.image().provenance, before);
}

#[test]
fn a_replica_can_only_be_moved_to_the_log_directory_it_is_in() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let describe = DescribeLogDirsRequest { topics: None };
    let bytes = broker.ask(ApiKey::DescribeLogDirs, 4, |body| describe.encode(body, 4));
    let described = read(&bytes, |reader| DescribeLogDirsResponse::decode(reader, 4));
    let own = described.results[0].log_dir.to_owned();
    assert!(std::path::Path::new(&own).is_absolute());
    let ask = |path: &str, name: &str| {
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path,
                topics: vec![AlterReplicaLogDirTopic {
                    name,
                    partitions: vec![0, 1],
                }],
            }],
        };
        let bytes = broker.ask(ApiKey::AlterReplicaLogDirs, 2, |body| request.encode(body, 2));
        let response = read(&bytes, |reader| AlterReplicaLogDirsResponse::decode(reader, 2));
        let results = response.results[0].partitions.iter();
        results
            .map(|result| error(result.error_code))
            .collect::<Vec<ErrorCode>>()
    };
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(ask(&own, "t"), [ErrorCode::None, unknown]);
    assert_eq!(ask(&own, "u"), [unknown; 2]);
    assert_eq!(ask("/elsewhere", "t"), [ErrorCode::LogDirNotFound; 2]);
    assert_eq!(ask("/elsewhere", "u"), [ErrorCode::LogDirNotFound; 2]);
}

#[test]
fn features_are_updated_in_every_version() {
    let broker = Broker::new(&[]);
    let ask = |version: i16, level: i16, upgrade_type: i8, validate_only: bool| {
        let request = UpdateFeaturesRequest {
            timeout_ms: 1_000,
            feature_updates: vec![FeatureUpdateKey {
                feature: "share.version",
                max_version_level: level,
                allow_downgrade: version == 0,
                upgrade_type,
            }],
            validate_only,
        };
        let bytes = broker.ask(ApiKey::UpdateFeatures, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| UpdateFeaturesResponse::decode(reader, version));
        (
            error(response.error_code),
            response.results.len(),
            broker.node.image().features.level("share.version"),
        )
    };
    let refused = ErrorCode::InvalidUpdateVersion;
    assert_eq!(ask(2, 1, 1, true), (ErrorCode::None, 0, 0), "only validated");
    assert_eq!(ask(1, 1, 1, false), (ErrorCode::None, 1, 1));
    // Version 0 has no upgrade types, and Apache Kafka ignores the field in their place.
    assert_eq!(ask(0, 0, 1, false), (refused, 0, 1));
    assert_eq!(ask(2, 0, 1, false), (refused, 0, 1));
    assert_eq!(ask(2, 0, 2, false), (ErrorCode::None, 0, 0));
    assert_eq!(ask(0, 1, 1, false), (ErrorCode::None, 1, 1));
    assert_eq!(ask(2, 0, 3, false), (ErrorCode::None, 0, 0));
    assert_eq!(ask(2, 1, 4, false), (refused, 0, 0));
}

#[test]
fn transactions_open_at_a_start_are_found_with_their_producers_and_times() {
    let broker = Broker::new(&[]);
    broker.create("t", 2, 7);
    let append = |producer_id: i64, base_offset: i64, timestamp_ms: i64| {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            is_transactional: true,
            ..BatchOptions::default()
        });
        builder.append(timestamp_ms, None, Some(b"v"), &[]);
        let partition = broker.node.storage.partition_by_name("t", 1).unwrap();
        partition
            .append_internal(broker.node.services(), &builder.finish())
            .unwrap();
    };
    assert_eq!(open_transactions::find(&broker.node.storage), []);
    append(77, 0, 1_700_000_000_000);
    append(78, 1, 1_700_000_005_000);
    // No coordinator has begun them.
    let hanging = hanging::look(&broker.node.storage, &broker.node.transactions);
    let hanging: Vec<_> = hanging
        .iter()
        .map(|(start, last)| (start.partition, start.producer_id, start.offset, last.0))
        .collect();
    assert_eq!(
        hanging,
        [(1, 77, 0, 1_700_000_000_000), (1, 78, 1, 1_700_000_005_000)]
    );
    broker.node.close().unwrap();
    let properties = BTreeMap::from([("log.dirs".to_owned(), "/data".to_owned())]);
    let Broker { disk, node, .. } = broker;
    drop(node);
    let again = Broker::on(disk, NodeConfig::from_properties(&properties, [6; 4]).unwrap());
    let found = open_transactions::find(&again.node.storage);
    let end = "`ottla transactions abort --topic t --partition 1 --start-offset 0` ends one";
    assert!(found[0].commands().contains(end), "{}", found[0].commands());
    assert_eq!(
        found,
        [open_transactions::OpenTransaction {
            topic: "t".into(),
            partition: 1,
            producer_id: 77,
            first_offset: 0,
            since: Some(Timestamp(1_700_000_000_000)),
            others: 1,
        }]
    );
}

#[test]
fn the_settings_of_one_listener_are_described_and_its_passwords_are_not() {
    const JAAS: &str = "listener.name.sasl_plaintext.plain.sasl.jaas.config";
    const MECHANISMS: &str = "listener.name.sasl_plaintext.sasl.enabled.mechanisms";
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let jaas = format!("{module} required user_alice=\"wonderland\";");
    let broker = Broker::new(&[
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:9092"),
        (MECHANISMS, "PLAIN,SCRAM-SHA-256"),
        (JAAS, &jaas),
    ]);
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 4,
            resource_name: "1",
            configuration_keys: Some(vec![JAAS, MECHANISMS]),
        }],
        include_synonyms: true,
        include_documentation: true,
    };
    let bytes = broker.ask(ApiKey::DescribeConfigs, 4, |body| request.encode(body, 4));
    assert!(!bytes.windows(10).any(|window| window == b"wonderland"));
    let response = read(&bytes, |reader| DescribeConfigsResponse::decode(reader, 4));
    let configs = response.results[0].configs.iter();
    let described: Vec<_> = configs
        .map(|config| (config.name, config.value, config.is_sensitive, config.read_only))
        .collect();
    assert_eq!(
        described,
        [
            (JAAS, None, true, false),
            (MECHANISMS, Some("PLAIN,SCRAM-SHA-256"), false, false)
        ]
    );
}
