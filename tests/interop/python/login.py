"""SASL: records through authenticated connections, sessions that end meanwhile, and wrong credentials."""

import time

from confluent_kafka import KafkaError, Producer

from suite import eventually, produce, same, take

# Longer than two sessions of the broker's (KIP-368).
SESSIONS_S = 5


def run(suite, address, mechanism, user, password):
    def settings(user, password):
        return {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": password,
        }

    def records(suite):
        topic = f"login-librdkafka-{mechanism}"
        suite.create_topic(topic)
        failed = []
        producer = suite.producer(**settings(user, password))
        produce(producer, failed, topic, key="key", value="first")
        same(0, producer.flush(60), "records left in the queue")
        time.sleep(SESSIONS_S)
        produce(producer, failed, topic, key="key", value="second")
        same(0, producer.flush(60), "records left in the queue")
        same([], failed, "errors")
        consumer = suite.direct(topic, 1, **settings(user, password))
        values = [message.value() for message in take(consumer, 2)]
        same([b"first", b"second"], values, "values")
        consumer.close()

    def refused(user, password):
        def body(_suite):
            errors = []
            dotted = {key.replace("_", "."): value for key, value in settings(user, password).items()}
            producer = Producer({**dotted, "error_cb": errors.append})

            def is_refused():
                producer.poll(0.1)
                return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

            eventually("the client learns that it is refused", is_refused)

        return body

    suite.run("records", records)
    suite.run("wrong password", refused(user, "wrong"))
    suite.run("unknown user", refused("mallory", password))
