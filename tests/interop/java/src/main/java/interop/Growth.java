package interop;

import static interop.Suite.check;
import static interop.Suite.get;
import static interop.Suite.same;

import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;

/** Groups and records of a node that grows: these processes keep running while brokers are replaced. */
final class Growth {
    /** Creates a group without members, with offset 10 + p committed in every partition p. */
    static void leave(Suite suite, String topic, String group, int partitions) {
        suite.run("leave", () -> {
            try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", group)) {
                Set<TopicPartition> all = partitions(topic, partitions);
                consumer.assign(all);
                consumer.commitSync(left(all));
            }
        });
    }

    /** Checks that this group continues at its committed offsets. */
    static void resume(Suite suite, String topic, String group, int partitions) {
        Set<TopicPartition> all = partitions(topic, partitions);
        suite.run("an empty group has the offsets it had", () -> same(left(all),
                get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()), "offsets"));
        suite.run("its next member begins there", () -> {
            try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", group)) {
                consumer.subscribe(List.of(topic));
                Map<TopicPartition, Long> first = new HashMap<>();
                Suite.eventually("a record of every partition", () -> {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        first.putIfAbsent(new TopicPartition(topic, record.partition()), record.offset());
                    }
                    return first.size() == partitions;
                });
                left(all).forEach((partition, offset) ->
                        same(offset.offset(), first.get(partition), "first offset of " + partition));
            }
        });
    }

    private static final int RECORDS = 9;

    /**
     * Transactions of one producer: before its standard input is closed, one is committed, one is aborted, and one is
     * begun, which goes on afterwards.
     */
    static void transact(Suite suite, String topic, int partitions) throws Exception {
        Thread input = StandardInput.untilClosed();
        KafkaProducer<String, String> producer = transactional(suite, topic);
        suite.run("before the growth a transaction is committed, one is aborted, and one is begun", () -> {
            producer.initTransactions();
            transaction(producer, topic, partitions, "kept");
            producer.commitTransaction();
            transaction(producer, topic, partitions, "dropped");
            producer.abortTransaction();
            transaction(producer, topic, partitions, "begun");
        });
        input.join();
        suite.run("a transaction that was begun on Ottla goes on and is committed on Apache Kafka", () -> {
            records(producer, topic, partitions, "continued");
            producer.commitTransaction();
        });
        suite.run("its producer goes on", () -> {
            transaction(producer, topic, partitions, "dropped-later");
            producer.abortTransaction();
            transaction(producer, topic, partitions, "kept-later");
            producer.commitTransaction();
        });
        producer.close();
    }

    /** Checks these transactions, after one more of the same transactional id. */
    static void transacted(Suite suite, String topic, int partitions) {
        suite.run("the next producer of the transactional id commits", () -> {
            try (KafkaProducer<String, String> producer = transactional(suite, topic)) {
                producer.initTransactions();
                transaction(producer, topic, partitions, "last");
                producer.commitTransaction();
            }
        });
        List<String> committed = List.of("kept", "begun", "continued", "kept-later", "last");
        suite.run("read_committed returns every committed record once and no aborted one",
                () -> same(names(committed), values(suite, topic, partitions, "read_committed"), "records"));
        List<String> all = new ArrayList<>(committed);
        all.addAll(List.of("dropped", "dropped-later"));
        suite.run("read_uncommitted returns the aborted records, too",
                () -> same(names(all), values(suite, topic, partitions, "read_uncommitted"), "records"));
    }

    private static KafkaProducer<String, String> transactional(Suite suite, String topic) {
        return suite.producer("transactional.id", topic, "transaction.timeout.ms", "600000");
    }

    private static void transaction(KafkaProducer<String, String> producer, String topic, int partitions, String name)
            throws Exception {
        producer.beginTransaction();
        records(producer, topic, partitions, name);
    }

    private static void records(KafkaProducer<String, String> producer, String topic, int partitions, String name)
            throws Exception {
        for (int i = 0; i < RECORDS; i++) {
            var record = new ProducerRecord<String, String>(topic, i % partitions, null, name + "-" + i);
            producer.send(record).get(120, TimeUnit.SECONDS);
        }
    }

    /** All records of transactions, sorted. */
    private static List<String> names(List<String> transactions) {
        List<String> names = new ArrayList<>();
        transactions.forEach(name -> {
            for (int i = 0; i < RECORDS; i++) {
                names.add(name + "-" + i);
            }
        });
        names.sort(null);
        return names;
    }

    private static List<String> values(Suite suite, String topic, int partitions, String isolation) throws Exception {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = suite.consumer("isolation.level", isolation)) {
            Set<TopicPartition> all = partitions(topic, partitions);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            Suite.eventually("everything up to " + ends, () -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
                return all.stream().allMatch(at -> consumer.position(at) >= ends.get(at));
            });
        }
        values.sort(null);
        return values;
    }

    private static Map<TopicPartition, OffsetAndMetadata> left(Set<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        partitions.forEach(partition ->
                offsets.put(partition, new OffsetAndMetadata(10 + partition.partition(), "left")));
        return offsets;
    }

    private static Set<TopicPartition> partitions(String topic, int count) {
        Set<TopicPartition> all = new java.util.HashSet<>();
        for (int index = 0; index < count; index++) {
            all.add(Suite.partition(topic, index));
        }
        return all;
    }

    /**
     * One member reads and commits until standard input is closed, then up to the end: no offset is skipped, and no
     * committed one is read again.
     */
    static void follow(Suite suite, String topic, String group, int partitions) {
        AtomicBoolean stop = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (java.io.IOException closed) {
                // An error means the same as the end of the input.
            }
            stop.set(true);
        });
        input.setDaemon(true);
        input.start();
        suite.run("a group reads on across every change, skips nothing and repeats nothing that it has committed", () -> {
            Map<TopicPartition, Long> next = new HashMap<>();
            Map<TopicPartition, Long> committed = new HashMap<>();
            try (KafkaConsumer<String, String> consumer = suite.consumer("group.id", group, "max.poll.records", "500",
                    "session.timeout.ms", "10000", "heartbeat.interval.ms", "1000", "default.api.timeout.ms", "60000")) {
                consumer.subscribe(List.of(topic));
                while (!stop.get()) {
                    step(consumer, next, committed);
                }
                Set<TopicPartition> all = partitions(topic, partitions);
                Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
                all.forEach(partition -> latest.put(partition, OffsetSpec.latest()));
                var ends = get(suite.admin.listOffsets(latest).all());
                long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
                while (!all.stream().allMatch(at -> committed.getOrDefault(at, 0L) >= ends.get(at).offset())) {
                    step(consumer, next, committed);
                    check(System.nanoTime() < giveUp, "stuck at " + committed + " of " + ends);
                }
            }
            System.err.println("read up to " + committed);
        });
    }

    private static void step(KafkaConsumer<String, String> consumer, Map<TopicPartition, Long> next,
            Map<TopicPartition, Long> committed) {
        Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
            TopicPartition at = new TopicPartition(record.topic(), record.partition());
            long due = next.getOrDefault(at, 0L);
            check(record.offset() <= due, at + " goes on at " + record.offset() + ", due was " + due);
            long safe = committed.getOrDefault(at, 0L);
            check(record.offset() >= safe, at + " goes back to " + record.offset() + ", committed was " + safe);
            next.put(at, record.offset() + 1);
            read.put(at, new OffsetAndMetadata(record.offset() + 1));
        }
        if (read.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(read);
            read.forEach((at, offset) -> committed.put(at, offset.offset()));
        } catch (RetriableException | RebalanceInProgressException | org.apache.kafka.clients.consumer.CommitFailedException
                unknown) {
            // It is unknown whether the commit was stored: the records may be read again, or not.
            System.err.println("not committed: " + unknown);
        }
    }

    /**
     * Every record on the list of acknowledgements (see Crash) is at its acknowledged offset. Records appended but not
     * acknowledged before a stop may be there twice: a producer snapshot has one batch per producer, up to five are in flight.
     */
    static void verify(Suite suite, String topic, int partitions, String list) {
        suite.run("no acknowledged record is lost", () -> {
            // As numbers to save memory: there may be a million of them.
            Map<Long, Long> names = new HashMap<>();
            try (KafkaConsumer<String, String> consumer = suite.consumer()) {
                Set<TopicPartition> all = partitions(topic, partitions);
                consumer.assign(all);
                consumer.seekToBeginning(all);
                Map<TopicPartition, Long> ends = consumer.endOffsets(all);
                long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(150);
                while (!all.stream().allMatch(at -> consumer.position(at) >= ends.get(at))) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        names.put(place(record.partition(), record.offset()), name(record.value()));
                    }
                    check(System.nanoTime() < giveUp, "only " + names.size() + " records could be read up to " + ends);
                }
            }
            long acknowledged = 0;
            try (BufferedReader lines = Files.newBufferedReader(Path.of(list))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    String[] words = line.split(" ");
                    Long place = place(Integer.parseInt(words[0]), Long.parseLong(words[1]));
                    same(name(words[2]), names.get(place), "the record acknowledged as " + line);
                    acknowledged++;
                }
            }
            check(acknowledged > 1000, "only " + acknowledged + " records were acknowledged");
            System.err.println(acknowledged + " acknowledged records, " + names.size() + " found");
        });
    }

    /** `k<key>:<number>`, optionally followed by another colon and more text. */
    private static long name(String text) {
        String[] words = text.substring(1).split(":");
        return Long.parseLong(words[0]) << 40 | Long.parseLong(words[1]);
    }

    private static long place(int partition, long offset) {
        return (long) partition << 40 | offset;
    }
}
