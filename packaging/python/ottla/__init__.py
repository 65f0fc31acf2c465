"""Ottla, a Kafka broker for one machine: a broker for a test, started in milliseconds.

    import ottla

    with ottla.broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The binary is the program `ottla` that this package installs; the environment variable
OTTLA_BINARY names another one.
"""

from ottla._binary import BinaryNotFound, find_binary
from ottla._broker import Broker, BrokerFailed, broker

__all__ = ["BinaryNotFound", "Broker", "BrokerFailed", "broker", "find_binary"]
