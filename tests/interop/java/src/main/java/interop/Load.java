package interop;

import java.io.FileInputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One producer or consumer as a properties file describes it; prints a line of JSON every second with what it did,
 * until it is ended. Keys that begin with `load.` are explained in `xtask/src/doctor_truth/load.rs`; all others are
 * settings of the client.
 */
final class Load {
    private final Properties settings = new Properties();
    private final Properties load = new Properties();
    private long done;
    private long failed;
    private long lost;
    private final List<Long> latencies = new ArrayList<>();

    static void run(String bootstrap, String file) throws Exception {
        Load load = new Load();
        try (FileInputStream stream = new FileInputStream(file)) {
            Properties all = new Properties();
            all.load(stream);
            for (String key : all.stringPropertyNames()) {
                (key.startsWith("load.") ? load.load : load.settings).setProperty(key, all.getProperty(key));
            }
        }
        load.settings.setProperty("bootstrap.servers", bootstrap);
        Thread reporter = new Thread(load::report);
        reporter.setDaemon(true);
        reporter.start();
        if (load.load.getProperty("load.role").equals("producer")) {
            load.produce();
        } else {
            load.consume();
        }
    }

    private long number(String key, long otherwise) {
        return Long.parseLong(load.getProperty("load." + key, Long.toString(otherwise)));
    }

    private void report() {
        long next = System.nanoTime();
        while (true) {
            next += 1_000_000_000L;
            LockSupport.parkNanos(next - System.nanoTime());
            synchronized (this) {
                long[] sorted = latencies.stream().mapToLong(Long::longValue).sorted().toArray();
                double mean = Arrays.stream(sorted).average().orElse(0) / 1e6;
                double p99 = sorted.length == 0 ? 0 : sorted[(int) (0.99 * (sorted.length - 1))] / 1e6;
                System.out.printf(
                        "{\"records\":%d,\"failed\":%d,\"mean_ms\":%.3f,\"p99_ms\":%.3f,\"lost\":%d}%n",
                        done, failed, mean, p99, lost);
                System.out.flush();
                done = 0;
                failed = 0;
                lost = 0;
                latencies.clear();
            }
        }
    }

    private synchronized void finished(long nanos, boolean isFailed) {
        if (isFailed) {
            failed++;
            return;
        }
        done++;
        if (latencies.size() < 100_000) {
            latencies.add(nanos);
        }
    }

    /** The group went on without this member. */
    private synchronized void lostPartitions() {
        lost++;
    }

    private static void work(long micros) {
        long end = System.nanoTime() + micros * 1_000;
        while (System.nanoTime() < end) {
            Thread.onSpinWait();
        }
    }

    private static void sleep(long micros) {
        long end = System.nanoTime() + micros * 1_000;
        while (System.nanoTime() < end) {
            LockSupport.parkNanos(end - System.nanoTime());
        }
    }

    private void produce() throws Exception {
        int threads = (int) number("threads", 1);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (number("transaction.records", 0) > 0) {
            producer.initTransactions();
        }
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            long seed = i;
            Thread thread = new Thread(() -> send(producer, (double) number("rate", 0) / threads, seed));
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, double rate, long seed) {
        String topic = load.getProperty("load.topic");
        String keys = load.getProperty("load.keys", "none");
        boolean isSynchronous = load.getProperty("load.synchronous", "false").equals("true");
        long callbackMicros = number("callback.micros", 0);
        long workMicros = number("work.micros", 0);
        long flushRecords = number("flush.records", 0);
        long transactionRecords = number("transaction.records", 0);
        Random random = new Random(seed);
        byte[][] values = values((int) number("record.bytes", 100), random);
        String partitioner = load.getProperty("load.partitioner", "none");
        int partitions = partitioner.equals("none") ? 1 : producer.partitionsFor(topic).size();
        byte[][] large = values((int) number("large.bytes", 0), random);
        long began = System.nanoTime();
        for (long sent = 0; ; sent++) {
            if (rate > 0) {
                long due = began + (long) (sent * 1e9 / rate);
                if (due > System.nanoTime()) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
            }
            work(workMicros);
            if (transactionRecords > 0 && sent % transactionRecords == 0) {
                producer.beginTransaction();
            }
            byte[] key = switch (keys) {
                case "hot" -> (random.nextInt(10) > 0 ? "hot" : "k" + random.nextInt(1000)).getBytes();
                case "spread" -> ("k" + random.nextInt(100_000)).getBytes();
                default -> null;
            };
            Integer partition = partition(partitioner, sent, partitions);
            boolean isLarge = large[0].length > 0 && sent % partitions == 0;
            byte[] value = (isLarge ? large : values)[(int) (sent % values.length)];
            long at = System.nanoTime();
            var future = producer.send(new ProducerRecord<>(topic, partition, key, value), (metadata, error) -> {
                finished(System.nanoTime() - at, error != null);
                sleep(callbackMicros);
            });
            if (isSynchronous) {
                try {
                    future.get();
                } catch (Exception error) {
                    // Counted by the callback.
                }
            }
            if (flushRecords > 0 && (sent + 1) % flushRecords == 0) {
                producer.flush();
            }
            if (transactionRecords > 0 && (sent + 1) % transactionRecords == 0) {
                producer.commitTransaction();
            }
        }
    }

    /** The partition that the application itself chooses; null: the client's partitioner does. */
    private static Integer partition(String partitioner, long sent, int partitions) {
        long turn = sent / partitions;
        return switch (partitioner) {
            case "hot" -> sent % 10 > 0 ? 0 : (int) (sent / 10 % partitions);
            case "turn" -> (int) (sent % partitions);
            case "even" -> (int) ((sent + turn) % partitions);
            default -> null;
        };
    }

    /** Bytes of text that compress about three times, or noise. */
    private byte[][] values(int bytes, Random random) {
        boolean isText = load.getProperty("load.values", "noise").equals("text");
        byte[][] values = new byte[Math.max(1, Math.min(500, 50_000_000 / Math.max(bytes, 1)))][bytes];
        for (byte[] value : values) {
            random.nextBytes(value);
            for (int i = 0; isText && i < bytes; i++) {
                value[i] = (byte) ('a' + (value[i] & 7));
            }
        }
        return values;
    }

    private void consume() {
        for (int i = 1; i < number("members", 1); i++) {
            Properties other = new Properties();
            other.putAll(settings);
            other.setProperty("client.id", settings.getProperty("client.id") + "-other");
            new Thread(() -> consume(other)).start();
        }
        consume(settings);
    }

    private void consume(Properties settings) {
        long recordMicros = number("processing.micros", 0);
        long pollMicros = number("poll.micros", 0);
        String slow = load.getProperty("load.slow.partition", "");
        boolean commitsEach = load.getProperty("load.commit", "").equals("record");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(load.getProperty("load.topic")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                lostPartitions();
            }
        });
        // A record that is read again after a rebalance is no progress: it takes its time and does not count.
        Map<Integer, Long> seen = new HashMap<>();
        while (true) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                boolean isSlow = slow.isEmpty() || Integer.toString(record.partition()).equals(slow);
                sleep(isSlow ? recordMicros : 0);
                if (commitsEach) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                }
                if (record.offset() > seen.getOrDefault(record.partition(), -1L)) {
                    seen.put(record.partition(), record.offset());
                    finished((System.currentTimeMillis() - record.timestamp()) * 1_000_000, false);
                }
            }
            sleep(pollMicros);
        }
    }
}
