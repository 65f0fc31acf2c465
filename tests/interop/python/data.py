"""Producing, fetching and looking up offsets."""

import threading
import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from suite import check, error_code, eventually, produce, same, take


def run(suite):
    suite.run("acks 0, 1 and all", acks)
    suite.run("idempotent producer", idempotent)
    suite.run("offsets by time", offsets_by_time)
    suite.run("list offsets", list_offsets)
    suite.run("read committed", read_committed)
    suite.run("many partitions", many_partitions)
    suite.run("small fetch limits", small_fetch_limits)
    suite.run("long poll", long_poll)
    suite.run("record too large", record_too_large)
    suite.run("unknown topic", unknown_topic)
    suite.run("auto-creation", auto_creation)
    suite.run("log append time", log_append_time)
    suite.run("delete and recreate under load", recreate_under_load)


def acks(suite):
    suite.create_topic("rd-acks")
    for level in ("0", "1", "all"):
        producer = suite.producer(acks=level)
        failed = []
        for i in range(100):
            produce(producer, failed, "rd-acks", value=f"{level}-{i}")
        same(0, producer.flush(60), "records left in the queue")
        same([], failed, "errors")
        # The queue of an acks=0 producer is empty when its bytes were sent, not when they have arrived.
        expected = {"0": 100, "1": 200, "all": 300}[level]
        eventually(f"all of acks={level} is there", lambda: offset(suite, "rd-acks", OffsetSpec.latest()) == expected)
    consumer = suite.direct("rd-acks", 1)
    messages = take(consumer, 300)
    same(b"0-0", messages[0].value(), "first record")
    same(b"all-99", messages[299].value(), "last record")
    consumer.close()


def idempotent(suite):
    suite.create_topic("rd-idempotent", 4)
    producer = suite.producer(enable_idempotence=True, linger_ms=0, batch_size=1024)
    failed = []
    count = 20_000
    for i in range(count):
        produce(producer, failed, "rd-idempotent", partition=i % 4, value=str(i))
    same(0, producer.flush(60), "records left in the queue")
    same([], failed, "errors")
    consumer = suite.direct("rd-idempotent", 4)
    following = [0, 1, 2, 3]
    for message in take(consumer, count):
        same(str(following[message.partition()]).encode(), message.value(), "order")
        following[message.partition()] += 4
    consumer.close()


def fill_times(suite, topic):
    """Timestamps 1,000,000 + 10 i, except record 50, which is the newest of all."""
    suite.create_topic(topic, retention_ms="-1")
    producer = suite.producer(linger_ms=0)
    failed = []
    for i in range(100):
        timestamp = 5_000_000 if i == 50 else 1_000_000 + 10 * i
        produce(producer, failed, topic, value="v", partition=0, timestamp=timestamp)
        producer.flush(60)
    same([], failed, "errors")


def offset(suite, topic, spec):
    partition = TopicPartition(topic, 0)
    return suite.admin.list_offsets({partition: spec})[partition].result(60).offset


def offsets_by_time(suite):
    fill_times(suite, "rd-times")
    consumer = suite.direct("rd-times", 1)
    for asked, expected in ((0, 0), (1_000_200, 20), (1_000_205, 21), (2_000_000, 50), (5_000_001, -1)):
        found = consumer.offsets_for_times([TopicPartition("rd-times", 0, asked)], timeout=30)[0]
        same(None, found.error, "error")
        same(expected, found.offset, f"offset of time {asked}")
    consumer.close()


def list_offsets(suite):
    fill_times(suite, "rd-list-offsets")
    same(0, offset(suite, "rd-list-offsets", OffsetSpec.earliest()), "earliest")
    same(100, offset(suite, "rd-list-offsets", OffsetSpec.latest()), "latest")
    same(50, offset(suite, "rd-list-offsets", OffsetSpec.max_timestamp()), "greatest timestamp")
    same(30, offset(suite, "rd-list-offsets", OffsetSpec.for_timestamp(1_000_291)), "by timestamp")
    consumer = suite.consumer()
    same((0, 100), consumer.get_watermark_offsets(TopicPartition("rd-list-offsets", 0), timeout=30), "watermarks")
    consumer.close()


def read_committed(suite):
    suite.create_topic("rd-committed")
    suite.fill("rd-committed", 500)
    consumer = suite.direct("rd-committed", 1, isolation_level="read_committed")
    take(consumer, 500)
    consumer.close()


def many_partitions(suite):
    count = 150
    suite.create_topic("rd-many", count)
    consumer = suite.direct("rd-many", count)
    producer = suite.producer(linger_ms=2)
    for round_index in range(3):
        failed = []
        for i in range(count):
            produce(producer, failed, "rd-many", partition=i, value=f"{round_index}-{i}")
        producer.flush(60)
        same([], failed, "errors")
        seen = {message.partition(): message.value() for message in take(consumer, count)}
        for i in range(count):
            same(f"{round_index}-{i}".encode(), seen.get(i), f"round {round_index}, partition {i}")
    consumer.close()


def small_fetch_limits(suite):
    suite.create_topic("rd-limits", 2)
    producer = suite.producer(linger_ms=5, batch_size=4096)
    failed = []
    for i in range(400):
        produce(producer, failed, "rd-limits", partition=i % 2, value="x" * 1000)
    producer.flush(60)
    same([], failed, "errors")
    # Each limit is smaller than one batch: the first batch must be returned anyway, or consumers make no progress.
    consumer = suite.direct(
        "rd-limits", 2, max_partition_fetch_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000
    )
    take(consumer, 400)
    consumer.close()


def long_poll(suite):
    suite.create_topic("rd-poll")
    consumer = suite.direct("rd-poll", 1, fetch_wait_max_ms=25_000, socket_timeout_ms=60_000)
    same([], consumer.consume(1, 1.5), "records of an empty topic")
    suite.fill("rd-poll", 1, partition=0)
    # The append must complete the waiting fetch, not its own timeout of 25 seconds.
    same(1, len(consumer.consume(1, 12)), "records after the append")
    consumer.close()


def record_too_large(suite):
    suite.create_topic("rd-large", max_message_bytes="2000")
    producer = suite.producer()
    failed = []
    produce(producer, failed, "rd-large", value="x" * 3000)
    producer.flush(60)
    same([KafkaError.MSG_SIZE_TOO_LARGE], [error.code() for error in failed], "errors")
    suite.fill("rd-large", 1)
    same(1, offset(suite, "rd-large", OffsetSpec.latest()), "end after the refused record")


def unknown_topic(suite):
    described = suite.admin.describe_topics(topic_collection("rd-no-such"))["rd-no-such"]
    same(KafkaError.UNKNOWN_TOPIC_OR_PART, error_code(described), "describing what does not exist")
    named = suite.admin.create_topics([NewTopic("../x", num_partitions=1, replication_factor=1)])["../x"]
    same(KafkaError.TOPIC_EXCEPTION, error_code(named), "creating ../x")
    suite.create_topic("rd-range")
    suite.fill("rd-range", 10)
    consumer = suite.consumer(auto_offset_reset="error")
    consumer.assign([TopicPartition("rd-range", 0, 1000)])
    give_up = time.monotonic() + 30
    code = None
    while code is None and time.monotonic() < give_up:
        for message in consumer.consume(1, 0.2):
            check(message.error() is not None, "offset 1000 of 10 was served")
            code = message.error().code()
    same(KafkaError._AUTO_OFFSET_RESET, code, "reading offset 1000 of 10")
    consumer.close()


def topic_collection(*names):
    from confluent_kafka import TopicCollection

    return TopicCollection(list(names))


def auto_creation(suite):
    suite.fill("rd-auto-created", 10)
    described = suite.admin.describe_topics(topic_collection("rd-auto-created"))["rd-auto-created"].result(60)
    same(1, len(described.partitions), "partitions (num.partitions=1)")


def log_append_time(suite):
    suite.create_topic("rd-append-time", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    producer = suite.producer(compression_type="lz4")
    failed = []
    produce(producer, failed, "rd-append-time", value="v", timestamp=1000)
    producer.flush(60)
    same([], failed, "errors")
    consumer = suite.direct("rd-append-time", 1)
    kind, timestamp = take(consumer, 1)[0].timestamp()
    same(TIMESTAMP_LOG_APPEND_TIME, kind, "timestamp type")
    check(timestamp >= before - 1000, f"the record carries {timestamp}")
    consumer.close()


def recreate_under_load(suite):
    topic = "rd-recreated"
    suite.create_topic(topic, 2)
    stop = threading.Event()
    acknowledged = [0]

    def load():
        producer = suite.producer(
            delivery_timeout_ms=3000, linger_ms=0, topic_metadata_refresh_interval_ms=500, enable_idempotence=False
        )

        def delivered(error, _message):
            if error is None:
                acknowledged[0] += 1

        while not stop.is_set():
            try:
                producer.produce(topic, value="v", on_delivery=delivered)
            except (BufferError, KafkaException):
                time.sleep(0.05)
            producer.poll(0.0005)
        producer.flush(10)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for round_index in range(3):
            before = acknowledged[0]
            eventually(f"records are acknowledged in round {round_index}", lambda: acknowledged[0] > before + 100)
            old = topic_id(suite, topic)
            suite.admin.delete_topics([topic])[topic].result(60)
            # The load may create the topic again (auto-creation): either way there is a new topic id.
            eventually("the topic exists again", lambda: recreated(suite, topic, old))
    finally:
        stop.set()
        thread.join()
    # Whatever the races were, the last incarnation is complete: from 0 to its end without a gap.
    end = offset(suite, topic, OffsetSpec.latest())
    consumer = suite.direct(topic, 1)
    for i, message in enumerate(take(consumer, end)):
        same(i, message.offset(), "offset")
    consumer.close()


def topic_id(suite, topic):
    described = suite.admin.describe_topics(topic_collection(topic))[topic].result(60)
    return str(described.topic_id)


def recreated(suite, topic, old):
    try:
        suite.create_topic(topic, 2)
    except KafkaException as failure:
        same(KafkaError.TOPIC_ALREADY_EXISTS, failure.args[0].code(), "creating it again")
    try:
        return topic_id(suite, topic) != old
    except KafkaException as failure:
        same(KafkaError.UNKNOWN_TOPIC_OR_PART, failure.args[0].code(), "describing it")
        return False
