//! A client that writes frames by hand, so that it can also write broken ones.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

pub mod gate;
pub mod http;
pub mod large;
pub mod net;
pub mod page_cache;
pub mod sasl;
pub mod slow_disk;
pub mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{RequestHeader, decode_response_header};
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::primitives::Reader;
use rustix::net::{AddressFamily, SocketType};

/// Long enough that only a hang reaches it.
pub const HANG: Duration = Duration::from_secs(60);

pub struct Client {
    pub socket: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect(address).unwrap())
    }

    /// Connects from an address of its own, as another machine would; all of 127.0.0.0/8 is usable
    /// on the loopback.
    pub fn connect_from(source: [u8; 4], address: SocketAddr) -> Client {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        Client::of(socket.into())
    }

    fn of(socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_write_timeout(Some(HANG)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket }
    }

    /// Finds the group's coordinator, which makes the topic of offsets where there is none.
    pub fn find_coordinator(&mut self, group_id: &str) {
        const CORRELATION_ID: i32 = 61;
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![group_id],
            ..Default::default()
        };
        self.send(&frame(ApiKey::FindCoordinator, 4, CORRELATION_ID, |bytes| {
            request.encode(bytes, 4)
        }));
        let body = self.receive(ApiKey::FindCoordinator, 4, CORRELATION_ID);
        let response = FindCoordinatorResponse::decode(&mut Reader::new(&body), 4).unwrap();
        let coordinator = &response.coordinators[0];
        assert_eq!(
            (coordinator.error_code, coordinator.node_id),
            (ErrorCode::None.code(), 1)
        );
    }

    /// Commits an offset of partition 0 for a group without members.
    pub fn commit(&mut self, group_id: &str, topic: &str, committed_offset: i64) {
        const CORRELATION_ID: i32 = 60;
        let partition = OffsetCommitRequestPartition {
            committed_offset,
            ..Default::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: topic,
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id,
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        self.send(&frame(ApiKey::OffsetCommit, 8, CORRELATION_ID, |bytes| {
            request.encode(bytes, 8)
        }));
        let body = self.receive(ApiKey::OffsetCommit, 8, CORRELATION_ID);
        let response = OffsetCommitResponse::decode(&mut Reader::new(&body), 8).unwrap();
        let code = response.topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::None.code());
    }

    /// Sends IncrementalAlterConfigs that sets one of the brokers' settings; returns the code and
    /// the message.
    ///
    /// - `broker`: an id; empty: all brokers.
    pub fn alter_broker(&mut self, broker: &str, name: &str, value: &str) -> (i16, String) {
        const CORRELATION_ID: i32 = 63;
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: 4,
                resource_name: broker,
                configs: vec![AlterableConfig {
                    name,
                    config_operation: 0,
                    value: Some(value),
                }],
            }],
            validate_only: false,
        };
        self.send(&frame(
            ApiKey::IncrementalAlterConfigs,
            1,
            CORRELATION_ID,
            |bytes| request.encode(bytes, 1),
        ));
        let body = self.receive(ApiKey::IncrementalAlterConfigs, 1, CORRELATION_ID);
        let answer = IncrementalAlterConfigsResponse::decode(&mut Reader::new(&body), 1).unwrap();
        let outcome = &answer.responses[0];
        (
            outcome.error_code,
            outcome.error_message.unwrap_or_default().to_owned(),
        )
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Receives the body of the next reply, checked to be the one to `correlation_id`.
    pub fn receive(&mut self, api_key: ApiKey, api_version: i16, correlation_id: i32) -> Vec<u8> {
        self.try_receive(api_key, api_version, correlation_id).unwrap()
    }

    /// Like [`Client::receive`]; an error when the connection is closed instead, or silent for a
    /// minute.
    pub fn try_receive(
        &mut self,
        api_key: ApiKey,
        api_version: i16,
        correlation_id: i32,
    ) -> std::io::Result<Vec<u8>> {
        receive_from(&mut self.socket, api_key, api_version, correlation_id)
    }

    /// Waits until the broker has closed the connection; returns what it sent before.
    pub fn closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
        rest
    }
}

/// Receives the body of the next reply, checked to be the one to `correlation_id`.
pub fn receive_from(
    stream: &mut impl Read,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    let mut reader = Reader::new(&frame);
    assert_eq!(
        decode_response_header(&mut reader, api_key, api_version),
        Ok(correlation_id)
    );
    Ok(frame[frame.len() - reader.remaining()..].to_vec())
}

/// A whole request as sent: length, header, body.
pub fn frame(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    frame_of("test", api_key, api_version, correlation_id, body)
}

/// Like [`frame`], with another client id.
pub fn frame_of(
    client_id: &str,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    RequestHeader {
        api_key,
        api_version,
        correlation_id,
        client_id: Some(client_id),
    }
    .encode(&mut bytes);
    body(&mut bytes);
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}
