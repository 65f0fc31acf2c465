"""Reads topics from start to end: every offset must be there, once and in order."""

import time

from confluent_kafka import TopicPartition
from suite import check, same


def drain(suite, topics):
    consumer = suite.consumer(isolation_level="read_committed")
    ends = {}
    for topic in topics:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        for index in known:
            partition = TopicPartition(topic, index, 0)
            ends[topic, index] = consumer.get_watermark_offsets(partition, timeout=30)[1]
    following = {key: 0 for key, end in ends.items() if end > 0}
    missing = sum(ends.values())
    consumer.assign([TopicPartition(topic, index, 0) for topic, index in following])
    give_up = time.monotonic() + 90
    while missing > 0:
        stuck = {key: offset for key, offset in following.items() if offset < ends[key]}
        check(time.monotonic() < give_up, f"not read to the end: {stuck}")
        message = consumer.poll(1)
        if message is None:
            continue
        where = message.topic(), message.partition()
        check(message.error() is None, f"{where}: {message.error()}")
        same(following[where], message.offset(), f"the offset in {where}")
        following[where] += 1
        missing -= 1
    consumer.close()
