"""One producer or consumer as a properties file describes it.

Prints a line of JSON every second with what it did, until it is ended. Keys that begin with `load.` are explained in
`xtask/src/doctor_truth/load.rs`; all others are settings of librdkafka, most of which have Java's names.
"""

import json
import os
import random
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer

NAMES = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}


class Load:
    def __init__(self, bootstrap, path):
        with open(path, encoding="utf-8") as file:
            pairs = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
        self.load = {key[5:]: value for key, value in pairs.items() if key.startswith("load.")}
        self.settings = {NAMES.get(key, key): value for key, value in pairs.items() if not key.startswith("load.")}
        self.settings["bootstrap.servers"] = bootstrap
        self.lock = threading.Lock()
        self.done, self.failed, self.latencies = 0, 0, []
        threading.Thread(target=self.report, daemon=True).start()

    def number(self, key, otherwise=0):
        return int(self.load.get(key, otherwise))

    def report(self):
        due = time.monotonic()
        while True:
            due += 1
            time.sleep(max(0.0, due - time.monotonic()))
            with self.lock:
                done, failed, latencies = self.done, self.failed, sorted(self.latencies)
                self.done, self.failed, self.latencies = 0, 0, []
            mean = sum(latencies) / len(latencies) if latencies else 0
            p99 = latencies[(len(latencies) - 1) * 99 // 100] if latencies else 0
            line = {"records": done, "failed": failed, "mean_ms": mean * 1e3, "p99_ms": p99 * 1e3}
            print(json.dumps(line), flush=True)

    def finished(self, seconds, failed=False):
        with self.lock:
            if failed:
                self.failed += 1
                return
            self.done += 1
            if len(self.latencies) < 100_000:
                self.latencies.append(seconds)

    def key(self):
        keys = self.load.get("keys", "none")
        if keys == "none":
            return None
        if keys == "hot" and random.randrange(10):
            return b"hot"
        return b"k%d" % random.randrange(100_000)

    def produce(self):
        producer = Producer(self.settings)
        rate, topic = self.number("rate"), self.load["topic"]
        callback = self.number("callback.micros") / 1e6
        size = self.number("record.bytes", 100)
        values = [os.urandom(size) for _ in range(max(1, min(500, 50_000_000 // max(size, 1))))]
        synchronous = self.load.get("synchronous") == "true"
        threading.Thread(target=lambda: [producer.poll(0.1) for _ in iter(int, 1)], daemon=True).start()
        began, sent = time.monotonic(), 0
        while True:
            if rate:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            done = self.send(producer, topic, values[sent % len(values)], callback)
            # flush() would not wait for the linger.
            if synchronous:
                done.wait()
            sent += 1

    def send(self, producer, topic, value, callback):
        at, done = time.monotonic(), threading.Event()

        def delivered(error, _message):
            self.finished(time.monotonic() - at, error is not None)
            time.sleep(callback)
            done.set()

        while True:
            try:
                producer.produce(topic, value=value, key=self.key(), on_delivery=delivered)
                return done
            except BufferError:
                time.sleep(0.01)
            except KafkaException:
                # Of a topic that it may not write to, librdkafka says so here from the second record on.
                self.finished(0, failed=True)
                done.set()
                return done

    def consume(self):
        consumer = Consumer(self.settings)
        consumer.subscribe([self.load["topic"]])
        processing = self.number("processing.micros") / 1e6
        commits_each = self.load.get("commit") == "record"
        while True:
            # consume() would wait for all that it may return.
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                if processing:
                    time.sleep(processing)
                if commits_each:
                    consumer.commit(message, asynchronous=False)
                self.finished(time.time() - message.timestamp()[1] / 1e3)


def run(bootstrap, path):
    load = Load(bootstrap, path)
    if load.load["role"] == "producer":
        load.produce()
    else:
        load.consume()
