package interop;

import static interop.Suite.check;
import static interop.Suite.get;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Data of every kind that one node of Apache Kafka can have: written once, compared before and after another broker used it. */
final class Directories {
    private static final int RECORDS = 50;
    private static final int ACKNOWLEDGED = 20;

    /**
     * Writes every kind of persistent data, and ends without closing clients: members and an open
     * transaction stay in the records.
     *
     * @param kinds which of `share` and `streams` the broker knows
     */
    static void use(Suite suite, List<String> kinds) throws Exception {
        suite.createTopic("plain", 3);
        for (int index = 0; index < 3; index++) {
            suite.fill("plain", index, RECORDS);
        }
        settings(suite);
        classicGroups(suite);
        consumerGroup(suite, "modern");
        consumerGroup(suite, "modern-gone").close();
        if (kinds.contains("share")) {
            shareGroup(suite, "share");
            shareGroup(suite, "share-gone").close();
        }
        if (kinds.contains("streams")) {
            streamsGroup(suite, "streams");
            streamsGroup(suite, "streams-gone")
                    .close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        }
        transactions(suite);
        System.out.println("CASE\tuse\tok\t");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void set(Suite suite, ConfigResource.Type type, String name, String... pairs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) {
            operations.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        }
        get(suite.admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), operations)).all());
    }

    private static void settings(Suite suite) throws Exception {
        set(suite, ConfigResource.Type.TOPIC, "plain", "max.message.bytes", "2000000");
        set(suite, ConfigResource.Type.GROUP, "modern", "consumer.heartbeat.interval.ms", "6000");
        set(suite, ConfigResource.Type.CLIENT_METRICS, "watched", "interval.ms", "60000");
        // The second one is a key without a row in Ottla's tables.
        set(suite, ConfigResource.Type.BROKER, "", "log.retention.ms", "86400000", "remote.fetch.max.wait.ms", "600");
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "heavy"));
        get(suite.admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                client, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all());
        get(suite.admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                "alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all());
    }

    private static void classicGroups(Suite suite) throws Exception {
        Set<TopicPartition> all = Set.of(
                new TopicPartition("plain", 0), new TopicPartition("plain", 1), new TopicPartition("plain", 2));
        try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", "classic")) {
            consumer.subscribe(List.of("plain"));
            Suite.eventually("classic is assigned", () -> {
                consumer.poll(Duration.ofMillis(100));
                return consumer.assignment().equals(all);
            });
            Map<TopicPartition, OffsetAndMetadata> offsets = new TreeMap<>(
                    java.util.Comparator.comparing(TopicPartition::toString));
            all.forEach(partition -> offsets.put(partition, new OffsetAndMetadata(10, "ten")));
            consumer.commitSync(offsets);
        }
        // Never closed, so that a static member is still in its group at the next start.
        KafkaConsumer<String, String> fixed =
                suite.consumer("group.id", "classic-static", "group.instance.id", "one");
        fixed.subscribe(List.of("plain"));
        Suite.eventually("classic-static is assigned", () -> {
            fixed.poll(Duration.ofMillis(100));
            return fixed.assignment().equals(all);
        });
        fixed.commitSync();
    }

    private static KafkaConsumer<String, String> consumerGroup(Suite suite, String group) throws Exception {
        KafkaConsumer<String, String> consumer = suite.consumer("group.id", group, "group.protocol", "consumer");
        consumer.subscribe(new SubscriptionPattern("pl.*n"));
        Suite.eventually(group + " is assigned", () -> {
            consumer.poll(Duration.ofMillis(100));
            return consumer.assignment().size() == 3;
        });
        Map<TopicPartition, OffsetAndMetadata> ends = new java.util.HashMap<>();
        consumer.assignment().forEach(partition -> ends.put(partition, new OffsetAndMetadata(RECORDS)));
        consumer.commitSync(ends);
        return consumer;
    }

    private static KafkaShareConsumer<String, String> shareConsumer(Suite suite, String group) {
        Map<String, Object> settings = Map.of("bootstrap.servers", suite.bootstrap, "group.id", group,
                "share.acknowledgement.mode", "explicit", "max.poll.records", "5");
        KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("shared"));
        return consumer;
    }

    private static KafkaShareConsumer<String, String> shareGroup(Suite suite, String group) throws Exception {
        if (group.equals("share")) {
            suite.createTopic("shared", 1);
            suite.fill("shared", 0, RECORDS);
        }
        set(suite, ConfigResource.Type.GROUP, group, "share.auto.offset.reset", "earliest",
                "share.record.lock.duration.ms", "15000");
        KafkaShareConsumer<String, String> consumer = shareConsumer(suite, group);
        accept(consumer, ACKNOWLEDGED);
        return consumer;
    }

    /** Accepts this many records, which must be the first that the group has not accepted; locks no others. */
    private static TreeSet<Long> accept(KafkaShareConsumer<String, String> consumer, int count) {
        TreeSet<Long> accepted = new TreeSet<>();
        long giveUp = System.nanoTime() + 60_000_000_000L;
        while (accepted.size() < count) {
            check(System.nanoTime() < giveUp, "a share consumer got " + accepted + " in a minute");
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                boolean isWanted = accepted.size() < count;
                consumer.acknowledge(record, isWanted ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                if (isWanted) {
                    accepted.add(record.offset());
                }
            }
            consumer.commitSync().values().forEach(error -> check(error.isEmpty(), "acknowledging: " + error));
        }
        return accepted;
    }

    private static KafkaStreams streamsGroup(Suite suite, String group) throws Exception {
        if (group.equals("streams")) {
            suite.createTopic("streamed", 3);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("plain", org.apache.kafka.streams.kstream.Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(org.apache.kafka.streams.kstream.Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .mapValues(Object::toString)
                .to("streamed", org.apache.kafka.streams.kstream.Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.put("application.id", group);
        settings.put("bootstrap.servers", suite.bootstrap);
        settings.put("group.protocol", "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "1");
        settings.put("state.dir", Files.createTempDirectory("ottla-streams").toString());
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        Suite.eventually(group + " has committed all of its input", () -> {
            var offsets = get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            return offsets.values().stream().filter(offset -> offset != null && offset.offset() == RECORDS).count() == 3;
        });
        return streams;
    }

    /** Ten records committed, ten aborted, five committed with an offset; three and an offset in a transaction that stays open. */
    private static void transactions(Suite suite) throws Exception {
        suite.createTopic("transactional", 1);
        KafkaProducer<String, String> producer =
                suite.producer("transactional.id", "directory", "transaction.timeout.ms", "600000");
        var group = new org.apache.kafka.clients.consumer.ConsumerGroupMetadata("processed");
        TopicPartition input = new TopicPartition("plain", 0);
        producer.initTransactions();
        send(producer, "first", 10);
        producer.commitTransaction();
        send(producer, "second", 10);
        producer.abortTransaction();
        send(producer, "third", 5);
        producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(5)), group);
        producer.commitTransaction();
        send(producer, "open", 3);
        producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(7)), group);
    }

    private static void send(KafkaProducer<String, String> producer, String name, int count) throws Exception {
        producer.beginTransaction();
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>("transactional", 0, "k", name + "-" + i)).get();
        }
    }

    /** Prints the answers to Kafka's admin client, except values that change with time. */
    static void facts(Suite suite, String file, List<String> kinds) throws Exception {
        List<String> lines = new ArrayList<>();
        new TreeMap<>(get(suite.admin.describeFeatures().featureMetadata()).finalizedFeatures())
                .forEach((name, range) -> lines.add("feature " + name + "=" + range.maxVersionLevel()));
        new TreeMap<>(get(suite.admin.listTopics(
                        new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).namesToListings()))
                .forEach((name, topic) -> lines.add("topic " + name + " " + topic.topicId() + " " + topic.isInternal()));
        lines.addAll(configs(suite));
        var groups = new TreeMap<String, GroupListing>();
        get(suite.admin.listGroups().all()).forEach(group -> groups.put(group.groupId(), group));
        for (GroupListing group : groups.values()) {
            lines.add("group " + group.groupId() + " " + group.type().map(GroupType::toString).orElse("?"));
            if (group.type().equals(java.util.Optional.of(GroupType.SHARE))) {
                continue;
            }
            var offsets = new TreeMap<String, String>();
            get(suite.admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata()).forEach(
                    (partition, offset) -> offsets.put(partition.toString(), offset.offset() + " '" + offset.metadata() + "'"));
            lines.add("offsets " + group.groupId() + " " + offsets);
        }
        if (kinds.contains("share")) {
            var offsets = get(suite.admin.listShareGroupOffsets(Map.of("share", new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo("share"));
            offsets.forEach((partition, offset) -> lines.add("share " + partition + " from " + offset.startOffset()));
        }
        lines.add("quotas " + get(suite.admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        var users = get(suite.admin.describeUserScramCredentials().all());
        new TreeMap<>(users).forEach((user, credential) -> lines.add("user " + credential));
        lines.addAll(committed(suite));
        Files.write(Path.of(file), lines);
        System.out.println("CASE\tfacts\tok\t");
    }

    private static List<String> configs(Suite suite) throws Exception {
        // Apache Kafka 4.0 does not list all kinds of resources, so those with settings are named.
        List<ConfigResource> resources = new ArrayList<>(List.of(
                new ConfigResource(ConfigResource.Type.BROKER, ""),
                new ConfigResource(ConfigResource.Type.GROUP, "modern"),
                new ConfigResource(ConfigResource.Type.GROUP, "share"),
                new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "watched")));
        for (String topic : get(suite.admin.listTopics(
                new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names())) {
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, topic));
        }
        TreeSet<String> lines = new TreeSet<>();
        get(suite.admin.describeConfigs(resources).all()).forEach((resource, config) -> {
            for (ConfigEntry entry : config.entries()) {
                if (entry.source().toString().startsWith("DYNAMIC")) {
                    lines.add("config " + resource + " " + entry.name() + "=" + entry.value());
                }
            }
        });
        return new ArrayList<>(lines);
    }

    /** Reads the records of a read_committed consumer, which stops at an open transaction. */
    private static List<String> committed(Suite suite) {
        List<String> lines = new ArrayList<>();
        TopicPartition partition = new TopicPartition("transactional", 0);
        try (KafkaConsumer<String, String> consumer = suite.consumer("isolation.level", "read_committed")) {
            consumer.assign(Set.of(partition));
            consumer.seekToBeginning(Set.of(partition));
            long end = consumer.endOffsets(Set.of(partition)).get(partition);
            long giveUp = System.nanoTime() + 60_000_000_000L;
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(
                        record -> lines.add("committed " + record.offset() + " " + record.value()));
                check(System.nanoTime() < giveUp, "stuck at " + consumer.position(partition) + " of " + end);
            }
            lines.add("stable to " + end);
        }
        return lines;
    }

    /** Checks a broker that keeps groups of other protocols but does not serve them. */
    static void visit(Suite suite, List<String> kinds) {
        suite.run("a new topic and a classic group", () -> {
            suite.createTopic("visited", 1);
            suite.fill("visited", 0, RECORDS);
            try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", "visitor")) {
                consumer.subscribe(List.of("visited"));
                Suite.take(consumer, RECORDS);
                consumer.commitSync();
            }
        });
        for (String kind : kinds) {
            suite.run("a classic member stays out of a group of kind " + kind, () -> {
                try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", kind)) {
                    consumer.subscribe(List.of("visited"));
                    for (int i = 0; i < 100; i++) {
                        consumer.poll(Duration.ofMillis(100));
                    }
                    throw new AssertionError("it is in");
                } catch (org.apache.kafka.common.errors.InconsistentGroupProtocolException expected) {
                    // As in Apache Kafka.
                }
            });
            suite.run("no offset is committed into a group of kind " + kind, () -> {
                Throwable refusal = Suite.failure(suite.admin.alterConsumerGroupOffsets(
                        kind, Map.of(new TopicPartition("visited", 0), new OffsetAndMetadata(1))).all());
                Suite.isA(kind.equals("share")
                        ? org.apache.kafka.common.errors.GroupIdNotFoundException.class
                        : org.apache.kafka.common.errors.UnknownMemberIdException.class, refusal);
            });
            suite.run("a group of kind " + kind + " with members is not deleted", () -> Suite.isA(
                    org.apache.kafka.common.errors.GroupNotEmptyException.class,
                    Suite.failure(suite.admin.deleteConsumerGroups(List.of(kind)).all())));
        }
        if (kinds.contains("share")) {
            suite.run("an empty share group is not deleted", () -> Suite.isA(
                    org.apache.kafka.common.errors.UnsupportedVersionException.class,
                    Suite.failure(suite.admin.deleteConsumerGroups(List.of("share-gone")).all())));
        }
        suite.run("a setting is changed beside one that the broker does not know", () -> {
            ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
            for (AlterConfigOp.OpType type : List.of(AlterConfigOp.OpType.SET, AlterConfigOp.OpType.DELETE)) {
                var operation = new AlterConfigOp(new ConfigEntry("log.cleaner.backoff.ms", "20000"), type);
                get(suite.admin.incrementalAlterConfigs(Map.of(all, List.of(operation))).all());
            }
        });
        suite.run("empty groups of other kinds are deleted", () -> {
            get(suite.admin.deleteConsumerGroups(List.of("modern-gone")).all());
            if (kinds.contains("streams")) {
                get(suite.admin.deleteConsumerGroups(List.of("streams-gone")).all());
            }
        });
    }

    /** Commits to all partitions of the offsets topic, twice: with time in between, segments are closed by age. */
    static void commitEverywhere(Suite suite) {
        suite.run("commits everywhere", () -> {
            for (long offset = 1; offset <= 2; offset++) {
                for (int i = 0; i < 20; i++) {
                    get(suite.admin.alterConsumerGroupOffsets("visitor-" + i,
                            Map.of(new TopicPartition("visited", 0), new OffsetAndMetadata(offset))).all());
                }
                Thread.sleep(300);
            }
        });
    }

    /** At the end: groups, producers and share groups continue at their positions. */
    static void goOn(Suite suite, List<String> kinds) {
        if (kinds.contains("share")) {
            suite.run("the share group goes on behind what it accepted", () -> {
                try (KafkaShareConsumer<String, String> consumer = shareConsumer(suite, "share")) {
                    TreeSet<Long> rest = accept(consumer, RECORDS - ACKNOWLEDGED);
                    Suite.same((long) ACKNOWLEDGED, rest.first(), "the first record that was left");
                    Suite.same(RECORDS - 1L, rest.last(), "the last record that was left");
                }
            });
        }
        suite.run("the transactional producer goes on, and the open transaction is aborted", () -> {
            try (KafkaProducer<String, String> producer = suite.producer("transactional.id", "directory")) {
                producer.initTransactions();
                send(producer, "after", 2);
                producer.commitTransaction();
            }
            List<String> lines = committed(suite);
            check(lines.stream().noneMatch(line -> line.contains("open-") || line.contains("second-")), "" + lines);
            check(lines.stream().filter(line -> line.contains("after-")).count() == 2, "" + lines);
            check(lines.stream().filter(line -> line.contains("first-")).count() == 10, "" + lines);
        });
        suite.run("the consumer group goes on behind what it committed", () -> {
            suite.fill("plain", 0, 1);
            try (KafkaConsumer<String, String> consumer =
                    suite.consumer("group.id", "modern", "group.protocol", "consumer")) {
                consumer.subscribe(new SubscriptionPattern("pl.*n"));
                var records = Suite.take(consumer, 1);
                check(records.get(0).offset() >= RECORDS, "it began at offset " + records.get(0).offset());
            }
        });
    }
}
