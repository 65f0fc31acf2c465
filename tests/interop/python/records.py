"""Records that every client writes and every client reads.

Record i of a topic goes to partition i % 3; key null when i % 5 == 0, else key-i; value null when i % 7 == 0, else
value-i- and i % 50 times abcdefghij; headers writer, i and nothing (null); timestamp 1,700,000,000,000 + i.
"""

from suite import produce, same, take

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
COUNT = 600
FIRST_TIMESTAMP = 1_700_000_000_000


def topic(writer, codec):
    return f"cross-{writer}-{codec}"


def write_all(suite):
    for codec in CODECS:
        suite.run(f"write {codec}", lambda suite, codec=codec: write(suite, codec))


def read_all(suite, writers):
    for writer in writers:
        for codec in CODECS:
            suite.run(f"read {writer} {codec}", lambda suite, w=writer, c=codec: read(suite, topic(w, c), w))


def key(i):
    return None if i % 5 == 0 else f"key-{i}".encode()


def value(i):
    return None if i % 7 == 0 else f"value-{i}-{'abcdefghij' * (i % 50)}".encode()


def headers(writer, i):
    return [("writer", writer.encode()), ("i", str(i).encode()), ("nothing", None)]


def write(suite, codec):
    name = topic("librdkafka", codec)
    # The timestamps are older than any default retention.
    suite.create_topic(name, PARTITIONS, retention_ms="-1")
    producer = suite.producer(compression_type=codec, linger_ms=50, acks="all")
    failed = []
    for i in range(COUNT):
        produce(
            producer, failed, name, partition=i % PARTITIONS, key=key(i), value=value(i),
            timestamp=FIRST_TIMESTAMP + i, headers=headers("librdkafka", i),
        )
    same(0, producer.flush(60), "records left in the queue")
    same([], failed, "errors")


def read(suite, name, writer):
    consumer = suite.direct(name, PARTITIONS)
    following = [0, 1, 2]
    for message in take(consumer, COUNT):
        i = following[message.partition()]
        following[message.partition()] += PARTITIONS
        same(i // PARTITIONS, message.offset(), f"offset of record {i}")
        same(key(i), message.key(), f"key of record {i}")
        same(value(i), message.value(), f"value of record {i}")
        same(FIRST_TIMESTAMP + i, message.timestamp()[1], f"timestamp of record {i}")
        same(headers(writer, i), message.headers(), f"headers of record {i}")
    consumer.close()
