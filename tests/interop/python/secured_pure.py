"""The cases of secured.py through kafka-python, which has neither librdkafka nor its TLS."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from secured import read_cases
from suite import same


def settings(case):
    found = {
        "bootstrap_servers": case["address"],
        "security_protocol": case["protocol"],
        "request_timeout_ms": 20_000,
    }
    if case["trust"] != "-":
        found["ssl_cafile"] = case["trust"]
    if case["key"] != "-":
        found["ssl_certfile"] = case["key"]
        found["ssl_keyfile"] = case["key"]
    if case["mechanism"] != "-":
        found["sasl_mechanism"] = case["mechanism"]
        found["sasl_plain_username"] = case["user"]
        found["sasl_plain_password"] = case["password"]
    return found


def exchange(_suite, case):
    value = f"value-{time.monotonic_ns()}".encode()
    producer = KafkaProducer(**settings(case))
    sent = producer.send(case["topic"], value, partition=0).get(60)
    producer.close()
    options = {**settings(case), "consumer_timeout_ms": 60_000, "request_timeout_ms": 40_000}
    consumer = KafkaConsumer(**options)
    consumer.assign([TopicPartition(case["topic"], 0)])
    consumer.seek(TopicPartition(case["topic"], 0), sent.offset)
    same(value, next(consumer).value, "value")
    consumer.close()


def refused(_suite, case):
    # It reports no more than that it got nowhere.
    options = {**settings(case), "max_block_ms": 3_000, "bootstrap_timeout_ms": 3_000}
    known = KafkaProducer.DEFAULT_CONFIG
    options = {key: value for key, value in options.items() if key in known}
    producer = None
    try:
        producer = KafkaProducer(**options)
        producer.send(case["topic"], b"value").get(5)
    except KafkaError:
        return
    finally:
        if producer is not None:
            producer.close(0)
    raise AssertionError("a record was accepted")


def run(suite, file):
    for case in read_cases(file):
        body = exchange if case["expected"] == "works" else refused
        suite.run(case["name"], lambda suite, case=case, body=body: body(suite, case))
