"""Works against a quota for some seconds and reports the rate that it got."""

import time

RECORD = b"x" * 1_000

# The first seconds hold the burst that is free and the start of the client.
WARM_UP_SECONDS, SECONDS = 5, 15
TOLERANCE = 0.05


def run(suite, role, topic, client_id, quota):
    throttles = []
    configs = {"client_id": client_id, "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    work = {"producer": produce, "consumer": consume}[role]
    rate = work(suite, topic, configs)
    off = rate / float(quota) - 1
    name = f"{rate:.0f} bytes/s of {float(quota):.0f} allowed ({100 * off:+.1f} %), {len(throttles)} throttles told"

    def check(_suite):
        if abs(off) > TOLERANCE:
            raise AssertionError(name)
        if not throttles or max(throttles) <= 0:
            raise AssertionError(f"no throttle was told: {name}")

    suite.run(name, check)


def measured(step):
    """Bytes per second of what `step` returns, call by call."""
    began = time.monotonic()
    start, total, last = None, 0, None
    while True:
        done = step()
        now = time.monotonic()
        if now - began < WARM_UP_SECONDS or (start is None and not done):
            continue
        # From one arrival to another: what arrives in lumps is not cut in the middle of one.
        if start is None:
            start = now
        elif done:
            total, last = total + done, now
        if now - start >= SECONDS and done:
            return total / (last - start)


def produce(suite, topic, configs):
    producer = suite.producer(**configs, batch_size=65_536, linger_ms=5, queue_buffering_max_messages=5_000)
    delivered = 0

    def on_delivery(error, _message):
        nonlocal delivered
        if error is not None:
            raise AssertionError(str(error))
        delivered += len(RECORD)

    def step():
        nonlocal delivered
        before = delivered
        try:
            producer.produce(topic, value=RECORD, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
        return delivered - before

    rate = measured(step)
    producer.purge()
    producer.flush(30)
    return rate


def consume(suite, topic, configs):
    consumer = suite.consumer(**configs, group_id="quota-librdkafka")
    consumer.subscribe([topic])
    rate = measured(lambda: sum(len(message.value() or b"") for message in consumer.consume(1_000, timeout=0.05)))
    consumer.close()
    return rate
