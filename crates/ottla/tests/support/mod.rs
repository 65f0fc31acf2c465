//! Writes records into a broker with raw requests, so that a reader is tested without a producer;
//! asks for pages as a browser does.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{RequestHeader, decode_response_header};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

/// One connection.
pub struct Writer {
    socket: TcpStream,
    client_id: &'static str,
    correlation_id: i32,
}

impl Writer {
    pub fn connect(address: SocketAddr) -> Writer {
        Writer::connect_as("writer", address)
    }

    pub fn connect_as(client_id: &'static str, address: SocketAddr) -> Writer {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_nodelay(true).unwrap();
        Writer {
            socket,
            client_id,
            correlation_id: 0,
        }
    }

    /// Sends a request and returns the answer's body.
    pub fn ask(&mut self, api_key: ApiKey, api_version: i16, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.correlation_id += 1;
        let mut bytes = vec![0; 4];
        RequestHeader {
            api_key,
            api_version,
            correlation_id: self.correlation_id,
            client_id: Some(self.client_id),
        }
        .encode(&mut bytes);
        body(&mut bytes);
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&bytes).unwrap();
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame).unwrap();
        let mut reader = Reader::new(&frame);
        assert_eq!(
            decode_response_header(&mut reader, api_key, api_version),
            Ok(self.correlation_id)
        );
        frame[frame.len() - reader.remaining()..].to_vec()
    }

    pub fn create_topic(&mut self, name: &str, partition_count: i32) {
        let answer = self.ask(ApiKey::CreateTopics, 7, |body| {
            CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name,
                    num_partitions: partition_count,
                    replication_factor: 1,
                    ..CreatableTopic::default()
                }],
                timeout_ms: 30_000,
                ..CreateTopicsRequest::default()
            }
            .encode(body, 7);
        });
        let answer = CreateTopicsResponse::decode(&mut Reader::new(&answer), 7).unwrap();
        assert_eq!(answer.topics[0].error_code, 0);
    }

    /// Appends one batch and returns its first offset.
    pub fn append(&mut self, topic: &str, partition: i32, batch: &[u8]) -> i64 {
        let answer = self.ask(ApiKey::Produce, 9, |body| {
            ProduceRequest {
                acks: -1,
                timeout_ms: 30_000,
                topic_data: vec![TopicProduceData {
                    name: topic,
                    partition_data: vec![PartitionProduceData {
                        index: partition,
                        records: Some(batch),
                    }],
                    ..TopicProduceData::default()
                }],
                ..ProduceRequest::default()
            }
            .encode(body, 9);
        });
        let answer = ProduceResponse::decode(&mut Reader::new(&answer), 9).unwrap();
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0);
        partition.base_offset
    }
}

/// Sends a request and returns the connection with the answer's head read.
pub fn asked(address: SocketAddr, path: &str, headers: &str) -> (String, BufReader<TcpStream>) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n"
    )
    .unwrap();
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    (head, reader)
}

/// Returns the head and the body of an answer.
pub fn page(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    let (head, mut reader) = asked(address, path, headers);
    let mut body = String::new();
    reader.read_to_string(&mut body).unwrap();
    (head, body)
}
