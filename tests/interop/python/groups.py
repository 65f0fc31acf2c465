"""Consumer groups of the classic protocol, and their administration."""

import threading

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka import KafkaException

from suite import check, error_code, eventually, same, take


def run(suite):
    suite.run("group of two, RangeAssignor", lambda suite: group_of_two(suite, "range"))
    suite.run("group of two, CooperativeStickyAssignor", lambda suite: group_of_two(suite, "cooperative-sticky"))
    suite.run("static membership", static_membership)
    suite.run("commit and fetch offsets", offsets)
    suite.run("group administration", administration)


def run_consumer_protocol(suite):
    suite.run("group of two, KIP-848", group_of_two_with_the_new_protocol)


class Member:
    """One group member on its own thread, polling until it is stopped."""

    def __init__(self, suite, group, topic, **configs):
        is_new = configs.get("group_protocol") == "consumer"
        timeouts = {} if is_new else {"heartbeat_interval_ms": 300, "session_timeout_ms": 10_000}
        self.consumer = suite.consumer(group_id=group, **timeouts, **configs)
        self.cooperative = is_new or configs.get("partition_assignment_strategy") == "cooperative-sticky"
        self.assigned = set()
        self.values = set()
        self.assignments = 0
        self.stopping = threading.Event()
        self.failed = None
        self.topic = topic
        self.thread = threading.Thread(target=self._poll)
        self.thread.start()

    def _on_assign(self, consumer, partitions):
        if self.cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        self.assigned = self.assigned | {partition.partition for partition in partitions}
        self.assignments += 1

    def _on_revoke(self, consumer, partitions):
        self.assigned = self.assigned - {partition.partition for partition in partitions}
        if self.cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _poll(self):
        try:
            self.consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self.stopping.is_set():
                messages = self.consumer.consume(200, 0.1)
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    self.values.add(message.value())
                if messages:
                    self.consumer.commit(asynchronous=True)
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError._NO_OFFSET:
                    raise
            self.consumer.close()
        except Exception as failure:  # noqa: BLE001 - stop reports it to the case
            self.failed = failure

    def stop(self):
        self.stopping.set()
        self.thread.join()
        if self.failed is not None:
            raise AssertionError(f"a member failed: {self.failed}") from self.failed


def describe(suite, group):
    return suite.admin.describe_consumer_groups([group])[group].result(60)


def group_of_two(suite, strategy):
    share_and_leave(suite, strategy, partition_assignment_strategy=strategy)


def group_of_two_with_the_new_protocol(suite):
    share_and_leave(suite, "kip848", group_protocol="consumer")


def share_and_leave(suite, name, **configs):
    topic, group = f"rd-two-{name}", f"rd-group-{name}"
    suite.create_topic(topic, 6)
    suite.fill(topic, 300, partitions=6)
    first = Member(suite, group, topic, **configs)
    eventually("the first member has all partitions", lambda: len(first.assigned) == 6)
    second = Member(suite, group, topic, **configs)
    eventually(
        "the partitions are shared",
        lambda: len(first.assigned) == 3 and len(second.assigned) == 3 and not first.assigned & second.assigned,
    )
    eventually("the group is stable", lambda: describe(suite, group).state == ConsumerGroupState.STABLE)
    same(2, len(describe(suite, group).members), "members")
    suite.fill(topic, 600, partitions=6)
    eventually("every value was read", lambda: len(first.values | second.values) == 600)
    second.stop()
    eventually("the first member has all partitions again", lambda: len(first.assigned) == 6)
    eventually("all 900 records are committed", lambda: committed_sum(suite, group) == 900)
    first.stop()


def committed_sum(suite, group):
    listed = suite.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return sum(max(partition.offset, 0) for partition in listed.topic_partitions)


def static_membership(suite):
    topic, group = "rd-static", "rd-static"
    suite.create_topic(topic, 4)
    first = Member(suite, group, topic, group_instance_id="one", partition_assignment_strategy="range")
    second = Member(suite, group, topic, group_instance_id="two", partition_assignment_strategy="range")
    eventually("the partitions are shared", lambda: len(first.assigned) == 2 and len(second.assigned) == 2)
    before, assignments = set(second.assigned), first.assignments
    # A static member that closes does not leave (KIP-345): other members must not notice.
    second.stop()
    again = Member(suite, group, topic, group_instance_id="two", partition_assignment_strategy="range")
    eventually("the member is back", lambda: len(again.assigned) == 2)
    same(before, again.assigned, "assignment after the restart")
    threading.Event().wait(1)
    same(assignments, first.assignments, "rebalances of the member that stayed")
    instances = {member.group_instance_id for member in describe(suite, group).members}
    same({"one", "two"}, instances, "instances")
    first.stop()
    again.stop()


def offsets(suite):
    suite.create_topic("rd-offsets", 2)
    suite.fill("rd-offsets", 50, partition=0)
    both = [TopicPartition("rd-offsets", 0), TopicPartition("rd-offsets", 1)]
    consumer = suite.consumer(group_id="rd-offsets")
    same([-1001, -1001], [found.offset for found in consumer.committed(both, timeout=30)], "before any commit")
    consumer.commit(offsets=[TopicPartition("rd-offsets", 0, 17, metadata="a note")], asynchronous=False)
    found = consumer.committed(both, timeout=30)
    same([17, -1001], [partition.offset for partition in found], "committed offsets")
    same("a note", found[0].metadata, "metadata")
    consumer.close()
    consumer = suite.consumer(group_id="rd-offsets")
    consumer.subscribe(["rd-offsets"])
    same(17, take(consumer, 33)[0].offset(), "first record after the commit")
    consumer.close()


def administration(suite):
    topic, group = "rd-administered", "rd-administered"
    suite.create_topic(topic, 2)
    suite.fill(topic, 20, partition=0)
    suite.fill(topic, 20, partition=1)
    member = Member(suite, group, topic, client_id="the-client")
    eventually("the member has read", lambda: len(member.values) == 20 and len(member.assigned) == 2)
    description = describe(suite, group)
    same(1, len(description.members), "members")
    same("the-client", description.members[0].client_id, "client id")
    assigned = {partition.partition for partition in description.members[0].assignment.topic_partitions}
    same({0, 1}, assigned, "assignment")
    delete = suite.admin.delete_consumer_groups([group])[group]
    same(KafkaError.NON_EMPTY_GROUP, error_code(delete), "deleting a group with a member")
    member.stop()

    eventually("the group is empty", lambda: describe(suite, group).state == ConsumerGroupState.EMPTY)
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    suite.admin.alter_consumer_group_offsets([change])[group].result(60)
    listed = suite.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    offsets_now = {partition.partition: partition.offset for partition in listed.topic_partitions}
    same({0: 3, 1: 20}, offsets_now, "offsets")
    groups = suite.admin.list_consumer_groups().result(60)
    check(group in {listing.group_id for listing in groups.valid}, f"{group} is not listed")
    suite.admin.delete_consumer_groups([group])[group].result(60)
    again = suite.admin.delete_consumer_groups([group])[group]
    same(KafkaError.GROUP_ID_NOT_FOUND, error_code(again), "deleting it twice")
