"""aiokafka and kafka-python against a broker: what an application does every day."""

import asyncio
import sys
import time
from collections import Counter

from suite import same

PER_CODEC = 100
PARTITIONS = 3
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 30
# A record too many would come within this time.
GRACE_S = 0.5


def records(word, count):
    return [(b"key-%d" % number, b"%s-%d" % (word.encode(), number), b"%d" % number) for number in range(count)]


def same_records(expected, found, what):
    same(sorted(Counter(expected).items()), sorted(Counter(found).items()), what)


def shown(record):
    return record.key, record.value, record.headers[0][1]


def run(suite, client):
    if client == "aiokafka":
        run_aiokafka(suite)
    elif client == "kafka-python":
        run_kafka_python(suite)
    else:
        sys.exit(f"unknown client {client}")


def run_aiokafka(suite):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.structs import OffsetAndMetadata

    topic, committed = "aiokafka-everyday", "aiokafka-committed"

    async def with_admin(body):
        admin = AIOKafkaAdminClient(bootstrap_servers=suite.bootstrap)
        await admin.start()
        try:
            return await body(admin)
        finally:
            await admin.close()

    async def write(word, count, **settings):
        async with AIOKafkaProducer(bootstrap_servers=suite.bootstrap, **settings) as producer:
            sent = [
                await producer.send(topic, value, key=key, headers=[("number", number)])
                for key, value, number in records(word, count)
            ]
            await asyncio.gather(*sent)

    async def read(group, of, count):
        consumer = AIOKafkaConsumer(
            of,
            bootstrap_servers=suite.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await consumer.start()
        found, until = [], time.monotonic() + WAIT_S
        try:
            while time.monotonic() < until:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found += [shown(record) for record in batch]
                if len(found) >= count:
                    until = min(until, time.monotonic() + GRACE_S)
            await consumer.commit()
        finally:
            await consumer.stop()
        return found

    async def create(admin):
        await admin.create_topics(
            [
                NewTopic(topic, PARTITIONS, 1, topic_configs={"retention.ms": "86400000"}),
                NewTopic(committed, 1, 1),
            ]
        )

    async def exchange():
        expected = []
        for codec in CODECS:
            await write(str(codec), PER_CODEC, compression_type=codec, enable_idempotence=True)
            expected += records(str(codec), PER_CODEC)
        same_records(expected, await read("aiokafka-group", topic, len(expected)), "records")

    async def go_on():
        await write("more", 10)
        same_records(records("more", 10), await read("aiokafka-group", topic, 10), "records")

    async def transact():
        settings = {"bootstrap_servers": suite.bootstrap, "transactional_id": "aiokafka-transactional"}
        async with AIOKafkaProducer(**settings) as producer:
            for word in ["aborted", "committed"]:
                await producer.begin_transaction()
                for key, value, number in records(word, 5):
                    await producer.send_and_wait(committed, value, key=key, headers=[("number", number)])
                if word == "aborted":
                    await producer.abort_transaction()
                    continue
                offsets = {TopicPartition(topic, 0): OffsetAndMetadata(7, "")}
                await producer.send_offsets_to_transaction(offsets, "aiokafka-transactional-group")
                await producer.commit_transaction()
        same_records(records("committed", 5), await read("aiokafka-committed-group", committed, 5), "records")
        offsets = await with_admin(lambda admin: admin.list_consumer_group_offsets("aiokafka-transactional-group"))
        same(7, offsets[TopicPartition(topic, 0)].offset, "the offset of the transaction")

    async def administer(admin):
        groups = await admin.list_consumer_groups()
        assert any(group[0] == "aiokafka-group" for group in groups), groups
        await admin.describe_consumer_groups(["aiokafka-group"])
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()

    suite.run("create topics", lambda _: asyncio.run(with_admin(create)))
    suite.run("write with every codec and read with a group", lambda _: asyncio.run(exchange()))
    suite.run("the group goes on where it was", lambda _: asyncio.run(go_on()))
    suite.run("transactions", lambda _: asyncio.run(transact()))
    suite.run("groups and deletions", lambda _: asyncio.run(with_admin(administer)))


def run_kafka_python(suite):
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.structs import OffsetAndMetadata

    topic, committed = "kafka-python-everyday", "kafka-python-committed"

    def write(word, count, **settings):
        producer = KafkaProducer(bootstrap_servers=suite.bootstrap, **settings)
        sent = [
            producer.send(topic, value, key=key, headers=[("number", number)])
            for key, value, number in records(word, count)
        ]
        for future in sent:
            future.get(WAIT_S)
        producer.close()

    def read(group, of, count):
        consumer = KafkaConsumer(
            of,
            bootstrap_servers=suite.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        found, until = [], time.monotonic() + WAIT_S
        while (left := until - time.monotonic()) > 0:
            # kafka-python 3.0.12 forgets an assignment that arrives as the time of a poll ends: one long poll, no short ones.
            for batch in consumer.poll(timeout_ms=1000 * left).values():
                found += [shown(record) for record in batch]
            if len(found) >= count:
                until = min(until, time.monotonic() + GRACE_S)
        consumer.commit()
        consumer.close()
        return found

    def create(_suite):
        admin = KafkaAdminClient(bootstrap_servers=suite.bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(committed, 1, 1)])
        admin.close()

    def exchange(_suite):
        expected = []
        for codec in CODECS:
            write(str(codec), PER_CODEC, compression_type=codec)
            expected += records(str(codec), PER_CODEC)
        same_records(expected, read("kafka-python-group", topic, len(expected)), "records")

    def go_on(_suite):
        write("more", 10)
        same_records(records("more", 10), read("kafka-python-group", topic, 10), "records")

    def transact(_suite):
        producer = KafkaProducer(bootstrap_servers=suite.bootstrap, transactional_id="kafka-python-transactional")
        producer.init_transactions()
        for word in ["aborted", "committed"]:
            producer.begin_transaction()
            for key, value, number in records(word, 5):
                producer.send(committed, value, key=key, headers=[("number", number)]).get(WAIT_S)
            if word == "aborted":
                producer.abort_transaction()
                continue
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(7, "", -1)}
            producer.send_offsets_to_transaction(offsets, "kafka-python-transactional-group")
            producer.commit_transaction()
        producer.close()
        same_records(records("committed", 5), read("kafka-python-committed-group", committed, 5), "records")

    def administer(_suite):
        admin = KafkaAdminClient(bootstrap_servers=suite.bootstrap)
        offsets = admin.list_group_offsets("kafka-python-group")["kafka-python-group"]
        same(len(CODECS) * PER_CODEC + 10, sum(offset.offset for offset in offsets.values()), "committed offsets")
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
        admin.close()

    suite.run("create topics", create)
    suite.run("write with every codec and read with a group", exchange)
    suite.run("the group goes on where it was", go_on)
    suite.run("transactions", transact)
    suite.run("groups and deletions", administer)
