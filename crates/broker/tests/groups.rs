//! Groups through a whole broker: the first coordinator, a rebalance, a restart.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use ottla_broker::Broker;
use ottla_broker::broker::TemporaryDirectory;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_wire::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use ottla_wire::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse};
use ottla_wire::primitives::Reader;
use support::{Client, frame};

const GROUP: &str = "g";

fn create_topic(client: &mut Client) {
    let topic = CreatableTopic {
        name: "t",
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    client.receive(ApiKey::CreateTopics, 5, 1);
}

fn committed(client: &mut Client) -> i64 {
    let group = OffsetFetchRequestGroup {
        group_id: GROUP,
        topics: None,
        ..Default::default()
    };
    let request = OffsetFetchRequest {
        groups: vec![group],
        ..Default::default()
    };
    client.send(&frame(ApiKey::OffsetFetch, 8, 4, |bytes| {
        request.encode(bytes, 8)
    }));
    let body = client.receive(ApiKey::OffsetFetch, 8, 4);
    let response = OffsetFetchResponse::decode(&mut Reader::new(&body), 8).unwrap();
    response.groups[0].topics[0].partitions[0].committed_offset
}

fn list(client: &mut Client) -> (i16, usize) {
    let request = ListGroupsRequest::default();
    client.send(&frame(ApiKey::ListGroups, 4, 5, |bytes| request.encode(bytes, 4)));
    let body = client.receive(ApiKey::ListGroups, 4, 5);
    let response = ListGroupsResponse::decode(&mut Reader::new(&body), 4).unwrap();
    (response.error_code, response.groups.len())
}

#[test]
fn a_restarted_broker_loads_its_groups_without_being_asked() {
    let directory = TemporaryDirectory::create().unwrap();
    let path = directory.path().to_str().unwrap();
    for offset in [5, 6] {
        let broker = Broker::start_temporary(&[("log.dirs", path)]).unwrap();
        let mut client = Client::connect(broker.address());
        create_topic(&mut client);
        if offset > 5 {
            // No client has named the group since the restart. Loading is under way, so the client
            // asks until it is done.
            let loading = ErrorCode::CoordinatorLoadInProgress.code();
            let mut lists = std::iter::repeat_with(|| list(&mut client)).take(100_000);
            let listed = lists.find(|(error, _)| *error != loading);
            assert_eq!(listed, Some((0, 1)));
            assert_eq!(committed(&mut client), offset - 1);
        }
        client.find_coordinator(GROUP);
        client.commit(GROUP, "t", offset);
        assert_eq!(committed(&mut client), offset);
    }
}

#[test]
fn a_waiting_join_blocks_no_other_connection() {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "200")]).unwrap();
    let mut waiting = Client::connect(broker.address());
    waiting.find_coordinator(GROUP);
    let request = JoinGroupRequest {
        group_id: GROUP,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol {
            name: "range",
            metadata: b"",
        }],
        ..Default::default()
    };
    waiting.send(&frame(ApiKey::JoinGroup, 3, 6, |bytes| request.encode(bytes, 3)));
    let mut other = Client::connect(broker.address());
    other.find_coordinator(GROUP);
    // The delay ends by the broker's own clock: no request arrives that could wake it.
    let body = waiting.receive(ApiKey::JoinGroup, 3, 6);
    let response = JoinGroupResponse::decode(&mut Reader::new(&body), 3).unwrap();
    assert_eq!((response.error_code, response.generation_id), (0, 1));
}
