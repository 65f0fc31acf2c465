package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactions of the Java client. */
final class TransactionCases {
    static void run(Suite suite) {
        suite.run("commits are read, aborts are not", () -> commitAndAbort(suite));
        suite.run("two hundred transactions of one record", () -> many(suite));
        suite.run("a new producer fences the old one", () -> fence(suite));
        suite.run("consume, transform, produce: exactly once", () -> exactlyOnce(suite));
        suite.run("what is left open times out", () -> timeOut(suite));
        suite.run("Admin lists, describes and fences", () -> administer(suite));
    }

    private static KafkaProducer<String, String> producer(Suite suite, String id, String... more) {
        List<String> settings = new ArrayList<>(List.of("transactional.id", id));
        settings.addAll(List.of(more));
        KafkaProducer<String, String> producer = suite.producer(settings.toArray(String[]::new));
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, int partition, String... values) {
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, partition, "k", value));
        }
    }

    /** Reads a whole topic as committed, in the order of each partition. */
    private static List<String> committed(Suite suite, String topic, int partitions) throws Exception {
        try (KafkaConsumer<String, String> consumer = suite.consumer("isolation.level", "read_committed")) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < partitions; i++) {
                all.add(new TopicPartition(topic, i));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<String> values = new ArrayList<>();
            long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                Suite.check(System.nanoTime() < giveUp, "not read within a minute: " + values);
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
            return values;
        }
    }

    private static void commitAndAbort(Suite suite) throws Exception {
        suite.createTopic("java-ends", 2);
        try (KafkaProducer<String, String> producer = producer(suite, "java-ends")) {
            for (int i = 0; i < 6; i++) {
                producer.beginTransaction();
                send(producer, "java-ends", 0, "a" + i, "b" + i);
                send(producer, "java-ends", 1, "c" + i);
                if (i % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        TreeSet<String> wanted = new TreeSet<>();
        for (int i : List.of(0, 2, 3, 5)) {
            wanted.addAll(List.of("a" + i, "b" + i, "c" + i));
        }
        List<String> read = committed(suite, "java-ends", 2);
        Suite.same(wanted.size(), read.size(), "records");
        Suite.same(wanted, new TreeSet<>(read), "records");
    }

    private static void many(Suite suite) throws Exception {
        suite.createTopic("java-many", 1);
        try (KafkaProducer<String, String> producer = producer(suite, "java-many")) {
            for (int i = 0; i < 200; i++) {
                producer.beginTransaction();
                send(producer, "java-many", 0, "v" + i);
                producer.commitTransaction();
            }
        }
        List<String> read = committed(suite, "java-many", 1);
        Suite.same(200, read.size(), "records");
        Suite.same("v199", read.get(199), "the last record");
    }

    private static void fence(Suite suite) throws Exception {
        suite.createTopic("java-fence", 1);
        KafkaProducer<String, String> old = producer(suite, "java-fence");
        old.beginTransaction();
        send(old, "java-fence", 0, "old");
        old.flush();
        try (KafkaProducer<String, String> fresh = producer(suite, "java-fence")) {
            try {
                send(old, "java-fence", 0, "late");
                old.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                // As it should be.
            } catch (KafkaException wrapped) {
                Throwable cause = wrapped.getCause();
                Suite.check(
                        cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException,
                        "expected a fence, got " + wrapped);
            }
            fresh.beginTransaction();
            send(fresh, "java-fence", 0, "fresh");
            fresh.commitTransaction();
        } finally {
            old.close(Duration.ZERO);
        }
        Suite.same(List.of("fresh"), committed(suite, "java-fence", 1), "records");
    }

    /** Every third attempt is aborted, and the work begins again where the group has committed. */
    private static void exactlyOnce(Suite suite) throws Exception {
        suite.createTopic("java-input", 1);
        suite.createTopic("java-output", 1);
        suite.fill("java-input", 0, 60);
        int attempt = 0;
        for (boolean done = false; !done; ) {
            try (KafkaProducer<String, String> producer = producer(suite, "java-loop");
                    KafkaConsumer<String, String> consumer = suite.consumer(
                            "group.id", "java-loop", "isolation.level", "read_committed", "max.poll.records", "7")) {
                consumer.subscribe(List.of("java-input"));
                while (true) {
                    List<ConsumerRecord<String, String>> batch = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(500)).forEach(batch::add);
                    if (batch.isEmpty()) {
                        TopicPartition input = new TopicPartition("java-input", 0);
                        OffsetAndMetadata offset = consumer.committed(Set.of(input)).get(input);
                        if (offset != null && offset.offset() == 60) {
                            done = true;
                            break;
                        }
                        continue;
                    }
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : batch) {
                        send(producer, "java-output", 0, "out-" + record.offset());
                    }
                    long next = batch.get(batch.size() - 1).offset() + 1;
                    producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition("java-input", 0), new OffsetAndMetadata(next)),
                            consumer.groupMetadata());
                    if (++attempt % 3 == 0) {
                        producer.abortTransaction();
                        break;
                    }
                    producer.commitTransaction();
                }
            }
        }
        List<String> wanted = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            wanted.add("out-" + i);
        }
        Suite.same(wanted, committed(suite, "java-output", 1), "records");
    }

    private static void timeOut(Suite suite) throws Exception {
        suite.createTopic("java-late", 1);
        KafkaProducer<String, String> producer = producer(suite, "java-late", "transaction.timeout.ms", "2000");
        producer.beginTransaction();
        send(producer, "java-late", 0, "lost");
        producer.flush();
        // Apache Kafka looks for those that have timed out every ten seconds.
        Suite.eventually("the transaction is aborted", () -> state(suite, "java-late") == TransactionState.COMPLETE_ABORT);
        Suite.same(List.of(), committed(suite, "java-late", 1), "records");
        try {
            producer.commitTransaction();
            throw new AssertionError("a transaction that timed out was committed");
        } catch (KafkaException expected) {
            // Fenced, or to be aborted, by the age of the client.
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private static TransactionDescription describe(Suite suite, String id) throws Exception {
        return Suite.get(suite.admin.describeTransactions(List.of(id)).description(id));
    }

    private static TransactionState state(Suite suite, String id) throws Exception {
        return describe(suite, id).state();
    }

    private static void administer(Suite suite) throws Exception {
        suite.createTopic("java-admin", 1);
        KafkaProducer<String, String> producer = producer(suite, "java-admin");
        producer.beginTransaction();
        send(producer, "java-admin", 0, "open");
        producer.flush();
        ListTransactionsOptions ongoing =
                new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
        List<String> ids = new ArrayList<>();
        Suite.get(suite.admin.listTransactions(ongoing).all()).forEach(one -> ids.add(one.transactionalId()));
        Suite.check(ids.contains("java-admin"), "listed are " + ids);
        TransactionDescription description = describe(suite, "java-admin");
        Suite.same(Set.of(new TopicPartition("java-admin", 0)), description.topicPartitions(), "partitions");
        Suite.get(suite.admin.fenceProducers(List.of("java-admin")).all());
        Suite.eventually("nothing is open", () -> describe(suite, "java-admin").topicPartitions().isEmpty());
        Suite.same(List.of(), committed(suite, "java-admin", 1), "records");
        producer.close(Duration.ZERO);
        try {
            describe(suite, "nobody");
            throw new AssertionError("an unknown id was described");
        } catch (ExecutionException error) {
            Suite.isA(TransactionalIdNotFoundException.class, error.getCause());
        }
    }
}
