"""The error of a transactional producer at a broker without transactions."""

from confluent_kafka import KafkaException


def refused(suite):
    # After most errors librdkafka keeps looking for a coordinator until the application's timeout.
    producer = suite.producer(transactional_id="nobody")
    try:
        producer.init_transactions(60)
    except KafkaException as failure:
        error = failure.args[0]
        if not error.fatal() or "does not support transactions" not in error.str():
            raise
    else:
        raise AssertionError("transactions were begun")
