//! A group of the consumer protocol (KIP-848) with one member, which never says goodbye.

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_describe::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
};
use ottla_wire::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use ottla_wire::primitives::Reader;

use super::{Caller, MEMBERS, ORDERS, code, commit_as, find_coordinator, is_coming};

const HEARTBEAT_VERSION: i16 = 1;
const DESCRIBE_VERSION: i16 = 0;
const MEMBER: &str = "ZGFtYWdlLW1lbWJlci0x";

/// Joins the group and commits an offset as its member.
pub(super) fn join_and_commit(broker: &mut impl Caller, offset: i64) {
    let epoch = join(broker).expect("groups are served");
    commit_as(broker, MEMBERS, MEMBER, epoch, offset).expect("a member may commit");
}

/// Returns the member's epoch.
fn join(broker: &mut impl Caller) -> Result<i32, ErrorCode> {
    for _ in 0..1_000 {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: MEMBERS,
            member_id: MEMBER,
            rebalance_timeout_ms: 60_000,
            subscribed_topic_names: Some(vec![ORDERS]),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, HEARTBEAT_VERSION);
        let answer = broker.answer(ApiKey::ConsumerGroupHeartbeat, HEARTBEAT_VERSION, &body);
        let response = ConsumerGroupHeartbeatResponse::decode(&mut Reader::new(&answer), HEARTBEAT_VERSION)
            .expect("decodes");
        match code(response.error_code) {
            ErrorCode::None => return Ok(response.member_epoch),
            error if is_coming(error) => {
                find_coordinator(broker, MEMBERS);
                broker.pause();
            }
            error => return Err(error),
        }
    }
    Err(ErrorCode::CoordinatorNotAvailable)
}

/// The group's member, its subscription and its partitions.
pub fn described(broker: &mut impl Caller) -> Result<String, ErrorCode> {
    for _ in 0..1_000 {
        let request = ConsumerGroupDescribeRequest {
            group_ids: vec![MEMBERS],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, DESCRIBE_VERSION);
        let answer = broker.answer(ApiKey::ConsumerGroupDescribe, DESCRIBE_VERSION, &body);
        let response = ConsumerGroupDescribeResponse::decode(&mut Reader::new(&answer), DESCRIBE_VERSION)
            .expect("decodes");
        let group = &response.groups[0];
        match code(group.error_code) {
            ErrorCode::None => {
                let member = |member: &ottla_wire::messages::consumer_group_describe::Member<'_>| {
                    let mut assigned: Vec<(&str, Vec<i32>)> = member
                        .assignment
                        .topic_partitions
                        .iter()
                        .map(|assigned| (assigned.topic_name, assigned.partitions.clone()))
                        .collect();
                    assigned.sort();
                    format!(
                        "{} {:?} {assigned:?}",
                        member.member_id, member.subscribed_topic_names
                    )
                };
                return Ok(group.members.iter().map(member).collect());
            }
            error if is_coming(error) => {
                find_coordinator(broker, MEMBERS);
                broker.pause();
            }
            error => return Err(error),
        }
    }
    Err(ErrorCode::CoordinatorNotAvailable)
}
