//! The bytes of a group's requests, and the meaning of an answer.

use std::time::{SystemTime, UNIX_EPOCH};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, decode_response_header};
use ottla_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use super::RequestLoad;

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// One record, acks=1.
    Produce,
    /// The group's topics.
    Metadata,
    ApiVersions,
}

/// After the length: API key 2, version 2.
const CORRELATION_ID_AT: usize = LENGTH_BYTES + 2 + 2;

/// For answers whose error code is not read.
const NO_ERROR: i16 = 0;

/// Builds the requests of a group and checks their answers.
#[derive(Debug)]
pub(super) struct Requests {
    api: Api,
    /// Topic and partition.
    places: Vec<(String, i32)>,
    topics: Vec<String>,
    batch: Vec<u8>,
}

impl Requests {
    /// - Shape: `load` has a topic with partitions.
    pub fn new(load: &RequestLoad) -> Requests {
        let places = load.topics.iter().flat_map(|topic| {
            (0..topic.partitions).map(move |partition| (topic.name.clone(), partition.cast_signed()))
        });
        let value = vec![b'x'; load.record_bytes as usize];
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = now.map_or(0, |since| since.as_millis() as i64);
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(timestamp, None, Some(&value), &[]);
        Requests {
            api: load.api,
            places: places.collect(),
            topics: load.topics.iter().map(|topic| topic.name.clone()).collect(),
            batch: builder.finish(),
        }
    }

    /// The frame that connection `number` sends, with correlation id 0.
    pub fn frame(&self, number: usize, client_id: &str) -> Vec<u8> {
        let header = RequestHeader {
            api_key: self.api.key(),
            api_version: self.api.version(),
            correlation_id: 0,
            client_id: Some(client_id),
        };
        let mut frame = vec![0; LENGTH_BYTES];
        header.encode(&mut frame);
        match self.api {
            Api::Produce => self.produce(number).encode(&mut frame, header.api_version),
            Api::Metadata => self.metadata().encode(&mut frame, header.api_version),
            Api::ApiVersions => ApiVersionsRequest::default().encode(&mut frame, header.api_version),
        }
        let bytes = (frame.len() - LENGTH_BYTES) as u32;
        frame[..LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
        frame
    }

    fn produce(&self, number: usize) -> ProduceRequest<'_> {
        let (topic, partition) = &self.places[number % self.places.len()];
        ProduceRequest {
            acks: 1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: topic,
                partition_data: vec![PartitionProduceData {
                    index: *partition,
                    records: Some(&self.batch),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        }
    }

    fn metadata(&self) -> MetadataRequest<'_> {
        let topics = self.topics.iter().map(|name| MetadataRequestTopic {
            name: Some(name),
            ..MetadataRequestTopic::default()
        });
        MetadataRequest {
            topics: Some(topics.collect()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        }
    }

    /// Checks an answer, without its length.
    ///
    /// - Errors: the broker's refusal, by Kafka's name of the error; an answer to another request,
    ///   or an unreadable one.
    pub fn judge(&self, answer: &[u8], correlation_id: i32) -> Result<(), String> {
        let read = self.read(answer, correlation_id);
        match read.map_err(|error| format!("an answer that cannot be read: {error}"))? {
            Answer::Code(NO_ERROR) => Ok(()),
            Answer::Code(code) => Err(match ErrorCode::from_i16(code) {
                Some(known) => known.to_string(),
                None => format!("error code {code}"),
            }),
            Answer::OfAnother(id) => Err(format!("the answer to request {id} came for {correlation_id}")),
        }
    }

    fn read(&self, answer: &[u8], correlation_id: i32) -> Result<Answer, DecodeError> {
        let mut reader = Reader::new(answer);
        let version = self.api.version();
        let id = decode_response_header(&mut reader, self.api.key(), version)?;
        if id != correlation_id {
            return Ok(Answer::OfAnother(id));
        }
        Ok(Answer::Code(match self.api {
            Api::Produce => {
                let response = ProduceResponse::decode(&mut reader, version)?;
                let partitions = response.responses.iter();
                let codes = partitions.flat_map(|topic| &topic.partition_responses);
                codes
                    .map(|partition| partition.error_code)
                    .next()
                    .unwrap_or(NO_ERROR)
            }
            Api::ApiVersions => ApiVersionsResponse::decode(&mut reader, version)?.error_code,
            // Decoding thousands of partitions would cost the machine more than the answer cost the
            // broker.
            Api::Metadata => NO_ERROR,
        }))
    }
}

enum Answer {
    Code(i16),
    OfAnother(i32),
}

/// Writes a correlation id into a frame of `Requests::frame`.
pub(super) fn number(frame: &mut [u8], correlation_id: i32) {
    frame[CORRELATION_ID_AT..CORRELATION_ID_AT + 4].copy_from_slice(&correlation_id.to_be_bytes());
}

impl Api {
    fn key(self) -> ApiKey {
        match self {
            Api::Produce => ApiKey::Produce,
            Api::Metadata => ApiKey::Metadata,
            Api::ApiVersions => ApiKey::ApiVersions,
        }
    }

    /// Served by every broker from 2.1 to 4.3, with topics by name.
    fn version(self) -> i16 {
        match self {
            Api::Produce => 7,
            Api::Metadata => 4,
            Api::ApiVersions => 0,
        }
    }
}
