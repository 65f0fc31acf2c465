package interop;

import static interop.Suite.check;
import static interop.Suite.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;

/** A word count by Kafka Streams with exactly_once_v2, whose application and broker may be killed at any moment. */
final class WordCount {
    private static final int PARTITIONS = 4;
    private static final int WORDS_PER_LINE = 5;
    private static final int WORDS = 40;

    /** Creates both topics. */
    static void create(Suite suite, List<String> names) {
        suite.run("create", () -> {
            for (String name : names) {
                suite.createTopic(name, PARTITIONS);
            }
        });
    }

    /** Writes lines until standard input is closed; all of them must be acknowledged. */
    static void write(Suite suite, String topic) {
        suite.run("every line is acknowledged", () -> {
            Thread input = StandardInput.untilClosed();
            AtomicInteger acknowledged = new AtomicInteger();
            int sent = 0;
            try (KafkaProducer<String, String> producer = suite.producer("linger.ms", "5")) {
                for (; input.isAlive(); sent++) {
                    producer.send(new ProducerRecord<>(topic, sent % PARTITIONS, null, line()), (done, error) -> {
                        if (error == null) {
                            acknowledged.incrementAndGet();
                        } else {
                            System.err.println(error);
                        }
                    });
                    if (sent % 4 == 0) {
                        Thread.sleep(10);
                    }
                }
            }
            same(sent, acknowledged.get(), "acknowledged lines");
            System.out.println("lines: " + sent);
        });
    }

    /** The application, until it is killed or standard input is closed. An exception that it does not survive ends it. */
    static void count(String bootstrap, List<String> arguments) throws InterruptedException {
        Properties settings = settings(bootstrap, arguments.get(2));
        // A member that was killed is gone soon, and so is its transaction, if its state directory is lost.
        settings.put("consumer.session.timeout.ms", "3000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("producer.transaction.timeout.ms", "4000");
        KafkaStreams streams = start(settings, arguments.get(0), arguments.get(1));
        StandardInput.untilClosed().join();
        check(streams.close(Duration.ofSeconds(60)), "the application does not close");
    }

    private static Properties settings(String bootstrap, String directory) {
        Properties settings = new Properties();
        settings.put("application.id", "word-count");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("state.dir", directory);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        // Every count is written, not only the last of each commit.
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        return settings;
    }

    private static KafkaStreams start(Properties settings, String lines, String counts) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(lines)
                .flatMapValues(line -> Arrays.asList(line.trim().split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(counts);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
        return streams;
    }

    /**
     * Measures the time from when a line was due to when its counts are read as committed, and prints it as JSON. Arguments: both
     * topics, a directory, lines a second, seconds of warm-up, seconds.
     */
    static void measure(Suite suite, List<String> arguments) throws Exception {
        String counts = arguments.get(1);
        int rate = Integer.parseInt(arguments.get(3));
        int warmup = Integer.parseInt(arguments.get(4));
        int lines = rate * (warmup + Integer.parseInt(arguments.get(5)));
        suite.createTopic(arguments.get(0), PARTITIONS);
        suite.createTopic(counts, PARTITIONS);
        KafkaStreams streams = start(settings(suite.bootstrap, arguments.get(2)), arguments.get(0), counts);
        Suite.eventually("the application runs", () -> streams.state() == KafkaStreams.State.RUNNING);
        long first = System.currentTimeMillis();
        Thread writer = new Thread(() -> pace(suite, arguments.get(0), rate, lines, first));
        writer.start();
        List<Long> latencies = new ArrayList<>();
        int read = 0;
        long last = first;
        try (KafkaConsumer<String, String> consumer = reader(suite, counts)) {
            while (read < lines * WORDS_PER_LINE) {
                // It returns nothing also where it has only stepped over markers.
                ConsumerRecords<String, String> batch = consumer.poll(Duration.ofSeconds(1));
                long now = System.currentTimeMillis();
                last = batch.isEmpty() ? last : now;
                check(now - last < 60_000, "only " + read + " counts are committed");
                read += batch.count();
                for (ConsumerRecord<String, String> count : batch) {
                    // A count has the time of its line, or of a later line with the same word that was counted before it.
                    if (count.timestamp() >= first + 1000L * warmup) {
                        latencies.add(now - count.timestamp());
                    }
                }
            }
        }
        writer.join();
        check(streams.close(Duration.ofSeconds(60)), "the application does not close");
        Collections.sort(latencies);
        System.out.printf(
                Locale.ROOT,
                "{\"acknowledged\": %d, \"p50\": %d, \"p99\": %d, \"max\": %d}%n",
                latencies.size(),
                latencies.get(latencies.size() / 2),
                latencies.get((int) (latencies.size() * 0.99)),
                latencies.get(latencies.size() - 1));
    }

    /** Writes lines on a schedule; the timestamp of each says when it was due. */
    private static void pace(Suite suite, String topic, int rate, int lines, long first) {
        try (KafkaProducer<String, String> producer = suite.producer("linger.ms", "0")) {
            for (int sent = 0; sent < lines; sent++) {
                long due = first + sent * 1000L / rate;
                long early = due - System.currentTimeMillis();
                if (early > 0) {
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(early));
                }
                producer.send(new ProducerRecord<>(topic, sent % PARTITIONS, due, null, line()));
            }
        }
    }

    private static String line() {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < WORDS_PER_LINE; i++) {
            line.append("word").append(ThreadLocalRandom.current().nextInt(WORDS)).append(' ');
        }
        return line.toString();
    }

    /** Reads all lines again and what was counted, as committed: each word has each count once and in order. */
    static void verify(Suite suite, String lines, String counts, int written) {
        suite.run("every word is counted once", () -> {
            Map<String, Long> expected = new HashMap<>();
            try (KafkaConsumer<String, String> consumer = reader(suite, lines)) {
                while (!isAtEnd(consumer)) {
                    for (ConsumerRecord<String, String> line : consumer.poll(Duration.ofMillis(200))) {
                        for (String word : line.value().trim().split(" ")) {
                            expected.merge(word, 1L, Long::sum);
                        }
                    }
                }
            }
            long total = expected.values().stream().mapToLong(Long::longValue).sum();
            same((long) written * WORDS_PER_LINE, total, "words");
            Map<String, Long> counted = new HashMap<>();
            long read = 0;
            long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            try (KafkaConsumer<String, String> consumer = reader(suite, counts)) {
                // The application may still be counting; behind the last count there is nothing.
                while (read < total || !isAtEnd(consumer)) {
                    check(System.nanoTime() < giveUp, "only " + read + " of " + total + " counts within a minute");
                    for (ConsumerRecord<String, String> count : consumer.poll(Duration.ofMillis(200))) {
                        read++;
                        long next = counted.getOrDefault(count.key(), 0L) + 1;
                        same(String.valueOf(next), count.value(), count.key() + " at " + count.offset());
                        counted.put(count.key(), next);
                    }
                }
            }
            same(expected, counted, "counts");
            System.out.println("counts: " + read);
        });
    }

    private static KafkaConsumer<String, String> reader(Suite suite, String topic) {
        KafkaConsumer<String, String> consumer = suite.consumer("isolation.level", "read_committed");
        List<TopicPartition> all =
                consumer.partitionsFor(topic).stream().map(one -> new TopicPartition(topic, one.partition())).toList();
        consumer.assign(all);
        consumer.seekToBeginning(all);
        return consumer;
    }

    private static boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        return consumer.endOffsets(consumer.assignment()).entrySet().stream()
                .allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }
}
