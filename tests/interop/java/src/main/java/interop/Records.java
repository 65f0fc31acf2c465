package interop;

import static interop.Suite.check;
import static interop.Suite.same;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/**
 * Records that every client writes and every client reads.
 *
 * <p>Record i of a topic goes to partition i % 3; key null when i % 5 == 0, else key-i; value null when i % 7 == 0,
 * else value-i- and i % 50 times abcdefghij; headers writer, i and nothing (null); timestamp 1,700,000,000,000 + i.
 */
final class Records {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final int PARTITIONS = 3;
    static final int COUNT = 600;
    static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    static String topic(String writer, String codec) {
        return "cross-" + writer + "-" + codec;
    }

    static void write(Suite suite) {
        for (String codec : CODECS) {
            suite.run("write " + codec, () -> write(suite, topic("java", codec), codec, "java"));
        }
    }

    static void write(Suite suite, String topic, String codec, String writer) throws Exception {
        // The timestamps are older than any default retention.
        suite.createTopic(topic, PARTITIONS, "retention.ms", "-1");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                suite.bytesProducer("compression.type", codec, "linger.ms", "50", "acks", "all")) {
            for (int i = 0; i < COUNT; i++) {
                var record = new ProducerRecord<>(topic, i % PARTITIONS, FIRST_TIMESTAMP + i, key(i), value(i));
                record.headers()
                        .add("writer", bytes(writer))
                        .add("i", bytes(Integer.toString(i)))
                        .add("nothing", null);
                sent.add(producer.send(record));
            }
        }
        for (int i = 0; i < COUNT; i++) {
            RecordMetadata metadata = sent.get(i).get(60, TimeUnit.SECONDS);
            same((long) (i / PARTITIONS), metadata.offset(), "offset of record " + i);
        }
    }

    static void read(Suite suite, List<String> writers) {
        for (String writer : writers) {
            for (String codec : CODECS) {
                suite.run("read " + writer + " " + codec, () -> read(suite, topic(writer, codec), writer));
            }
        }
    }

    static void read(Suite suite, String topic, String writer) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = suite.bytesConsumer()) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            int[] next = {0, 1, 2};
            for (ConsumerRecord<byte[], byte[]> record : Suite.take(consumer, COUNT)) {
                int i = next[record.partition()];
                next[record.partition()] += PARTITIONS;
                same((long) (i / PARTITIONS), record.offset(), "offset of record " + i);
                same(key(i), record.key(), "key of record " + i);
                same(value(i), record.value(), "value of record " + i);
                same(FIRST_TIMESTAMP + i, record.timestamp(), "timestamp of record " + i);
                Header[] headers = record.headers().toArray();
                same(3, headers.length, "headers of record " + i);
                same("writer", headers[0].key(), "first header of record " + i);
                same(bytes(writer), headers[0].value(), "writer of record " + i);
                same("i", headers[1].key(), "second header of record " + i);
                same(bytes(Integer.toString(i)), headers[1].value(), "number of record " + i);
                same("nothing", headers[2].key(), "third header of record " + i);
                check(headers[2].value() == null, "the third header of record " + i + " is not null");
            }
        }
    }

    private static byte[] key(int i) {
        return i % 5 == 0 ? null : bytes("key-" + i);
    }

    private static byte[] value(int i) {
        return i % 7 == 0 ? null : bytes("value-" + i + "-" + "abcdefghij".repeat(i % 50));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
