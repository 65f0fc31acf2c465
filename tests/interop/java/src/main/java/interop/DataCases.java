package interop;

import static interop.Suite.check;
import static interop.Suite.failure;
import static interop.Suite.get;
import static interop.Suite.isA;
import static interop.Suite.partition;
import static interop.Suite.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Producing, fetching and looking up offsets. */
final class DataCases {
    static void run(Suite suite) {
        suite.run("acks 0, 1 and all", () -> acks(suite));
        suite.run("idempotent producer", () -> idempotent(suite));
        suite.run("offsets by time", () -> offsetsByTime(suite));
        suite.run("list offsets", () -> listOffsets(suite));
        suite.run("read committed", () -> readCommitted(suite));
        suite.run("many partitions", () -> manyPartitions(suite));
        suite.run("small fetch limits", () -> smallFetchLimits(suite));
        suite.run("long poll", () -> longPoll(suite));
        suite.run("record too large", () -> recordTooLarge(suite));
        suite.run("unknown topic", () -> unknownTopic(suite));
        suite.run("auto-creation", () -> autoCreation(suite));
        suite.run("log append time", () -> logAppendTime(suite));
        suite.run("delete and recreate under load", () -> recreateUnderLoad(suite));
    }

    private static void acks(Suite suite) throws Exception {
        suite.createTopic("java-acks", 1);
        for (String acks : List.of("0", "1", "all")) {
            try (KafkaProducer<String, String> producer =
                    suite.producer("acks", acks, "enable.idempotence", "false")) {
                for (int i = 0; i < 100; i++) {
                    producer.send(new ProducerRecord<>("java-acks", acks + "-" + i));
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            consumer.assign(List.of(partition("java-acks", 0)));
            List<ConsumerRecord<String, String>> records = Suite.take(consumer, 300);
            same("0-0", records.get(0).value(), "first record");
            same("all-99", records.get(299).value(), "last record");
        }
    }

    private static void idempotent(Suite suite) throws Exception {
        suite.createTopic("java-idempotent", 4);
        AtomicInteger failed = new AtomicInteger();
        int count = 20_000;
        try (KafkaProducer<String, String> producer = suite.producer(
                "enable.idempotence", "true", "acks", "all", "linger.ms", "0", "batch.size", "1024",
                "max.in.flight.requests.per.connection", "5")) {
            for (int i = 0; i < count; i++) {
                producer.send(
                        new ProducerRecord<>("java-idempotent", i % 4, "k", Integer.toString(i)),
                        (metadata, error) -> {
                            if (error != null) {
                                failed.incrementAndGet();
                            }
                        });
            }
        }
        same(0, failed.get(), "failed sends");
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                partitions.add(partition("java-idempotent", i));
            }
            consumer.assign(partitions);
            int[] next = {0, 1, 2, 3};
            for (ConsumerRecord<String, String> record : Suite.take(consumer, count)) {
                same(Integer.toString(next[record.partition()]), record.value(), "order in " + record.partition());
                next[record.partition()] += 4;
            }
        }
    }

    private static void fillTimes(Suite suite, String topic) throws Exception {
        suite.createTopic(topic, 1, "retention.ms", "-1");
        // Timestamps 1,000,000 + 10 i, except record 50, which is the newest of all.
        try (KafkaProducer<String, String> producer = suite.producer()) {
            for (int i = 0; i < 100; i++) {
                long timestamp = i == 50 ? 5_000_000L : 1_000_000L + 10L * i;
                producer.send(new ProducerRecord<>(topic, 0, timestamp, "k", "v" + i)).get(60, TimeUnit.SECONDS);
            }
        }
    }

    private static void offsetsByTime(Suite suite) throws Exception {
        fillTimes(suite, "java-times");
        TopicPartition partition = partition("java-times", 0);
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            checkTime(consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition), 0, 1_000_000L);
            checkTime(consumer.offsetsForTimes(Map.of(partition, 1_000_200L)).get(partition), 20, 1_000_200L);
            checkTime(consumer.offsetsForTimes(Map.of(partition, 1_000_205L)).get(partition), 21, 1_000_210L);
            checkTime(consumer.offsetsForTimes(Map.of(partition, 2_000_000L)).get(partition), 50, 5_000_000L);
            same(null, consumer.offsetsForTimes(Map.of(partition, 5_000_001L)).get(partition), "beyond the newest");
        }
    }

    private static void checkTime(OffsetAndTimestamp found, long offset, long timestamp) {
        same(offset, found.offset(), "offset");
        same(timestamp, found.timestamp(), "timestamp");
    }

    private static void listOffsets(Suite suite) throws Exception {
        fillTimes(suite, "java-list-offsets");
        TopicPartition partition = partition("java-list-offsets", 0);
        same(0L, list(suite, partition, OffsetSpec.earliest()).offset(), "earliest");
        same(100L, list(suite, partition, OffsetSpec.latest()).offset(), "latest");
        ListOffsetsResultInfo newest = list(suite, partition, OffsetSpec.maxTimestamp());
        same(50L, newest.offset(), "offset of the greatest timestamp");
        same(5_000_000L, newest.timestamp(), "greatest timestamp");
        same(30L, list(suite, partition, OffsetSpec.forTimestamp(1_000_291L)).offset(), "by timestamp");
        same(0, list(suite, partition, OffsetSpec.latest()).leaderEpoch().orElse(-1), "leader epoch of a new topic");
        Throwable unknown = failure(suite.admin
                .listOffsets(Map.of(partition("java-list-offsets", 7), OffsetSpec.latest()),
                        new org.apache.kafka.clients.admin.ListOffsetsOptions().timeoutMs(3000))
                .all());
        check(unknown instanceof UnknownTopicOrPartitionException || unknown instanceof TimeoutException,
                "partition 7 does not exist, got " + unknown);
    }

    private static ListOffsetsResultInfo list(Suite suite, TopicPartition partition, OffsetSpec spec)
            throws Exception {
        return get(suite.admin.listOffsets(Map.of(partition, spec)).all()).get(partition);
    }

    private static void readCommitted(Suite suite) throws Exception {
        suite.createTopic("java-committed", 1);
        suite.fill("java-committed", 0, 500);
        try (KafkaConsumer<String, String> consumer = suite.consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(partition("java-committed", 0)));
            Suite.take(consumer, 500);
            same(500L, consumer.endOffsets(List.of(partition("java-committed", 0)))
                    .get(partition("java-committed", 0)), "last stable offset");
        }
    }

    private static void manyPartitions(Suite suite) throws Exception {
        int count = 150;
        suite.createTopic("java-many", count);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            partitions.add(partition("java-many", i));
        }
        try (KafkaConsumer<String, String> consumer = suite.consumer();
                KafkaProducer<String, String> producer = suite.producer("linger.ms", "2")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            // Rounds over one fetch session: all partitions, then a few, then a changed set (KIP-227).
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < count; i++) {
                    producer.send(new ProducerRecord<>("java-many", i, "k", round + "-" + i));
                }
                producer.flush();
                Map<Integer, String> seen = new HashMap<>();
                for (ConsumerRecord<String, String> record : Suite.take(consumer, count)) {
                    seen.put(record.partition(), record.value());
                }
                for (int i = 0; i < count; i++) {
                    same(round + "-" + i, seen.get(i), "round " + round + ", partition " + i);
                }
            }
            consumer.assign(partitions.subList(10, 40));
            consumer.seek(partitions.get(12), 2);
            for (int i = 0; i < 40; i++) {
                producer.send(new ProducerRecord<>("java-many", i, "k", "last-" + i));
            }
            producer.flush();
            // Positions of partitions that stay assigned are kept; partition 12 reads one record again.
            Suite.take(consumer, 31);
        }
    }

    private static void smallFetchLimits(Suite suite) throws Exception {
        suite.createTopic("java-limits", 2);
        try (KafkaProducer<String, String> producer = suite.producer("batch.size", "4096", "linger.ms", "5")) {
            for (int i = 0; i < 400; i++) {
                producer.send(new ProducerRecord<>("java-limits", i % 2, "k", "x".repeat(1000)));
            }
        }
        // Each limit is smaller than one batch: the first batch must be returned anyway, or consumers make no progress.
        try (KafkaConsumer<String, String> consumer = suite.consumer(
                "max.partition.fetch.bytes", "100", "fetch.max.bytes", "150", "fetch.min.bytes", "1")) {
            consumer.assign(List.of(partition("java-limits", 0), partition("java-limits", 1)));
            Suite.take(consumer, 400);
        }
    }

    private static void longPoll(Suite suite) throws Exception {
        suite.createTopic("java-poll", 1);
        try (KafkaConsumer<String, String> consumer =
                        suite.consumer("fetch.max.wait.ms", "25000", "fetch.min.bytes", "1");
                KafkaProducer<String, String> producer = suite.producer()) {
            consumer.assign(List.of(partition("java-poll", 0)));
            same(0, consumer.poll(Duration.ofMillis(1500)).count(), "records of an empty topic");
            producer.send(new ProducerRecord<>("java-poll", "wake up")).get(60, TimeUnit.SECONDS);
            // The append must complete the waiting fetch, not its own timeout of 25 seconds.
            same(1, consumer.poll(Duration.ofSeconds(12)).count(), "records after the append");
        }
    }

    private static void recordTooLarge(Suite suite) throws Exception {
        suite.createTopic("java-large", 1, "max.message.bytes", "2000");
        try (KafkaProducer<String, String> producer = suite.producer()) {
            Throwable error = failure(producer.send(new ProducerRecord<>("java-large", "x".repeat(3000))));
            isA(RecordTooLargeException.class, error);
            RecordMetadata next = producer.send(new ProducerRecord<>("java-large", "small")).get(60, TimeUnit.SECONDS);
            same(0L, next.offset(), "offset after the refused record");
        }
    }

    private static void unknownTopic(Suite suite) throws Exception {
        Throwable unknown = failure(suite.admin.describeTopics(List.of("java-no-such")).allTopicNames());
        isA(UnknownTopicOrPartitionException.class, unknown);
        Throwable named = failure(suite.admin
                .createTopics(List.of(new org.apache.kafka.clients.admin.NewTopic("../x", 1, (short) 1)))
                .all());
        isA(InvalidTopicException.class, named);
        suite.createTopic("java-range", 1);
        suite.fill("java-range", 0, 10);
        try (KafkaConsumer<String, String> consumer = suite.consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition("java-range", 0)));
            consumer.seek(partition("java-range", 0), 1000);
            try {
                for (int i = 0; i < 100; i++) {
                    consumer.poll(Duration.ofMillis(100));
                }
                throw new AssertionError("offset 1000 of 10 was served");
            } catch (OffsetOutOfRangeException expected) {
                same(Map.of(partition("java-range", 0), 1000L), expected.offsetOutOfRangePartitions(), "offsets");
            }
        }
    }

    private static void autoCreation(Suite suite) throws Exception {
        suite.fill("java-auto-created", null, 10);
        same(1, get(suite.admin.describeTopics(List.of("java-auto-created")).allTopicNames())
                .get("java-auto-created").partitions().size(), "partitions (num.partitions=1)");
    }

    private static void logAppendTime(Suite suite) throws Exception {
        suite.createTopic("java-append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = suite.producer("compression.type", "lz4")) {
            RecordMetadata metadata = producer
                    .send(new ProducerRecord<>("java-append-time", 0, 1000L, "k", "v"))
                    .get(60, TimeUnit.SECONDS);
            check(metadata.timestamp() >= before - 1000, "the answer carries " + metadata.timestamp());
        }
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            consumer.assign(List.of(partition("java-append-time", 0)));
            ConsumerRecord<String, String> record = Suite.take(consumer, 1).get(0);
            same("LogAppendTime", record.timestampType().toString(), "timestamp type");
            check(record.timestamp() >= before - 1000, "the record carries " + record.timestamp());
        }
    }

    private static void recreateUnderLoad(Suite suite) throws Exception {
        String topic = "java-recreated";
        suite.createTopic(topic, 2);
        AtomicBoolean stop = new AtomicBoolean();
        AtomicInteger acknowledged = new AtomicInteger();
        Thread load = new Thread(() -> {
            try (KafkaProducer<String, String> producer =
                    suite.producer("delivery.timeout.ms", "3000", "request.timeout.ms", "2000", "max.block.ms", "2000",
                            "metadata.max.age.ms", "500")) {
                for (int i = 0; !stop.get(); i++) {
                    producer.send(new ProducerRecord<>(topic, i % 2, "k", "v" + i), (metadata, error) -> {
                        if (error == null) {
                            acknowledged.incrementAndGet();
                        }
                    });
                    if (i % 50 == 0) {
                        sleep(2);
                    }
                }
            }
        });
        load.start();
        try {
            for (int round = 0; round < 3; round++) {
                int before = acknowledged.get();
                Suite.eventually("records are acknowledged in round " + round, () -> acknowledged.get() > before + 100);
                var old = get(suite.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
                get(suite.admin.deleteTopics(List.of(topic)).all());
                // The load may create the topic again (auto-creation): either way there is a new topic id.
                Suite.eventually("the topic exists again", () -> {
                    try {
                        get(suite.admin.createTopics(List.of(
                                new org.apache.kafka.clients.admin.NewTopic(topic, 2, (short) 1))).all());
                    } catch (java.util.concurrent.ExecutionException error) {
                        if (!(error.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException)) {
                            throw error;
                        }
                    }
                    try {
                        return !get(suite.admin.describeTopics(List.of(topic)).allTopicNames())
                                .get(topic).topicId().equals(old);
                    } catch (java.util.concurrent.ExecutionException error) {
                        isA(UnknownTopicOrPartitionException.class, error.getCause());
                        return false;
                    }
                });
            }
        } finally {
            stop.set(true);
            load.join();
        }
        // Whatever the races were, the last incarnation is complete: from 0 to its end without a gap.
        TopicPartition partition = partition(topic, 0);
        long end = list(suite, partition, OffsetSpec.latest()).offset();
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long next = 0;
            for (ConsumerRecord<String, String> record : Suite.take(consumer, (int) end)) {
                same(next++, record.offset(), "offset");
            }
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
