"""Sends or reads against a quota for some seconds and reports the reached rate."""

import time

# Large, so that headers of batches and requests are less than one percent of the counted bytes.
RECORD = b"x" * 10_000

# The first seconds include the burst and the client's start.
WARM_UP_SECONDS, SECONDS = 5, 15
TOLERANCE = 0.05


def run(suite, role, topic, client_id, quota):
    throttles = []
    configs = {"client_id": client_id, "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    work = {"producer": produce, "consumer": consume, "requests": request}[role]
    rate = work(suite, topic, configs)
    # The broker itself reports the time that requests took.
    off = 0 if role == "requests" else rate / float(quota) - 1
    allowed = "" if role == "requests" else f" of {float(quota):.0f} allowed ({100 * off:+.1f} %)"
    name = f"{rate:.0f} bytes/s{allowed}, {len(throttles)} throttles told"

    def check(_suite):
        if abs(off) > TOLERANCE:
            raise AssertionError(name)
        if not throttles or max(throttles) <= 0:
            raise AssertionError(f"no throttle was told: {name}")

    suite.run(name, check)


def measured(step):
    """Bytes per second, as returned by the calls of `step`."""
    began = time.monotonic()
    start, total, last = None, 0, None
    while True:
        done = step()
        now = time.monotonic()
        if now - began < WARM_UP_SECONDS or (start is None and not done):
            continue
        # Measured from one arrival to another, because data arrives in bursts that must not be split.
        if start is None:
            start = now
        elif done:
            total, last = total + done, now
        if now - start >= SECONDS and done:
            return total / (last - start)


def request(suite, topic, configs):
    """One record in each request, as many requests as possible."""
    return produce(suite, topic, {**configs, "batch_num_messages": 1}, record=b"x")


def produce(suite, topic, configs, record=RECORD):
    producer = suite.producer(**configs, batch_size=65_536, linger_ms=5, queue_buffering_max_messages=1_000)
    delivered, failed = 0, []

    def on_delivery(error, _message):
        nonlocal delivered
        if error is None:
            delivered += len(record)
        else:
            failed.append(str(error))

    def step():
        nonlocal delivered
        before = delivered
        try:
            producer.produce(topic, value=record, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
        return delivered - before

    rate = measured(step)
    if failed:
        raise AssertionError(failed[0])
    # Flushing the waiting records would take as long again.
    producer.purge()
    producer.flush(30)
    return rate


def consume(suite, topic, configs):
    consumer = suite.consumer(**configs, group_id="quota-librdkafka")
    consumer.subscribe([topic])
    rate = measured(lambda: sum(len(message.value() or b"") for message in consumer.consume(1_000, timeout=0.05)))
    consumer.close()
    return rate
