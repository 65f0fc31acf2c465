package interop;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer and a consumer of known habits, for a doctor to judge; both run until they are ended. */
final class Habits {
    /**
     * Offers records at a rate.
     *
     * <p>Arguments: topic, partitions, records per second, bytes of a record, the share of records that goes to
     * partition 0 beyond its even part; then settings as `key=value`.
     */
    static void offer(Suite suite, List<String> arguments) {
        String topic = arguments.get(0);
        int partitions = Integer.parseInt(arguments.get(1));
        double rate = Double.parseDouble(arguments.get(2));
        byte[] value = new byte[Integer.parseInt(arguments.get(3))];
        double hot = Double.parseDouble(arguments.get(4));
        try (KafkaProducer<byte[], byte[]> producer = suite.bytesProducer(settings(arguments, 5))) {
            long started = System.nanoTime();
            double owed = 0;
            for (long sent = 0; ; sent++) {
                owed += hot;
                int partition = (int) (sent % partitions);
                if (owed >= 1) {
                    owed -= 1;
                    partition = 0;
                }
                producer.send(new ProducerRecord<>(topic, partition, null, value));
                long due = started + (long) (sent * 1e9 / rate);
                long early = due - System.nanoTime();
                if (early > 1_000_000) LockSupport.parkNanos(early);
            }
        }
    }

    /**
     * Works on every record for a time.
     *
     * <p>Arguments: topic, microseconds of work on a record; then settings as `key=value`.
     */
    static void work(Suite suite, List<String> arguments) {
        long micros = Long.parseLong(arguments.get(1));
        try (KafkaConsumer<byte[], byte[]> consumer = suite.bytesConsumer(settings(arguments, 2))) {
            consumer.subscribe(List.of(arguments.get(0)));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                long due = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    // The sum of many short sleeps would be far too long.
                    due += 1_000 * micros;
                    long left = due - System.nanoTime();
                    if (left > 1_000_000) LockSupport.parkNanos(left);
                }
            }
        }
    }

    private static String[] settings(List<String> arguments, int from) {
        return arguments.stream().skip(from).flatMap(setting -> java.util.Arrays.stream(setting.split("=", 2)))
            .toArray(String[]::new);
    }
}
