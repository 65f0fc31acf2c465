//! The cluster itself: its brokers and their log directories.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_wire::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};

use super::context::{Context, Destination, Versions, decode_with, join_all};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::{Node, NodeId};
use crate::network::io::Address;
use crate::pending::Pending;

/// The cluster and its brokers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// `None` from a broker that has none.
    pub id: Option<String>,
    /// In a KRaft cluster any broker, which forwards to the controller.
    pub controller: Option<NodeId>,
    /// The brokers that are up.
    pub nodes: BTreeMap<NodeId, Node>,
}

/// One of a broker's `log.dirs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDirectory {
    /// −1 from brokers older than 3.3; so is `usable_bytes`.
    pub total_bytes: i64,
    /// -1 from brokers before 3.3 (KIP-827).
    pub usable_bytes: i64,
    /// The replicas in this directory.
    pub replicas: BTreeMap<TopicPartition, Replica>,
}

/// A replica of a partition in a log directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replica {
    /// The size of its log, in bytes.
    pub size_bytes: i64,
    /// Records that this replica is behind the partition's end.
    pub lag: i64,
    /// The replica is being moved here from another directory.
    pub is_future: bool,
}

impl Admin {
    /// Describes the cluster: its id, controller and brokers.
    pub fn describe_cluster(&self) -> Pending<ClusterDescription> {
        self.call(
            "describe cluster",
            |context| async move { describe(&context).await },
        )
    }

    /// Returns the log directories of these brokers by path; an empty list means all brokers.
    pub fn describe_log_dirs(
        &self,
        brokers: Vec<NodeId>,
    ) -> Pending<Results<NodeId, Results<String, LogDirectory>>> {
        self.call("describe log dirs", |context| async move {
            let brokers = match brokers.is_empty() {
                true => broker_ids(&context).await?,
                false => brokers,
            };
            let asked = brokers
                .iter()
                .map(|broker| describe_log_dirs(context.clone(), *broker));
            let results = join_all(asked).await;
            Ok(brokers.into_iter().zip(results).collect())
        })
    }
}

pub(super) async fn broker_ids(context: &Context) -> Result<Vec<NodeId>, Error> {
    Ok(describe(context).await?.nodes.into_keys().collect())
}

async fn describe(context: &Context) -> Result<ClusterDescription, Error> {
    match describe_with_its_own_api(context).await {
        // Brokers older than 2.8.
        Err(Error::UnsupportedVersion { .. }) => describe_by_metadata(context).await,
        described => described,
    }
}

async fn describe_with_its_own_api(context: &Context) -> Result<ClusterDescription, Error> {
    let encode = |version| {
        let request = DescribeClusterRequest {
            endpoint_type: 1,
            ..DescribeClusterRequest::default()
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Any,
            ApiKey::DescribeCluster,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, DescribeClusterResponse::decode)?;
                let message = response.error_message;
                if let Some(error) = resource_error(response.error_code, message, || "the cluster".into()) {
                    return Err(error);
                }
                let brokers = response.brokers.iter();
                let nodes =
                    brokers.map(|broker| node(broker.broker_id, broker.host, broker.port, broker.rack));
                Ok(ClusterDescription {
                    id: Some(response.cluster_id.to_owned()),
                    controller: (response.controller_id >= 0).then_some(NodeId(response.controller_id)),
                    nodes: nodes.collect(),
                })
            },
        )
        .await
}

async fn describe_by_metadata(context: &Context) -> Result<ClusterDescription, Error> {
    let encode = |version| {
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        body(|out| request.encode(out, version))
    };
    // Before version 1 an empty list means all topics.
    context
        .ask(
            Destination::Any,
            ApiKey::Metadata,
            Versions::from(1),
            encode,
            |answer| {
                let response = decode_with(answer, MetadataResponse::decode)?;
                let brokers = response.brokers.iter();
                let nodes = brokers.map(|broker| node(broker.node_id, broker.host, broker.port, broker.rack));
                Ok(ClusterDescription {
                    id: response.cluster_id.map(str::to_owned),
                    controller: (response.controller_id >= 0).then_some(NodeId(response.controller_id)),
                    nodes: nodes.collect(),
                })
            },
        )
        .await
}

fn node(id: i32, host: &str, port: i32, rack: Option<&str>) -> (NodeId, Node) {
    let node = Node {
        id: NodeId(id),
        address: Address {
            host: host.into(),
            port: u16::try_from(port).unwrap_or(0),
        },
        rack: rack.map(Into::into),
    };
    (NodeId(id), node)
}

async fn describe_log_dirs(context: Context, broker: NodeId) -> Result<Results<String, LogDirectory>, Error> {
    let encode = |version| body(|out| DescribeLogDirsRequest { topics: None }.encode(out, version));
    context
        .ask(
            Destination::Node(broker),
            ApiKey::DescribeLogDirs,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, DescribeLogDirsResponse::decode)?;
                let what = || format!("log directories of {broker:?}");
                if let Some(error) = resource_error(response.error_code, None, what) {
                    return Err(error);
                }
                let results = response.results.iter().map(|directory| {
                    let replicas = directory.topics.iter().flat_map(|topic| {
                        topic.partitions.iter().map(|partition| {
                            let replica = Replica {
                                size_bytes: partition.partition_size,
                                lag: partition.offset_lag,
                                is_future: partition.is_future_key,
                            };
                            (
                                TopicPartition::new(topic.name, partition.partition_index),
                                replica,
                            )
                        })
                    });
                    let described = LogDirectory {
                        total_bytes: directory.total_bytes,
                        usable_bytes: directory.usable_bytes,
                        replicas: replicas.collect(),
                    };
                    let what = || format!("log directory {}", directory.log_dir);
                    let result = resource_result(described, directory.error_code, None, what);
                    (directory.log_dir.to_owned(), result)
                });
                Ok(results.collect())
            },
        )
        .await
}
