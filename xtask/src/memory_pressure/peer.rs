//! Connections that write raw requests, so that requests can be left incomplete and answers unread.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::RequestHeader;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_wire::messages::metadata::MetadataRequest;
use ottla_wire::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const PATIENCE: Duration = Duration::from_secs(30);

/// Size of the response header after the length, in the versions used here: a correlation id.
const RESPONSE_HEADER_BYTES: usize = 4;

pub struct Peer {
    socket: TcpStream,
    client_id: String,
}

impl Peer {
    pub fn connect(address: SocketAddr, client_id: &str) -> Result<Peer> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Peer {
            socket,
            client_id: client_id.to_owned(),
        })
    }

    pub fn frame(&self, api_key: ApiKey, api_version: i16, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        RequestHeader {
            api_key,
            api_version,
            correlation_id: 1,
            client_id: Some(&self.client_id),
        }
        .encode(&mut bytes);
        body(&mut bytes);
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// Sends as much of `bytes` as the peer accepts within a short time.
    pub fn send_some(&mut self, bytes: &[u8]) -> Result<usize> {
        self.socket.set_nonblocking(true)?;
        let (mut sent, mut refused) = (0, 0);
        while sent < bytes.len() && refused < 20 {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => (sent, refused) = (sent + count, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => break,
            }
        }
        self.socket.set_nonblocking(false)?;
        Ok(sent)
    }

    /// The answer's body.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame)?;
        ensure!(frame.len() >= RESPONSE_HEADER_BYTES, "an answer without a header");
        Ok(frame.split_off(RESPONSE_HEADER_BYTES))
    }

    pub fn ask(
        &mut self,
        api_key: ApiKey,
        api_version: i16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>> {
        let frame = self.frame(api_key, api_version, body);
        self.send(&frame)?;
        self.receive()
    }

    /// Sends a request and returns the time to its answer.
    pub fn timed(&mut self, frame: &[u8]) -> Result<Duration> {
        let began = Instant::now();
        self.send(frame)?;
        self.receive()?;
        Ok(began.elapsed())
    }

    pub fn create_topic(&mut self, name: &str, num_partitions: i32) -> Result<()> {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name,
                num_partitions,
                replication_factor: 1,
                ..Default::default()
            }],
            ..Default::default()
        };
        let body = self.ask(ApiKey::CreateTopics, 4, |bytes| request.encode(bytes, 4))?;
        let response = CreateTopicsResponse::decode(&mut Reader::new(&body), 4)?;
        ensure!(response.topics[0].error_code == 0, "{response:?}");
        Ok(())
    }

    pub fn produce(&self, topic: &str, partitions: std::ops::Range<i32>, bytes: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(1, None, Some(&vec![7; bytes]), &[]);
        let batch = builder.finish();
        let request = ProduceRequest {
            acks: 1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: topic,
                partition_data: partitions
                    .map(|index| PartitionProduceData {
                        index,
                        records: Some(&batch),
                    })
                    .collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.frame(ApiKey::Produce, 7, |bytes| request.encode(bytes, 7))
    }

    /// A fetch of these partitions from their start.
    pub fn fetch(&self, topic: &str, partitions: std::ops::Range<i32>, wait_ms: i32) -> Vec<u8> {
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: wait_ms,
            min_bytes: 1,
            max_bytes: i32::MAX,
            topics: vec![FetchTopic {
                topic,
                partitions: partitions
                    .map(|partition| FetchPartition {
                        partition,
                        fetch_offset: if wait_ms > 0 { 1_000_000_000 } else { 0 },
                        partition_max_bytes: 1 << 20,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.frame(ApiKey::Fetch, 4, |bytes| request.encode(bytes, 4))
    }

    pub fn metadata(&self) -> Vec<u8> {
        let request = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        self.frame(ApiKey::Metadata, 4, |bytes| request.encode(bytes, 4))
    }

    /// The smallest possible request.
    pub fn versions(&self) -> Vec<u8> {
        self.frame(ApiKey::ApiVersions, 0, |_| {})
    }
}
