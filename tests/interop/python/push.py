"""Runs a producer and a consumer side by side for some seconds, long enough that they push metrics."""

import time

TOPIC = "push-librdkafka"


def push(suite, seconds):
    suite.create_topic(TOPIC)
    producer = suite.producer(client_id="interop-librdkafka-producer")
    consumer = suite.consumer(client_id="interop-librdkafka-consumer", group_id="push-librdkafka")
    consumer.subscribe([TOPIC])
    end, read = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(20):
            producer.produce(TOPIC, value=b"x" * 100)
        producer.flush(30)
        read += len(consumer.consume(100, timeout=0.05))
    consumer.close()
    if read == 0:
        raise AssertionError("nothing was read")
