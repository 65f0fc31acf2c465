//! A Kafka endpoint that answers producers and stores nothing: a generator's rate against it is the
//! generator's own limit.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, encode_response_header};
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use ottla_wire::messages::init_producer_id::InitProducerIdResponse;
use ottla_wire::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use ottla_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use ottla_wire::primitives::{DecodeError, Reader};

use super::clock::thread_cpu_nanos;
use super::lock;

const HOST: &str = "127.0.0.1";
const PARTITIONS: i32 = 1;
/// From version 13 topics are named by id, and this endpoint gives them none.
const PRODUCE_MAX_VERSION: i16 = 12;
/// A client that announces more than this does not speak Kafka.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// The fields of a record batch before the number of records: base offset 8, length 4, leader epoch
/// 4, magic 1, checksum 4, attributes 2, last offset delta 4, first and last timestamp 16, producer
/// id 8, producer epoch 2, first sequence 4.
const RECORD_COUNT_AT: usize = 8 + 4 + 4 + 1 + 4 + 2 + 4 + 16 + 8 + 2 + 4;

/// Listens until it is dropped. Every topic exists, with one partition.
#[derive(Debug)]
pub struct NullSink {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    port: u16,
    is_closing: AtomicBool,
    next_offset: AtomicI64,
    next_producer_id: AtomicI64,
    /// Processor time of the connections' threads, as of their last request.
    cpu_nanos: AtomicU64,
    connections: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
}

impl NullSink {
    pub fn start() -> io::Result<NullSink> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            port: address.port(),
            is_closing: AtomicBool::new(false),
            next_offset: AtomicI64::new(0),
            next_producer_id: AtomicI64::new(0),
            cpu_nanos: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name(String::from("null-sink"))
            .spawn(move || accept(&listener, &accepting))?;
        Ok(NullSink {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of records that were answered.
    pub fn record_count(&self) -> u64 {
        self.shared.next_offset.load(Ordering::Relaxed).cast_unsigned()
    }

    /// Processor time that this endpoint has used in the process.
    pub fn cpu_nanos(&self) -> u64 {
        self.shared.cpu_nanos.load(Ordering::Relaxed)
    }
}

impl Drop for NullSink {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        // Wakes the acceptor; if that fails, the process is out of sockets and the thread is left
        // behind.
        if TcpStream::connect(self.address).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
        for (socket, thread) in lock(&self.shared.connections).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.is_closing.load(Ordering::Relaxed) {
            return;
        }
        let Ok(socket) = socket else { continue };
        let serving = Arc::clone(shared);
        let started = socket.try_clone().and_then(|own| {
            thread::Builder::new()
                .name(String::from("null-sink"))
                .spawn(move || {
                    // A client that disconnects, or speaks another protocol, gets no more answers.
                    let _ = serve(&own, &serving);
                    // The other handle of the socket is still open.
                    let _ = own.shutdown(Shutdown::Both);
                })
        });
        if let Ok(thread) = started {
            lock(&shared.connections).push((socket, thread));
        }
    }
}

fn serve(mut socket: &TcpStream, shared: &Shared) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(256 << 10, socket);
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    let mut counted = 0;
    loop {
        let mut length = [0; LENGTH_BYTES];
        input.read_exact(&mut length)?;
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.resize(bytes, 0);
        input.read_exact(&mut request)?;
        answer.clear();
        answer.extend_from_slice(&[0; LENGTH_BYTES]);
        let has_answer = shared
            .answer(&request, &mut answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if has_answer {
            let bytes = (answer.len() - LENGTH_BYTES) as u32;
            answer[..LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
            socket.write_all(&answer)?;
        }
        let used = thread_cpu_nanos();
        shared.cpu_nanos.fetch_add(used - counted, Ordering::Relaxed);
        counted = used;
    }
}

impl Shared {
    /// Returns false if the client wants no answer.
    fn answer(&self, request: &[u8], answer: &mut Vec<u8>) -> Result<bool, DecodeError> {
        let mut reader = Reader::new(request);
        let header = RequestHeader::decode(&mut reader)?;
        let version = header.api_version;
        encode_response_header(answer, header.api_key, version, header.correlation_id);
        match header.api_key {
            ApiKey::ApiVersions => {
                // KIP-511: a request of an unknown version is answered in version 0.
                let known = ApiKey::ApiVersions.known_versions();
                let version = if known.contains(version) { version } else { 0 };
                api_versions().encode(answer, version);
            }
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(&mut reader, version)?;
                self.metadata(&request).encode(answer, version);
            }
            ApiKey::InitProducerId => InitProducerIdResponse {
                producer_id: self.next_producer_id.fetch_add(1, Ordering::Relaxed),
                producer_epoch: 0,
                ..InitProducerIdResponse::default()
            }
            .encode(answer, version),
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&mut reader, version)?;
                self.produce(&request).encode(answer, version);
                return Ok(request.acks != 0);
            }
            other => {
                return Err(DecodeError::UnknownKey {
                    key: other.code().into(),
                });
            }
        }
        Ok(true)
    }

    fn metadata<'a>(&self, request: &MetadataRequest<'a>) -> MetadataResponse<'a> {
        let named = request.topics.iter().flatten();
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 0,
                host: HOST,
                port: self.port.into(),
                ..MetadataResponseBroker::default()
            }],
            cluster_id: Some("null-sink"),
            controller_id: 0,
            topics: named
                .map(|topic| MetadataResponseTopic {
                    name: topic.name,
                    partitions: (0..PARTITIONS).map(partition).collect(),
                    ..MetadataResponseTopic::default()
                })
                .collect(),
            ..MetadataResponse::default()
        }
    }

    fn produce<'a>(&self, request: &ProduceRequest<'a>) -> ProduceResponse<'a> {
        let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
            name: topic.name,
            partition_responses: topic
                .partition_data
                .iter()
                .map(|data| self.append(data))
                .collect(),
            ..TopicProduceResponse::default()
        });
        ProduceResponse {
            responses: topics.collect(),
            ..ProduceResponse::default()
        }
    }

    fn append(&self, data: &PartitionProduceData<'_>) -> PartitionProduceResponse<'static> {
        let count = data.records.map_or(0, record_count);
        PartitionProduceResponse {
            index: data.index,
            base_offset: self.next_offset.fetch_add(count, Ordering::Relaxed),
            log_append_time_ms: -1,
            log_start_offset: 0,
            ..PartitionProduceResponse::default()
        }
    }
}

fn record_count(batch: &[u8]) -> i64 {
    let field = batch.get(RECORD_COUNT_AT..).and_then(<[u8]>::first_chunk);
    field.map_or(0, |bytes| i64::from(i32::from_be_bytes(*bytes)))
}

fn partition(index: i32) -> MetadataResponsePartition {
    MetadataResponsePartition {
        partition_index: index,
        leader_id: 0,
        leader_epoch: 0,
        replica_nodes: vec![0],
        isr_nodes: vec![0],
        ..MetadataResponsePartition::default()
    }
}

fn api_versions() -> ApiVersionsResponse<'static> {
    let served = [
        ApiKey::Produce,
        ApiKey::Metadata,
        ApiKey::ApiVersions,
        ApiKey::InitProducerId,
    ];
    let api_keys = served.map(|api_key| {
        let known = api_key.known_versions();
        ApiVersion {
            api_key: api_key.code(),
            min_version: known.min,
            max_version: match api_key {
                ApiKey::Produce => PRODUCE_MAX_VERSION,
                _ => known.max,
            },
        }
    });
    ApiVersionsResponse {
        api_keys: api_keys.to_vec(),
        ..ApiVersionsResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_client::config::Config;
    use ottla_client::producer::{Producer, Record};

    fn check(acks: &str) -> (NullSink, Vec<i64>) {
        let sink = NullSink::start().unwrap();
        let config = Config::new()
            .set("bootstrap.servers", sink.address())
            .set("acks", acks)
            .set("linger.ms", 0);
        let producer = Producer::new(&config).unwrap();
        let sent: Vec<_> = (0..100)
            .map(|_| producer.send(&Record::new("any").value(b"x")).unwrap())
            .collect();
        let offsets = sent.into_iter().map(|sent| sent.wait().unwrap().offset).collect();
        producer.close(std::time::Duration::from_secs(60)).unwrap();
        (sink, offsets)
    }

    #[test]
    fn every_record_has_an_offset_and_nothing_is_counted_twice() {
        let (sink, offsets) = check("all");
        assert_eq!(offsets, (0..100).collect::<Vec<i64>>());
        assert_eq!(sink.record_count(), 100);
        assert!(sink.cpu_nanos() > 0);
    }

    #[test]
    fn a_client_that_wants_no_answer_gets_none() {
        let (_, offsets) = check("0");
        assert_eq!(offsets, [-1; 100]);
    }

    #[test]
    fn nonsense_ends_the_connection_and_not_the_endpoint() {
        let sink = NullSink::start().unwrap();
        let mut socket = TcpStream::connect(sink.address()).unwrap();
        socket.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0);
        let mut socket = TcpStream::connect(sink.address()).unwrap();
        socket.write_all(&[0, 0, 0, 4, 1, 2, 3, 4]).unwrap();
        assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0);
        assert!(TcpStream::connect(sink.address()).is_ok());
    }
}
