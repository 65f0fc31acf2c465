"""Connections of every security protocol through librdkafka: a record through each that must work, and how the others fail.

Cases are lines of a file: name, address, protocol, trust store, key store, mechanism, user, password, topic and what to
expect, separated by tabs; a minus is nothing. Stores are PEM files.
"""

import base64
import json
import time
import urllib.request

from confluent_kafka import KafkaError, Producer, TopicPartition

from suite import check, eventually, produce, same, take

FIELDS = "name address protocol trust key mechanism user password topic expected".split()

# What librdkafka says of each mistake: the code of the error, and text of which one must be in it.
MISTAKES = {
    "untrusted": (KafkaError._SSL, ["broker certificate could not be verified", "certificate verify failed"]),
    "misnamed": (KafkaError._SSL, ["certificate verify failed", "hostname mismatch"]),
    "expired": (KafkaError._SSL, ["certificate verify failed", "expired"]),
    # The alert is the answer to the client's first request.
    "certificate": (KafkaError._TRANSPORT, ["alert certificate required", "alert unknown ca"]),
    "password": (KafkaError._AUTHENTICATION, ["SASL authentication error"]),
    "token": (KafkaError._AUTHENTICATION, ["SASL authentication error"]),
}


def read_cases(file):
    with open(file, encoding="utf-8") as lines:
        return [dict(zip(FIELDS, line.rstrip("\n").split("\t"))) for line in lines]


def settings(case):
    found = {"bootstrap.servers": case["address"], "security.protocol": case["protocol"]}
    if case["trust"] != "-":
        found["ssl.ca.location"] = case["trust"]
    if case["key"] != "-":
        found["ssl.certificate.location"] = case["key"]
        found["ssl.key.location"] = case["key"]
    if case["mechanism"] == "OAUTHBEARER":
        found["sasl.mechanism"] = "OAUTHBEARER"
        found["oauth_cb"] = lambda _config: token(case["password"])
    elif case["mechanism"] != "-":
        found["sasl.mechanism"] = case["mechanism"]
        found["sasl.username"] = case["user"]
        found["sasl.password"] = case["password"]
    return found


def token(url):
    """A token and when it expires; librdkafka asks again after four fifths of its time, and refuses an expired one itself."""
    with urllib.request.urlopen(url) as answer:
        text = json.loads(answer.read())["access_token"]
    claims = text.split(".")[1]
    expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    now = time.time()
    return text, expires if expires > now else now + 60


def exchange(suite, case):
    failed = []
    value = f"value-{time.monotonic_ns()}"
    offsets = []
    producer = Producer(settings(case))
    producer.produce(
        case["topic"],
        value,
        partition=0,
        on_delivery=lambda error, message: failed.append(error) if error else offsets.append(message.offset()),
    )
    same(0, producer.flush(60), "records left in the queue")
    same([], failed, "errors")
    consumer = suite.consumer_of({**settings(case), "group.id": case["topic"]})
    consumer.assign([TopicPartition(case["topic"], 0, offsets[0])])
    same(value.encode(), take(consumer, 1)[0].value(), "value")
    consumer.close()


def renew(suite, case):
    """Records over several sessions: a client that did not extend them would lose its connection."""
    errors = []
    failed = []
    producer = Producer({**settings(case), "error_cb": errors.append})
    until = time.monotonic() + 25
    while time.monotonic() < until:
        produce(producer, failed, case["topic"], key="key", value="value")
        same(0, producer.flush(60), "records left in the queue")
        time.sleep(0.2)
    same([], failed, "failed records")
    same([], [str(error) for error in errors if error.code() != KafkaError._TRANSPORT], "errors")


def refused(_suite, case):
    errors = []
    producer = Producer({**settings(case), "error_cb": errors.append})
    if case["expected"] == "unserved":
        # The broker closes without a byte; the client tries again for ever.
        try:
            producer.list_topics(timeout=3)
        except Exception:  # noqa: BLE001 - any failure is right, an answer is wrong
            return
        raise AssertionError("was served")
    code, texts = MISTAKES[case["expected"]]

    def is_told():
        producer.poll(0.1)
        return any(error.code() == code and any(text in error.str() for text in texts) for error in errors)

    try:
        eventually("the client learns why", is_told)
    except AssertionError as failure:
        raise AssertionError(f"{failure}: {[str(error) for error in errors[:5]]}") from failure
    check(errors, "no error")


def run(suite, file):
    for case in read_cases(file):
        body = {"works": exchange, "renewed": renew}.get(case["expected"], refused)
        suite.run(case["name"], lambda suite, case=case, body=body: body(suite, case))
