//! Kafka's error codes, whether a client may retry, and a sentence for each.

use std::fmt;

macro_rules! error_codes {
    ($($variant:ident = $code:literal $name:literal $retry:ident $description:literal)*) => {
        /// An error code of a response; every release of Kafka may add some.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $description] $variant = $code,)*
        }

        impl ErrorCode {
            /// Every code, ascending.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            pub fn from_i16(code: i16) -> Option<ErrorCode> {
                match code {
                    $($code => Some(ErrorCode::$variant),)*
                    _ => None,
                }
            }

            /// Kafka's name, e.g. `NOT_LEADER_OR_FOLLOWER`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)*
                }
            }

            /// Whether the same request may succeed later, without the client changing it.
            pub fn is_retriable(self) -> bool {
                match self {
                    $(ErrorCode::$variant => error_codes!(@is_retriable $retry),)*
                }
            }

            /// One sentence for people, without a full stop.
            pub fn description(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $description,)*
                }
            }
        }
    };
    (@is_retriable retry) => { true };
    (@is_retriable final) => { false };
}

impl ErrorCode {
    pub fn code(self) -> i16 {
        self as i16
    }
}

impl std::error::Error for ErrorCode {}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.name(), self.code())
    }
}

error_codes! {
    UnknownServerError = -1 "UNKNOWN_SERVER_ERROR" final "the broker failed in a way no other code describes"
    None = 0 "NONE" final "success"
    OffsetOutOfRange = 1 "OFFSET_OUT_OF_RANGE" final "the offset is before the log's start or after its end"
    CorruptMessage = 2 "CORRUPT_MESSAGE" retry "a batch has a wrong checksum, a wrong size or no key where compaction needs one"
    UnknownTopicOrPartition = 3 "UNKNOWN_TOPIC_OR_PARTITION" retry "the broker does not have this topic or partition"
    InvalidFetchSize = 4 "INVALID_FETCH_SIZE" final "the fetch asks for an impossible number of bytes"
    LeaderNotAvailable = 5 "LEADER_NOT_AVAILABLE" retry "the partition has no leader at the moment"
    NotLeaderOrFollower = 6 "NOT_LEADER_OR_FOLLOWER" retry "the broker no longer leads the partition, or no longer has a replica of it"
    RequestTimedOut = 7 "REQUEST_TIMED_OUT" retry "the request's own time limit passed before it was done"
    BrokerNotAvailable = 8 "BROKER_NOT_AVAILABLE" final "the broker cannot be reached or is not ready"
    ReplicaNotAvailable = 9 "REPLICA_NOT_AVAILABLE" retry "the broker should have a replica of the partition and does not"
    MessageTooLarge = 10 "MESSAGE_TOO_LARGE" final "a batch is larger than max.message.bytes"
    StaleControllerEpoch = 11 "STALE_CONTROLLER_EPOCH" final "the request comes from a controller that has been replaced"
    OffsetMetadataTooLarge = 12 "OFFSET_METADATA_TOO_LARGE" final "the metadata of a committed offset is longer than offset.metadata.max.bytes"
    NetworkException = 13 "NETWORK_EXCEPTION" retry "the connection broke before the response came"
    CoordinatorLoadInProgress = 14 "COORDINATOR_LOAD_IN_PROGRESS" retry "the coordinator is still reading its log"
    CoordinatorNotAvailable = 15 "COORDINATOR_NOT_AVAILABLE" retry "there is no coordinator for this group or transaction yet"
    NotCoordinator = 16 "NOT_COORDINATOR" retry "another broker coordinates this group or transaction"
    InvalidTopicException = 17 "INVALID_TOPIC_EXCEPTION" final "the topic's name is not allowed, or the operation is not allowed on this topic"
    RecordListTooLarge = 18 "RECORD_LIST_TOO_LARGE" final "a batch is larger than a segment may be"
    NotEnoughReplicas = 19 "NOT_ENOUGH_REPLICAS" retry "fewer replicas are in sync than min.insync.replicas asks for, nothing was written"
    NotEnoughReplicasAfterAppend = 20 "NOT_ENOUGH_REPLICAS_AFTER_APPEND" retry "the batch was written, then too few replicas were left in sync"
    InvalidRequiredAcks = 21 "INVALID_REQUIRED_ACKS" final "acks is not -1, 0 or 1"
    IllegalGeneration = 22 "ILLEGAL_GENERATION" final "the group has moved on to another generation"
    InconsistentGroupProtocol = 23 "INCONSISTENT_GROUP_PROTOCOL" final "the member shares no protocol with the rest of its group"
    InvalidGroupId = 24 "INVALID_GROUP_ID" final "the group id is empty or not allowed"
    UnknownMemberId = 25 "UNKNOWN_MEMBER_ID" final "the group has no member with this id"
    InvalidSessionTimeout = 26 "INVALID_SESSION_TIMEOUT" final "the session timeout is outside the range that the broker allows"
    RebalanceInProgress = 27 "REBALANCE_IN_PROGRESS" final "the group is rebalancing and the member must join again"
    InvalidCommitOffsetSize = 28 "INVALID_COMMIT_OFFSET_SIZE" final "the commit is too large for one batch"
    TopicAuthorizationFailed = 29 "TOPIC_AUTHORIZATION_FAILED" final "the principal may not do this with the topic"
    GroupAuthorizationFailed = 30 "GROUP_AUTHORIZATION_FAILED" final "the principal may not do this with the group"
    ClusterAuthorizationFailed = 31 "CLUSTER_AUTHORIZATION_FAILED" final "the principal may not do this with the cluster"
    InvalidTimestamp = 32 "INVALID_TIMESTAMP" final "a record's timestamp is further from the broker's clock than the topic allows"
    UnsupportedSaslMechanism = 33 "UNSUPPORTED_SASL_MECHANISM" final "the listener does not offer this SASL mechanism"
    IllegalSaslState = 34 "ILLEGAL_SASL_STATE" final "the request does not fit into the authentication at this point"
    UnsupportedVersion = 35 "UNSUPPORTED_VERSION" final "the broker does not serve this version of the API"
    TopicAlreadyExists = 36 "TOPIC_ALREADY_EXISTS" final "there is a topic of this name already"
    InvalidPartitions = 37 "INVALID_PARTITIONS" final "the number of partitions is below one or below what the topic has"
    InvalidReplicationFactor = 38 "INVALID_REPLICATION_FACTOR" final "the replication factor is below one or above the number of brokers"
    InvalidReplicaAssignment = 39 "INVALID_REPLICA_ASSIGNMENT" final "the given replicas are unknown, repeated or incomplete"
    InvalidConfig = 40 "INVALID_CONFIG" final "a configuration key is unknown or its value is not allowed"
    NotController = 41 "NOT_CONTROLLER" retry "another broker is the controller"
    InvalidRequest = 42 "INVALID_REQUEST" final "the request contradicts itself or the protocol"
    UnsupportedForMessageFormat = 43 "UNSUPPORTED_FOR_MESSAGE_FORMAT" final "the format of the stored records does not allow the request"
    PolicyViolation = 44 "POLICY_VIOLATION" final "a policy of the operator forbids the request"
    OutOfOrderSequenceNumber = 45 "OUT_OF_ORDER_SEQUENCE_NUMBER" final "the producer skipped a sequence number"
    DuplicateSequenceNumber = 46 "DUPLICATE_SEQUENCE_NUMBER" final "the batch was written before"
    InvalidProducerEpoch = 47 "INVALID_PRODUCER_EPOCH" final "the producer's epoch is older than the partition knows"
    InvalidTxnState = 48 "INVALID_TXN_STATE" final "the transaction's state does not allow the operation"
    InvalidProducerIdMapping = 49 "INVALID_PRODUCER_ID_MAPPING" final "the transactional id belongs to another producer id"
    InvalidTransactionTimeout = 50 "INVALID_TRANSACTION_TIMEOUT" final "the transaction timeout is above transaction.max.timeout.ms"
    ConcurrentTransactions = 51 "CONCURRENT_TRANSACTIONS" retry "an earlier operation on the transaction is not finished"
    TransactionCoordinatorFenced = 52 "TRANSACTION_COORDINATOR_FENCED" final "the marker comes from a transaction coordinator that has been replaced"
    TransactionalIdAuthorizationFailed = 53 "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" final "the principal may not use the transactional id"
    SecurityDisabled = 54 "SECURITY_DISABLED" final "the broker has no authorizer"
    OperationNotAttempted = 55 "OPERATION_NOT_ATTEMPTED" final "another part of the request failed first, so this one was not attempted"
    KafkaStorageError = 56 "KAFKA_STORAGE_ERROR" retry "the disk failed"
    LogDirNotFound = 57 "LOG_DIR_NOT_FOUND" final "the broker has no such log directory"
    SaslAuthenticationFailed = 58 "SASL_AUTHENTICATION_FAILED" final "the credentials are wrong"
    UnknownProducerId = 59 "UNKNOWN_PRODUCER_ID" final "the partition no longer has state of this producer"
    ReassignmentInProgress = 60 "REASSIGNMENT_IN_PROGRESS" final "the partition is being reassigned"
    DelegationTokenAuthDisabled = 61 "DELEGATION_TOKEN_AUTH_DISABLED" final "delegation tokens are switched off"
    DelegationTokenNotFound = 62 "DELEGATION_TOKEN_NOT_FOUND" final "there is no such delegation token"
    DelegationTokenOwnerMismatch = 63 "DELEGATION_TOKEN_OWNER_MISMATCH" final "the principal neither owns nor may renew the token"
    DelegationTokenRequestNotAllowed = 64 "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" final "tokens are not handed out over this kind of connection"
    DelegationTokenAuthorizationFailed = 65 "DELEGATION_TOKEN_AUTHORIZATION_FAILED" final "the principal may not do this with the token"
    DelegationTokenExpired = 66 "DELEGATION_TOKEN_EXPIRED" final "the token has expired"
    InvalidPrincipalType = 67 "INVALID_PRINCIPAL_TYPE" final "principals of this type are not known"
    NonEmptyGroup = 68 "NON_EMPTY_GROUP" final "the group still has members"
    GroupIdNotFound = 69 "GROUP_ID_NOT_FOUND" final "there is no such group"
    FetchSessionIdNotFound = 70 "FETCH_SESSION_ID_NOT_FOUND" retry "the broker has forgotten this fetch session"
    InvalidFetchSessionEpoch = 71 "INVALID_FETCH_SESSION_EPOCH" retry "the fetch is not the next one of its session"
    ListenerNotFound = 72 "LISTENER_NOT_FOUND" retry "the leader has no listener of this name"
    TopicDeletionDisabled = 73 "TOPIC_DELETION_DISABLED" final "the operator has switched off deleting topics"
    FencedLeaderEpoch = 74 "FENCED_LEADER_EPOCH" retry "the request's leader epoch is older than the partition's"
    UnknownLeaderEpoch = 75 "UNKNOWN_LEADER_EPOCH" retry "the request's leader epoch is newer than the partition's"
    UnsupportedCompressionType = 76 "UNSUPPORTED_COMPRESSION_TYPE" final "this version of the API does not know the batch's codec"
    StaleBrokerEpoch = 77 "STALE_BROKER_EPOCH" final "the broker has registered again since"
    OffsetNotAvailable = 78 "OFFSET_NOT_AVAILABLE" retry "the new leader does not know the high watermark yet"
    MemberIdRequired = 79 "MEMBER_ID_REQUIRED" final "the member must join again under the id it has just been given"
    PreferredLeaderNotAvailable = 80 "PREFERRED_LEADER_NOT_AVAILABLE" retry "the preferred leader cannot lead at the moment"
    GroupMaxSizeReached = 81 "GROUP_MAX_SIZE_REACHED" final "the group takes no more members"
    FencedInstanceId = 82 "FENCED_INSTANCE_ID" final "another member has taken over this group.instance.id"
    EligibleLeadersNotAvailable = 83 "ELIGIBLE_LEADERS_NOT_AVAILABLE" retry "no replica that may lead is alive"
    ElectionNotNeeded = 84 "ELECTION_NOT_NEEDED" retry "the partition already has the leader it should have"
    NoReassignmentInProgress = 85 "NO_REASSIGNMENT_IN_PROGRESS" final "the partition is not being reassigned"
    GroupSubscribedToTopic = 86 "GROUP_SUBSCRIBED_TO_TOPIC" final "offsets cannot be deleted while the group consumes the topic"
    InvalidRecord = 87 "INVALID_RECORD" final "a record breaks a rule of its topic"
    UnstableOffsetCommit = 88 "UNSTABLE_OFFSET_COMMIT" retry "a transaction with offsets of this partition is not finished"
    ThrottlingQuotaExceeded = 89 "THROTTLING_QUOTA_EXCEEDED" retry "the quota is used up for now"
    ProducerFenced = 90 "PRODUCER_FENCED" final "a newer producer has taken over the transactional id"
    ResourceNotFound = 91 "RESOURCE_NOT_FOUND" final "the request names something that does not exist"
    DuplicateResource = 92 "DUPLICATE_RESOURCE" final "the request names the same thing twice"
    UnacceptableCredential = 93 "UNACCEPTABLE_CREDENTIAL" final "the credential is weaker than the broker accepts"
    InconsistentVoterSet = 94 "INCONSISTENT_VOTER_SET" final "sender and receiver disagree on who votes"
    InvalidUpdateVersion = 95 "INVALID_UPDATE_VERSION" final "the update is based on a version that is not the current one"
    FeatureUpdateFailed = 96 "FEATURE_UPDATE_FAILED" final "the feature levels could not be changed"
    PrincipalDeserializationFailure = 97 "PRINCIPAL_DESERIALIZATION_FAILURE" final "the principal inside a forwarded request is unreadable"
    SnapshotNotFound = 98 "SNAPSHOT_NOT_FOUND" final "there is no such snapshot"
    PositionOutOfRange = 99 "POSITION_OUT_OF_RANGE" final "the position is outside the snapshot"
    UnknownTopicId = 100 "UNKNOWN_TOPIC_ID" retry "the broker has no topic with this id"
    DuplicateBrokerRegistration = 101 "DUPLICATE_BROKER_REGISTRATION" final "another living broker has this id"
    BrokerIdNotRegistered = 102 "BROKER_ID_NOT_REGISTERED" final "no broker has registered under this id"
    InconsistentTopicId = 103 "INCONSISTENT_TOPIC_ID" retry "the partition's log carries another topic id"
    InconsistentClusterId = 104 "INCONSISTENT_CLUSTER_ID" final "the request is meant for another cluster"
    TransactionalIdNotFound = 105 "TRANSACTIONAL_ID_NOT_FOUND" final "there is no such transactional id"
    FetchSessionTopicIdError = 106 "FETCH_SESSION_TOPIC_ID_ERROR" retry "the fetch session mixes topic names and topic ids"
    IneligibleReplica = 107 "INELIGIBLE_REPLICA" final "a replica in the new in-sync set may not be there"
    NewLeaderElected = 108 "NEW_LEADER_ELECTED" final "the change was made and led to another leader"
    OffsetMovedToTieredStorage = 109 "OFFSET_MOVED_TO_TIERED_STORAGE" final "the offset is in remote storage only"
    FencedMemberEpoch = 110 "FENCED_MEMBER_EPOCH" final "the member's epoch is not the group's; it must give up its partitions and join again"
    UnreleasedInstanceId = 111 "UNRELEASED_INSTANCE_ID" final "another member still holds this group.instance.id"
    UnsupportedAssignor = 112 "UNSUPPORTED_ASSIGNOR" final "the group cannot use this assignor"
    StaleMemberEpoch = 113 "STALE_MEMBER_EPOCH" final "the member must learn its new epoch from a heartbeat first"
    MismatchedEndpointType = 114 "MISMATCHED_ENDPOINT_TYPE" final "the request is for a controller but went to a broker, or the reverse"
    UnsupportedEndpointType = 115 "UNSUPPORTED_ENDPOINT_TYPE" final "endpoints of this type are not known"
    UnknownControllerId = 116 "UNKNOWN_CONTROLLER_ID" final "there is no controller with this id"
    UnknownSubscriptionId = 117 "UNKNOWN_SUBSCRIPTION_ID" final "the telemetry subscription has changed"
    TelemetryTooLarge = 118 "TELEMETRY_TOO_LARGE" final "the pushed telemetry is larger than the broker accepts"
    InvalidRegistration = 119 "INVALID_REGISTRATION" final "the controller refuses the broker's registration"
    TransactionAbortable = 120 "TRANSACTION_ABORTABLE" final "the transaction must be aborted, after that the transactional id is usable again"
    InvalidRecordState = 121 "INVALID_RECORD_STATE" final "the record cannot be acknowledged in its state"
    ShareSessionNotFound = 122 "SHARE_SESSION_NOT_FOUND" retry "the broker has forgotten this share session"
    InvalidShareSessionEpoch = 123 "INVALID_SHARE_SESSION_EPOCH" retry "the request is not the next one of its share session"
    FencedStateEpoch = 124 "FENCED_STATE_EPOCH" final "the share group's state has a newer epoch"
    InvalidVoterKey = 125 "INVALID_VOTER_KEY" final "the voter key is not the receiver's"
    DuplicateVoter = 126 "DUPLICATE_VOTER" final "the voter is already in the voter set"
    VoterNotFound = 127 "VOTER_NOT_FOUND" final "there is no such voter"
    InvalidRegularExpression = 128 "INVALID_REGULAR_EXPRESSION" final "the regular expression cannot be parsed"
    RebootstrapRequired = 129 "REBOOTSTRAP_REQUIRED" final "the client must start over from its bootstrap servers"
    StreamsInvalidTopology = 130 "STREAMS_INVALID_TOPOLOGY" final "the streams topology is invalid"
    StreamsInvalidTopologyEpoch = 131 "STREAMS_INVALID_TOPOLOGY_EPOCH" final "the epoch of the streams topology is invalid"
    StreamsTopologyFenced = 132 "STREAMS_TOPOLOGY_FENCED" final "the epoch of the streams topology is outdated"
    ShareSessionLimitReached = 133 "SHARE_SESSION_LIMIT_REACHED" retry "the broker has reached its limit of share sessions"
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn codes_have_no_gaps_and_survive_a_round_trip() {
        for (expected, error_code) in (-1..).zip(ErrorCode::ALL) {
            assert_eq!(error_code.code(), expected);
            assert_eq!(ErrorCode::from_i16(expected), Some(*error_code));
        }
        assert_eq!(ErrorCode::from_i16(ErrorCode::ALL.len() as i16 - 1), None);
        assert_eq!(ErrorCode::from_i16(-2), None);
    }

    #[test]
    fn transient_errors_are_retriable_and_permanent_ones_are_not() {
        assert!(ErrorCode::NotLeaderOrFollower.is_retriable());
        assert!(!ErrorCode::MessageTooLarge.is_retriable());
        assert_eq!(ErrorCode::UnknownTopicId.to_string(), "UNKNOWN_TOPIC_ID (100)");
    }
}
