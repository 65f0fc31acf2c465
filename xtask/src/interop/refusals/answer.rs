//! An answer as text, which is compared if the bytes of two brokers differ.

use std::sync::LazyLock;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages;
use ottla_wire::primitives::Reader;
use regex::Regex;

use super::exchange::{Ask, Outcome};

/// One broker's answer.
#[derive(Clone, Debug)]
pub struct Said {
    /// The received bytes, without the correlation id; empty if there were none.
    bytes: Vec<u8>,
    /// The names of its error codes in order, without repetition; or `closed`, `silence`.
    pub short: String,
    /// The whole answer without broker-specific parts.
    text: String,
    /// The whole answer including broker-specific parts.
    pub verbose: String,
}

impl Said {
    pub fn of(ask: &Ask, outcome: Outcome) -> Said {
        match outcome {
            Outcome::Closed => Said::only("closed"),
            Outcome::Silence => Said::only("silence"),
            Outcome::Hangs => Said::only("hangs"),
            Outcome::Answer(bytes) => match decode(ask, &bytes) {
                Ok(verbose) => Said {
                    bytes,
                    short: codes(&verbose),
                    text: without_own_words(&verbose),
                    verbose,
                },
                Err(error) => Said::only(&format!("unreadable: {error}: {bytes:02x?}")),
            },
        }
    }

    fn only(word: &str) -> Said {
        Said {
            bytes: Vec::new(),
            short: word.to_owned(),
            text: word.to_owned(),
            verbose: word.to_owned(),
        }
    }

    /// Every error code, at whatever level, with the names and permitted operations around it.
    pub fn facts(&self) -> Vec<String> {
        let found = FACTS.find_iter(&self.verbose);
        found.map(|fact| fact.as_str().to_owned()).collect()
    }

    /// Whether it is a response that can be read.
    pub fn is_answer(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether Ottla's answer equals Apache Kafka's: byte for byte, or except for messages. Ottla
    /// may name records at fault where Apache Kafka names none.
    pub fn is_like(&self, kafka: &Said) -> bool {
        if !self.bytes.is_empty() && self.bytes == kafka.bytes {
            return true;
        }
        match kafka.text.contains(NO_RECORDS) {
            true => RECORDS.replace_all(&self.text, NO_RECORDS) == kafka.text,
            false => self.text == kafka.text,
        }
    }
}

/// What an answer tells about access: error codes, permitted operations, the names of what it is
/// about, and whether it has the shape and the settings of a new topic.
static FACTS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\b\w*error_code: -?\d+|\b\w*authorized_operations: -?\d+|\bnum_partitions: -?\d+|",
        r"\b(?:topic_id|configs): [^,{}\[\]()]+|\b(?:issue|expiry|max)_timestamp(?:_ms)?: -?\d+|",
        r#"\b(?:name|topic|topic_name|group_id|transactional_id|resource_name|user|\w*principal_(?:type|name)): "#,
        r#"(?:None|(?:Some\()?"(?:[^"\\]|\\.)*")"#,
    ))
    .expect("the pattern is one")
});

const NO_RECORDS: &str = "record_errors: []";

static RECORDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"record_errors: \[[^\]]*\]").expect("the pattern is one"));

/// Fields that may differ between two brokers: messages for people, throttle times, generated
/// names, and values that depend on time.
static OWN_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"(error_message|batch_index_error_message): (None|Some\("(?:[^"\\]|\\.)*"\))|"#,
        r"(throttle_time_ms|log_append_time_ms|session_id|port): -?\d+|",
        r#"(member_id|leader): "[^"]*"|"#,
        // Null and empty are the same to every client.
        r"(aborted_transactions): (None|Some\(\[\]\))|",
        // In answers with an error.
        r"(base_offset): -1, log_append_time_ms: -1, log_start_offset: -?\d+|",
        r"(producer_id): \d+",
    ))
    .expect("the pattern is one")
});

static CODES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"error_code: (-?\d+)").expect("the pattern is one"));

fn without_own_words(verbose: &str) -> String {
    let is_own = |found: &regex::Captures<'_>| {
        let name = found[0].split(':').next().unwrap_or_default();
        format!("{name}: _")
    };
    OWN_WORDS.replace_all(verbose, is_own).into_owned()
}

fn codes(verbose: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for found in CODES.captures_iter(verbose) {
        let code: i16 = found[1].parse().expect("the pattern finds numbers");
        let name = ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |code| code.name().to_owned());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        "no code".to_owned()
    } else {
        names.join(", ")
    }
}

macro_rules! decoders {
    ($($api:ident => $module:ident::$message:ident,)*) => {
        fn body(ask: &Ask, reader: &mut Reader<'_>) -> Result<String, String> {
            // KIP-511: an unknown version of ApiVersions is answered in version 0.
            let version = match ask.api_key {
                ApiKey::ApiVersions if !ask.api_key.known_versions().contains(ask.version) => 0,
                _ => ask.version,
            };
            match ask.api_key {
                $(ApiKey::$api => messages::$module::$message::decode(reader, version)
                    .map(|message| format!("{message:?}"))
                    .map_err(|error| error.to_string()),)*
                other => Err(format!("no decoder for {other}")),
            }
        }
    };
}

decoders! {
    AddOffsetsToTxn => add_offsets_to_txn::AddOffsetsToTxnResponse,
    AddPartitionsToTxn => add_partitions_to_txn::AddPartitionsToTxnResponse,
    AlterClientQuotas => alter_client_quotas::AlterClientQuotasResponse,
    AlterConfigs => alter_configs::AlterConfigsResponse,
    AlterPartitionReassignments => alter_partition_reassignments::AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirs => alter_replica_log_dirs::AlterReplicaLogDirsResponse,
    AlterUserScramCredentials => alter_user_scram_credentials::AlterUserScramCredentialsResponse,
    ApiVersions => api_versions::ApiVersionsResponse,
    ConsumerGroupDescribe => consumer_group_describe::ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat => consumer_group_heartbeat::ConsumerGroupHeartbeatResponse,
    CreateAcls => create_acls::CreateAclsResponse,
    CreateDelegationToken => create_delegation_token::CreateDelegationTokenResponse,
    CreatePartitions => create_partitions::CreatePartitionsResponse,
    CreateTopics => create_topics::CreateTopicsResponse,
    DeleteAcls => delete_acls::DeleteAclsResponse,
    DeleteGroups => delete_groups::DeleteGroupsResponse,
    DeleteRecords => delete_records::DeleteRecordsResponse,
    DeleteTopics => delete_topics::DeleteTopicsResponse,
    DescribeAcls => describe_acls::DescribeAclsResponse,
    DescribeClientQuotas => describe_client_quotas::DescribeClientQuotasResponse,
    DescribeCluster => describe_cluster::DescribeClusterResponse,
    DescribeConfigs => describe_configs::DescribeConfigsResponse,
    DescribeDelegationToken => describe_delegation_token::DescribeDelegationTokenResponse,
    DescribeGroups => describe_groups::DescribeGroupsResponse,
    DescribeLogDirs => describe_log_dirs::DescribeLogDirsResponse,
    DescribeProducers => describe_producers::DescribeProducersResponse,
    DescribeQuorum => describe_quorum::DescribeQuorumResponse,
    DescribeTopicPartitions => describe_topic_partitions::DescribeTopicPartitionsResponse,
    DescribeTransactions => describe_transactions::DescribeTransactionsResponse,
    DescribeUserScramCredentials => describe_user_scram_credentials::DescribeUserScramCredentialsResponse,
    ElectLeaders => elect_leaders::ElectLeadersResponse,
    EndTxn => end_txn::EndTxnResponse,
    ExpireDelegationToken => expire_delegation_token::ExpireDelegationTokenResponse,
    Fetch => fetch::FetchResponse,
    FindCoordinator => find_coordinator::FindCoordinatorResponse,
    Heartbeat => heartbeat::HeartbeatResponse,
    IncrementalAlterConfigs => incremental_alter_configs::IncrementalAlterConfigsResponse,
    InitProducerId => init_producer_id::InitProducerIdResponse,
    JoinGroup => join_group::JoinGroupResponse,
    LeaveGroup => leave_group::LeaveGroupResponse,
    ListConfigResources => list_config_resources::ListConfigResourcesResponse,
    ListGroups => list_groups::ListGroupsResponse,
    ListOffsets => list_offsets::ListOffsetsResponse,
    ListPartitionReassignments => list_partition_reassignments::ListPartitionReassignmentsResponse,
    ListTransactions => list_transactions::ListTransactionsResponse,
    Metadata => metadata::MetadataResponse,
    OffsetCommit => offset_commit::OffsetCommitResponse,
    OffsetDelete => offset_delete::OffsetDeleteResponse,
    OffsetFetch => offset_fetch::OffsetFetchResponse,
    OffsetForLeaderEpoch => offset_for_leader_epoch::OffsetForLeaderEpochResponse,
    Produce => produce::ProduceResponse,
    RenewDelegationToken => renew_delegation_token::RenewDelegationTokenResponse,
    SaslAuthenticate => sasl_authenticate::SaslAuthenticateResponse,
    SaslHandshake => sasl_handshake::SaslHandshakeResponse,
    SyncGroup => sync_group::SyncGroupResponse,
    TxnOffsetCommit => txn_offset_commit::TxnOffsetCommitResponse,
    UpdateFeatures => update_features::UpdateFeaturesResponse,
    WriteTxnMarkers => write_txn_markers::WriteTxnMarkersResponse,
}

fn decode(ask: &Ask, frame: &[u8]) -> Result<String, String> {
    let mut reader = Reader::new(frame);
    decode_response_header(&mut reader, ask.api_key, ask.version).map_err(|error| error.to_string())?;
    let text = body(ask, &mut reader)?;
    reader.finish().map_err(|error| error.to_string())?;
    Ok(text)
}
