//! The settings that a client tells with its metrics, so that who reads these need not guess what
//! the client was told to do. Kafka's clients push none of them.

use super::sensor::{Family, Group, sensors};
use crate::config::{ConsumerConfig, ProducerConfig};

sensors! {
    PRODUCER: Group::Own, enum ProducerSetting {
        Acks {
            "setting-acks" Now "acks; -1: all.",
        }
        BatchSize {
            "setting-batch-size" Now "batch.size in bytes.",
        }
        Linger {
            "setting-linger-ms" Now "linger.ms.",
        }
        InFlight {
            "setting-max-in-flight" Now "max.in.flight.requests.per.connection.",
        }
        RequestSize {
            "setting-max-request-size" Now "max.request.size in bytes.",
        }
        SendBuffer {
            "setting-send-buffer-bytes" Now "send.buffer.bytes; -1: the system's default.",
        }
        MaxBlock {
            "setting-max-block-ms" Now "max.block.ms.",
        }
        DeliveryTimeout {
            "setting-delivery-timeout-ms" Now "delivery.timeout.ms.",
        }
    }
}

sensors! {
    CONSUMER: Group::Own, enum ConsumerSetting {
        FetchMin {
            "setting-fetch-min-bytes" Now "fetch.min.bytes.",
        }
        FetchMax {
            "setting-fetch-max-bytes" Now "fetch.max.bytes.",
        }
        FetchWait {
            "setting-fetch-max-wait-ms" Now "fetch.max.wait.ms.",
        }
        PartitionFetch {
            "setting-max-partition-fetch-bytes" Now "max.partition.fetch.bytes.",
        }
        PollRecords {
            "setting-max-poll-records" Now "max.poll.records.",
        }
        PollInterval {
            "setting-max-poll-interval-ms" Now "max.poll.interval.ms.",
        }
        SessionTimeout {
            "setting-session-timeout-ms" Now "session.timeout.ms.",
        }
        ReceiveBuffer {
            "setting-receive-buffer-bytes" Now "receive.buffer.bytes; -1: the system's default.",
        }
    }
}

pub(super) fn of_producer(config: &ProducerConfig) -> Family {
    use ProducerSetting as S;
    let mut told = Family::new(&PRODUCER);
    told.set(S::Acks, f64::from(config.acks.code()));
    told.set(S::BatchSize, config.batch_bytes as f64);
    told.set(S::Linger, config.linger_ms as f64);
    told.set(S::InFlight, config.max_in_flight_requests_per_connection as f64);
    told.set(S::RequestSize, config.max_request_bytes as f64);
    told.set(S::SendBuffer, buffer(config.client.send_buffer_bytes));
    told.set(S::MaxBlock, config.max_block_ms as f64);
    told.set(S::DeliveryTimeout, config.delivery_timeout_ms as f64);
    told
}

pub(super) fn of_consumer(config: &ConsumerConfig) -> Family {
    use ConsumerSetting as S;
    let mut told = Family::new(&CONSUMER);
    told.set(S::FetchMin, f64::from(config.fetch_bytes_min));
    told.set(S::FetchMax, f64::from(config.fetch_bytes_max));
    told.set(S::FetchWait, f64::from(config.fetch_wait_ms_max));
    told.set(S::PartitionFetch, f64::from(config.partition_fetch_bytes_max));
    told.set(S::PollRecords, config.max_poll_records as f64);
    told.set(S::PollInterval, config.max_poll_interval_ms as f64);
    told.set(S::SessionTimeout, config.session_timeout_ms as f64);
    told.set(S::ReceiveBuffer, buffer(config.client.receive_buffer_bytes));
    told
}

/// As Kafka writes it.
fn buffer(bytes: Option<usize>) -> f64 {
    bytes.map_or(-1.0, |bytes| bytes as f64)
}
