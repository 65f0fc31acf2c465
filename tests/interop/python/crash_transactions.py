"""librdkafka's transactions of the crash test; see crash_transactions.go for the records and the list."""

import random
import sys
import threading

from confluent_kafka import KafkaException


def load(suite, topic, partitions, path):
    """Works until standard input is closed."""
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    with open(path, "w", encoding="ascii", buffering=1) as written:
        producer = _open(suite, topic)
        number = 0
        while not closed.is_set():
            written.write(f"begun {number}\n")
            try:
                written.write(f"{_one(producer, topic, partitions, number)} {number}\n")
            except KafkaException as fatal:
                # The next producer ends what this one left open.
                print(f"transaction {number}: {fatal}", file=sys.stderr)
                producer = _open(suite, topic)
            number += 1


def _open(suite, topic):
    producer = suite.producer(
        transactional_id=topic,
        linger_ms=1,
        retry_backoff_ms=20,
        retry_backoff_max_ms=100,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=100,
    )
    _until_done(producer.init_transactions)
    return producer


def _until_done(call):
    while True:
        try:
            call(60)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def _one(producer, topic, partitions, number):
    try:
        producer.begin_transaction()
        pad = "x" * random.randrange(300)
        for index in range(1 + number % 8):
            producer.produce(topic, f"{number}:{index}:{pad}", partition=(number + index) % partitions)
        if number % 5 != 3:
            _until_done(producer.commit_transaction)
            return "committed"
        producer.flush(60)
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        print(f"transaction {number} is aborted: {failure}", file=sys.stderr)
    _until_done(producer.abort_transaction)
    return "aborted"
