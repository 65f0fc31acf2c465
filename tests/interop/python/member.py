"""One member of a group in which members of several clients meet.

It reads and prints what Java's GroupMember does; librdkafka does not tell the generation, which is -1.
"""

import sys
import threading

ASSIGNORS = {"RangeAssignor": "range", "CooperativeStickyAssignor": "cooperative-sticky"}


def run(suite, topics, settings):
    configs = dict(setting.split("=", 1) for setting in settings)
    strategy = configs.get("partition.assignment.strategy")
    if strategy:
        configs["partition.assignment.strategy"] = ASSIGNORS[strategy.rpartition(".")[2]]
    closing = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), closing.set()), daemon=True).start()
    Member(suite.consumer_of(configs), topics.split(","), closing).run()


class Member:
    def __init__(self, consumer, topics, closing):
        self.consumer = consumer
        self.topics = topics
        self.closing = closing
        self.place = None

    def run(self):
        # Without callbacks that assign, librdkafka takes and gives what it is told, and commits before it gives.
        self.consumer.subscribe(
            self.topics,
            on_revoke=lambda _, partitions: say("REVOKED", names(partitions)),
            on_lost=lambda _, partitions: say("LOST", names(partitions)),
        )
        while not self.closing.is_set():
            for message in self.consumer.consume(200, 0.05):
                if message.error() is not None:
                    say("FAILED", message.error().name())
                    return
                say("READ", f"{message.topic()}-{message.partition()}\t{message.value().decode()}")
            self.tell_place()
        self.consumer.close()
        say("CLOSED", "")

    def tell_place(self):
        place = names(self.consumer.assignment())
        if place != self.place:
            self.place = place
            say("PLACE", f"-1\t{place}")


def names(partitions):
    return ",".join(sorted(f"{partition.topic}-{partition.partition}" for partition in partitions))


def say(what, text):
    print(f"{what}\t{text}", flush=True)
