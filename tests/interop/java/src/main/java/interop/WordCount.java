package interop;

import static interop.Suite.check;
import static interop.Suite.same;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
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
                    StringBuilder line = new StringBuilder();
                    for (int i = 0; i < WORDS_PER_LINE; i++) {
                        line.append("word").append(ThreadLocalRandom.current().nextInt(WORDS)).append(' ');
                    }
                    producer.send(new ProducerRecord<>(topic, sent % PARTITIONS, null, line.toString()), (done, error) -> {
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
        Properties settings = new Properties();
        settings.put("application.id", "word-count");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("state.dir", arguments.get(2));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        // Every count is written, not only the last of each commit.
        settings.put("statestore.cache.max.bytes", "0");
        // A member that was killed is gone soon, and so is its transaction, if its state directory is lost.
        settings.put("consumer.session.timeout.ms", "3000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("producer.transaction.timeout.ms", "4000");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments.get(0))
                .flatMapValues(line -> Arrays.asList(line.trim().split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments.get(1));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
        StandardInput.untilClosed().join();
        check(streams.close(Duration.ofSeconds(60)), "the application does not close");
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
