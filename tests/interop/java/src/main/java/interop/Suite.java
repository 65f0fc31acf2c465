package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Common to all cases: clients on one bootstrap address, waiting, and the result lines. */
final class Suite {
    interface Case {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    final String bootstrap;
    final Admin admin;
    private int failures;

    Suite(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "20000"));
    }

    int failures() {
        return failures;
    }

    void run(String name, Case body) {
        try {
            body.run();
            report(name, "ok", "");
        } catch (Throwable failure) {
            failures++;
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            failure.printStackTrace();
            report(name, "fail", cause.toString());
        }
    }

    private static void report(String name, String outcome, String detail) {
        System.out.println("CASE\t" + name + "\t" + outcome + "\t" + detail.replaceAll("[\\t\\n\\r]+", " "));
        System.out.flush();
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    /** Returns the cause of the future's failure; a future that succeeds fails the case. */
    static Throwable failure(java.util.concurrent.Future<?> future) throws Exception {
        try {
            Object value = future.get(60, TimeUnit.SECONDS);
            throw new AssertionError("expected an error, got " + value);
        } catch (ExecutionException error) {
            return error.getCause();
        }
    }

    static void same(Object expected, Object actual, String what) {
        if (!Objects.deepEquals(expected, actual)) {
            throw new AssertionError(what + ": expected " + show(expected) + ", got " + show(actual));
        }
    }

    static void isA(Class<?> expected, Throwable actual) {
        if (!expected.isInstance(actual)) {
            throw new AssertionError("expected " + expected.getSimpleName() + ", got " + actual);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static String show(Object value) {
        return value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
    }

    static void eventually(String what, Condition condition) throws Exception {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!condition.holds()) {
            check(System.nanoTime() < giveUp, "not within a minute: " + what);
            Thread.sleep(20);
        }
    }

    void createTopic(String name, int partitions, String... configs) throws Exception {
        Map<String, String> map = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) {
            map.put(configs[i], configs[i + 1]);
        }
        NewTopic topic = new NewTopic(name, Optional.of(partitions), Optional.of((short) 1)).configs(map);
        get(admin.createTopics(List.of(topic)).all());
        // The answer comes from the controller; the broker learns of the topic a moment later.
        eventually(name + " can be described", () -> {
            try {
                return get(admin.describeTopics(List.of(name)).allTopicNames()).get(name).partitions().size()
                        == partitions;
            } catch (ExecutionException error) {
                isA(UnknownTopicOrPartitionException.class, error.getCause());
                return false;
            }
        });
        // A described partition need not be served yet: Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a moment, and
        // a pipelining producer whose first batch gets that while its second is accepted never recovers. ListOffsets
        // asks the partition itself, and the admin client repeats it until it succeeds.
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (int index = 0; index < partitions; index++) {
            ends.put(partition(name, index), OffsetSpec.latest());
        }
        get(admin.listOffsets(ends).all());
    }

    KafkaProducer<String, String> producer(String... configs) {
        return new KafkaProducer<>(with(base(), configs), new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<byte[], byte[]> bytesProducer(String... configs) {
        return new KafkaProducer<>(with(base(), configs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<String, String> consumer(String... configs) {
        return new KafkaConsumer<>(with(consumerBase(), configs), new StringDeserializer(), new StringDeserializer());
    }

    KafkaConsumer<byte[], byte[]> bytesConsumer(String... configs) {
        return new KafkaConsumer<>(
                with(consumerBase(), configs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Map<String, Object> base() {
        Map<String, Object> map = new HashMap<>();
        map.put("bootstrap.servers", bootstrap);
        return map;
    }

    private Map<String, Object> consumerBase() {
        Map<String, Object> map = base();
        map.put("auto.offset.reset", "earliest");
        map.put("enable.auto.commit", "false");
        map.put("group.protocol", "classic");
        return map;
    }

    private static Map<String, Object> with(Map<String, Object> map, String... configs) {
        for (int i = 0; i < configs.length; i += 2) {
            map.put(configs[i], configs[i + 1]);
        }
        return map;
    }

    /** Writes `count` records named value-0, value-1, ... and returns the acknowledgements. */
    List<RecordMetadata> fill(String topic, Integer partition, int count) throws Exception {
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("linger.ms", "5")) {
            for (int i = 0; i < count; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, "key-" + i, "value-" + i)));
            }
            producer.flush();
        }
        List<RecordMetadata> acknowledged = new ArrayList<>();
        for (java.util.concurrent.Future<RecordMetadata> future : sent) {
            acknowledged.add(future.get(60, TimeUnit.SECONDS));
        }
        return acknowledged;
    }

    /** Polls until `count` records have arrived, then once more to check that there are no others. */
    static <K, V> List<ConsumerRecord<K, V>> take(KafkaConsumer<K, V> consumer, int count) {
        List<ConsumerRecord<K, V>> records = new ArrayList<>();
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (records.size() < count) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            check(System.nanoTime() < giveUp, "only " + records.size() + " of " + count + " records in a minute");
        }
        consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        same(count, records.size(), "records consumed");
        return records;
    }

    static TopicPartition partition(String topic, int index) {
        return new TopicPartition(topic, index);
    }
}
