"""Common to all cases: clients on one bootstrap address, waiting, and the result lines."""

import time
import traceback

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec


class Suite:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.failures = 0

    def run(self, name, body):
        try:
            body(self)
        except Exception as failure:  # noqa: BLE001 - a case may fail in any way
            self.failures += 1
            traceback.print_exc()
            self._report(name, "fail", f"{type(failure).__name__}: {failure}")
        else:
            self._report(name, "ok", "")

    @staticmethod
    def _report(name, outcome, detail):
        print(f"CASE\t{name}\t{outcome}\t{' '.join(detail.split())}", flush=True)

    def create_topic(self, name, partitions=1, **configs):
        config = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([topic])[name].result(60)
        eventually(f"{name} is served", lambda: self._is_served(name, partitions))

    def _is_served(self, name, partitions):
        # Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a moment: the controller is ahead of the broker. The client is new,
        # because librdkafka does not refresh metadata for a partition beyond those cached of a deleted topic of this name.
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = {TopicPartition(name, index): OffsetSpec.latest() for index in range(partitions)}
        try:
            for future in admin.list_offsets(wanted, request_timeout=10).values():
                future.result(30)
        except KafkaException:
            return False
        return True

    def producer(self, **configs):
        return Producer({"bootstrap.servers": self.bootstrap, **_dotted(configs)})

    def consumer(self, **configs):
        return self.consumer_of(_dotted(configs))

    def consumer_of(self, configs):
        """Like `consumer`, with the names of settings as librdkafka has them."""
        base = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "librdkafka-unnamed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
        return Consumer({**base, **configs})

    def direct(self, topic, partitions, **configs):
        """A consumer of all of `topic` from its start, without a group."""
        consumer = self.consumer(**configs)
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        return consumer

    def fill(self, topic, count, partition=None, partitions=1):
        """Writes value-0, value-1, ... to one partition, or round robin."""
        failed = []
        producer = self.producer(linger_ms=5)
        for i in range(count):
            at = partition if partition is not None else i % partitions
            produce(producer, failed, topic, partition=at, key=f"key-{i}", value=f"value-{i}")
        same(0, producer.flush(60), "records left in the queue")
        same([], failed, "errors")


def produce(producer, failed, topic, **arguments):
    def delivered(error, _message):
        if error is not None:
            failed.append(error)

    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **arguments)
            return
        except BufferError:
            producer.poll(0.1)


def take(consumer, count):
    """Polls until `count` records have arrived, then once more to check that there are no others."""
    messages = []
    give_up = time.monotonic() + 60
    while len(messages) < count:
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
        check(time.monotonic() < give_up, f"only {len(messages)} of {count} records in a minute")
    messages.extend(consumer.consume(10, 0.1))
    same(count, len(messages), "records consumed")
    return messages


def same(expected, actual, what):
    if expected != actual:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def error_code(future):
    """The error code of the failed future; success fails the case."""
    try:
        result = future.result(60)
    except KafkaException as failure:
        return failure.args[0].code()
    raise AssertionError(f"expected an error, got {result!r}")


def eventually(what, holds):
    give_up = time.monotonic() + 60
    while not holds():
        check(time.monotonic() < give_up, f"not within a minute: {what}")
        time.sleep(0.02)


def _dotted(configs):
    # Callbacks are Python objects and keep their names.
    return {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in configs.items()}
