"""Transactions of librdkafka, which adds partitions itself (before KIP-890)."""

import time

from confluent_kafka import KafkaException, TopicPartition


def run(suite):
    suite.run("commits are read, aborts are not", commit_and_abort)
    suite.run("a new producer fences the old one", fence)
    suite.run("consume, transform, produce: exactly once", exactly_once)


def begin(suite, transactional_id):
    producer = suite.producer(transactional_id=transactional_id)
    producer.init_transactions(60)
    return producer


def committed(suite, topic, partitions=1):
    """Reads a whole topic as committed."""
    consumer = suite.consumer(group_id=f"{topic}-check", isolation_level="read_committed", enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ended, give_up = [], set(), time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < give_up, f"not read within a minute: {values}"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return values


def commit_and_abort(suite):
    suite.create_topic("py-ends", 2)
    producer = begin(suite, "py-ends")
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("py-ends", f"{partition}-{number}", partition=partition)
        if number % 3 == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    wanted = sorted(f"{partition}-{number}" for partition in (0, 1) for number in (0, 2, 3, 5))
    found = sorted(committed(suite, "py-ends", 2))
    assert found == wanted, found


def fence(suite):
    suite.create_topic("py-fence")
    old = begin(suite, "py-fence")
    old.begin_transaction()
    old.produce("py-fence", "old")
    old.flush(60)
    fresh = begin(suite, "py-fence")
    try:
        old.produce("py-fence", "late")
        old.commit_transaction(60)
    except KafkaException as failure:
        assert failure.args[0].fatal(), failure
    else:
        raise AssertionError("a fenced producer committed")
    fresh.begin_transaction()
    fresh.produce("py-fence", "fresh")
    fresh.commit_transaction(60)
    found = committed(suite, "py-fence")
    assert found == ["fresh"], found


def exactly_once(suite):
    """Every third attempt is aborted, and the work begins again where the group has committed."""
    suite.create_topic("py-input")
    suite.create_topic("py-output")
    plain = suite.producer()
    for number in range(30):
        plain.produce("py-input", str(number), partition=0)
    plain.flush(60)
    attempt, done = 0, False
    while not done:
        producer = begin(suite, "py-loop")
        consumer = suite.consumer(group_id="py-loop", isolation_level="read_committed")
        consumer.subscribe(["py-input"])
        while True:
            messages = [message for message in consumer.consume(7, 2) if not message.error()]
            if not messages:
                at = consumer.committed([TopicPartition("py-input", 0)], 30)[0].offset
                if at == 30:
                    done = True
                    break
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce("py-output", message.value(), partition=0)
            offset = TopicPartition("py-input", 0, messages[-1].offset() + 1)
            producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 60)
            attempt += 1
            if attempt % 3 == 0:
                producer.abort_transaction(60)
                break
            producer.commit_transaction(60)
        consumer.close()
    found = committed(suite, "py-output")
    assert found == [str(number) for number in range(30)], found
