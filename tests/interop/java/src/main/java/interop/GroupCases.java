package interop;

import static interop.Suite.check;
import static interop.Suite.failure;
import static interop.Suite.get;
import static interop.Suite.isA;
import static interop.Suite.partition;
import static interop.Suite.same;

import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Consumer groups of the classic protocol, and their administration. */
final class GroupCases {
    static void run(Suite suite) {
        for (String assignor : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
            suite.run("group of two, " + assignor, () -> groupOfTwo(suite, assignor));
        }
        suite.run("static membership", () -> staticMembership(suite));
        suite.run("commit and fetch offsets", () -> offsets(suite));
        suite.run("group administration", () -> administration(suite));
    }

    /** One group member on its own thread, polling until it is stopped. */
    private static final class Member {
        final Set<TopicPartition> assigned = ConcurrentHashMap.newKeySet();
        final Set<String> values = ConcurrentHashMap.newKeySet();
        final AtomicInteger assignments = new AtomicInteger();
        final AtomicInteger generation = new AtomicInteger();
        final AtomicReference<String> memberId = new AtomicReference<>("");
        private final AtomicBoolean stop = new AtomicBoolean();
        private final AtomicReference<Throwable> failed = new AtomicReference<>();
        private final Thread thread;

        Member(Suite suite, String group, String topic, String... configs) {
            String[] all = java.util.Arrays.copyOf(configs, configs.length + 6);
            System.arraycopy(
                    new String[] {"group.id", group, "heartbeat.interval.ms", "300", "session.timeout.ms", "10000"},
                    0, all, configs.length, 6);
            thread = new Thread(() -> {
                try (KafkaConsumer<String, String> consumer = suite.consumer(all)) {
                    consumer.subscribe(List.of(topic), listener());
                    while (!stop.get()) {
                        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                            values.add(record.value());
                        }
                        generation.set(consumer.groupMetadata().generationId());
                        memberId.set(consumer.groupMetadata().memberId());
                        if (!assigned.isEmpty()) {
                            consumer.commitAsync();
                        }
                    }
                    consumer.commitSync();
                } catch (Throwable error) {
                    error.printStackTrace();
                    failed.set(error);
                }
            });
            thread.start();
        }

        private ConsumerRebalanceListener listener() {
            return new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    assigned.removeAll(partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    assigned.addAll(partitions);
                    assignments.incrementAndGet();
                }
            };
        }

        void stop() throws Exception {
            stop.set(true);
            thread.join();
            if (failed.get() != null) {
                throw new AssertionError("a member failed: " + failed.get(), failed.get());
            }
        }
    }

    private static void groupOfTwo(Suite suite, String assignor) throws Exception {
        String topic = "java-two-" + assignor;
        String group = "java-group-" + assignor;
        String strategy = "org.apache.kafka.clients.consumer." + assignor;
        suite.createTopic(topic, 6);
        suite.fill(topic, null, 300);
        Member first = new Member(suite, group, topic, "partition.assignment.strategy", strategy);
        Suite.eventually("the first member has all partitions", () -> first.assigned.size() == 6);
        Member second = new Member(suite, group, topic, "partition.assignment.strategy", strategy);
        Suite.eventually("the partitions are shared", () -> {
            Set<TopicPartition> both = new HashSet<>(first.assigned);
            both.addAll(second.assigned);
            return first.assigned.size() == 3 && second.assigned.size() == 3 && both.size() == 6;
        });
        ConsumerGroupDescription description =
                get(suite.admin.describeConsumerGroups(List.of(group)).all()).get(group);
        same(2, description.members().size(), "members");
        same(GroupState.STABLE, description.groupState(), "state");
        suite.fill(topic, null, 600);
        second.stop();
        Suite.eventually("the first member has all partitions again", () -> first.assigned.size() == 6);
        Set<String> seen = new TreeSet<>(first.values);
        Suite.eventually("every value was read by one of the two", () -> {
            seen.addAll(first.values);
            seen.addAll(second.values);
            return seen.size() == 600;
        });
        Suite.eventually("all 900 records are committed", () -> {
            long committed = 0;
            for (OffsetAndMetadata offset :
                    get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).values()) {
                committed += offset.offset();
            }
            return committed == 900;
        });
        first.stop();
    }

    private static void staticMembership(Suite suite) throws Exception {
        String topic = "java-static";
        suite.createTopic(topic, 4);
        String strategy = "org.apache.kafka.clients.consumer.RangeAssignor";
        Member first = new Member(suite, "java-static", topic, "group.instance.id", "one",
                "partition.assignment.strategy", strategy);
        Member second = new Member(suite, "java-static", topic, "group.instance.id", "two",
                "partition.assignment.strategy", strategy);
        Suite.eventually("the partitions are shared",
                () -> first.assigned.size() == 2 && second.assigned.size() == 2);
        Suite.eventually("both know their generation",
                () -> first.generation.get() > 0 && first.generation.get() == second.generation.get());
        Set<TopicPartition> before = new HashSet<>(second.assigned);
        int generation = first.generation.get();
        int assignments = first.assignments.get();
        String memberId = second.memberId.get();
        // A static member that closes does not leave (KIP-345): other members must not notice.
        second.stop();
        Member again = new Member(suite, "java-static", topic, "group.instance.id", "two",
                "partition.assignment.strategy", strategy);
        Suite.eventually("the member is back", () -> again.assigned.size() == 2);
        same(before, new HashSet<>(again.assigned), "assignment after the restart");
        Suite.eventually("the member knows its generation", () -> again.generation.get() > 0);
        same(generation, again.generation.get(), "generation of the member after the restart");
        check(!again.memberId.get().equals(memberId), "the restarted member kept the member id " + memberId);
        Thread.sleep(1000);
        same(generation, first.generation.get(), "generation of the member that stayed");
        same(assignments, first.assignments.get(), "rebalances of the member that stayed");

        ConsumerGroupDescription description =
                get(suite.admin.describeConsumerGroups(List.of("java-static")).all()).get("java-static");
        Set<String> instances = new TreeSet<>();
        description.members().forEach(member -> instances.add(member.groupInstanceId().orElse("none")));
        same(Set.of("one", "two"), instances, "instances");
        again.stop();
        first.stop();
        get(suite.admin.removeMembersFromConsumerGroup("java-static",
                new org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions(List.of(
                        new org.apache.kafka.clients.admin.MemberToRemove("one"),
                        new org.apache.kafka.clients.admin.MemberToRemove("two")))).all());
        Suite.eventually("the group is empty", () -> get(suite.admin.describeConsumerGroups(List.of("java-static"))
                .all()).get("java-static").groupState() == GroupState.EMPTY);
    }

    private static void offsets(Suite suite) throws Exception {
        suite.createTopic("java-offsets", 2);
        suite.fill("java-offsets", 0, 50);
        TopicPartition zero = partition("java-offsets", 0);
        TopicPartition one = partition("java-offsets", 1);
        try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", "java-offsets")) {
            consumer.assign(List.of(zero, one));
            same(null, consumer.committed(Set.of(zero)).get(zero), "offset before any commit");
            consumer.commitSync(Map.of(zero, new OffsetAndMetadata(17, "a note")));
            OffsetAndMetadata committed = consumer.committed(Set.of(zero, one)).get(zero);
            same(17L, committed.offset(), "committed offset");
            same("a note", committed.metadata(), "metadata");
            same(null, consumer.committed(Set.of(zero, one)).get(one), "offset of the other partition");
        }
        try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", "java-offsets")) {
            consumer.assign(List.of(zero));
            same(17L, Suite.take(consumer, 33).get(0).offset(), "first record after the commit");
            try {
                consumer.commitSync(Map.of(zero, new OffsetAndMetadata(1, "x".repeat(5000))));
                throw new AssertionError("5000 bytes of metadata were accepted (offset.metadata.max.bytes is 4096)");
            } catch (org.apache.kafka.common.KafkaException tooLarge) {
                isA(org.apache.kafka.common.errors.OffsetMetadataTooLarge.class, tooLarge);
            }
        }
    }

    private static void administration(Suite suite) throws Exception {
        String group = "java-administered";
        suite.createTopic("java-administered", 2);
        suite.fill("java-administered", 0, 20);
        suite.fill("java-administered", 1, 20);
        TopicPartition zero = partition("java-administered", 0);
        TopicPartition one = partition("java-administered", 1);
        Member member = new Member(suite, group, "java-administered", "client.id", "the-client");
        Suite.eventually("the member is assigned", () -> member.assigned.size() == 2);
        Suite.eventually("the member has read", () -> member.values.size() == 20);
        ConsumerGroupDescription description =
                get(suite.admin.describeConsumerGroups(List.of(group)).all()).get(group);
        same(1, description.members().size(), "members");
        var described = description.members().iterator().next();
        same("the-client", described.clientId(), "client id");
        same(Set.of(zero, one), described.assignment().topicPartitions(), "assignment");
        check(described.host().contains("127.0.0.1"), "host is " + described.host());
        isA(GroupNotEmptyException.class, failure(suite.admin.deleteConsumerGroups(List.of(group)).all()));
        isA(GroupSubscribedToTopicException.class,
                failure(suite.admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all()));
        isA(UnknownMemberIdException.class, failure(suite.admin.alterConsumerGroupOffsets(
                group, Map.of(zero, new OffsetAndMetadata(3))).all()));
        member.stop();

        Suite.eventually("the group is empty", () -> get(suite.admin.describeConsumerGroups(List.of(group)).all())
                .get(group).groupState() == GroupState.EMPTY);
        get(suite.admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(3))).all());
        var offsets = get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        same(3L, offsets.get(zero).offset(), "altered offset");
        same(20L, offsets.get(one).offset(), "other offset");
        get(suite.admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all());
        offsets = get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        check(offsets.get(zero) == null, "the deleted offset is " + offsets.get(zero));
        same(20L, offsets.get(one).offset(), "offset that was not deleted");
        Set<String> listed = new TreeSet<>();
        get(suite.admin.listGroups().all()).forEach(listing -> listed.add(listing.groupId()));
        check(listed.contains(group), "the group is not among " + listed);
        get(suite.admin.deleteConsumerGroups(List.of(group)).all());
        isA(GroupIdNotFoundException.class, failure(suite.admin.deleteConsumerGroups(List.of(group)).all()));
    }
}
