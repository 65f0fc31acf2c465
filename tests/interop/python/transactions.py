"""What a transactional producer is told by a broker that serves no transactions."""

from confluent_kafka import KafkaException


def refused(suite):
    # librdkafka goes on looking for a coordinator after most errors, until the application's time is up.
    producer = suite.producer(transactional_id="nobody")
    try:
        producer.init_transactions(60)
    except KafkaException as failure:
        error = failure.args[0]
        if not error.fatal() or "does not support transactions" not in error.str():
            raise
    else:
        raise AssertionError("transactions were begun")
