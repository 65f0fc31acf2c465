"""Produces records to a broker and consumes them, with librdkafka: round_trip.py BOOTSTRAP."""

import sys
import uuid

from confluent_kafka import Consumer, KafkaError, Producer

RECORDS = 100


def round_trip(bootstrap_servers: str) -> None:
    topic = f"round-trip-{uuid.uuid4().hex[:8]}"
    sent = [f"record {number}".encode() for number in range(RECORDS)]
    refusals = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for value in sent:
        producer.produce(topic, value, on_delivery=lambda error, _: error and refusals.append(error))
    left = producer.flush(30)
    assert (left, refusals) == (0, []), (left, refusals)
    # Order holds within a partition, and a topic may have several.
    assert sorted(consume(bootstrap_servers, topic)) == sorted(sent)


def consume(bootstrap_servers: str, topic: str) -> list:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values = []
    while len(values) < RECORDS:
        record = consumer.poll(30)
        assert record is not None, f"no record within 30 s after {len(values)}"
        if record.error():
            assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
            continue
        values.append(record.value())
    consumer.close()
    return values


if __name__ == "__main__":
    round_trip(sys.argv[1])
    print(f"{RECORDS} records there and back")
