package interop;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The Java producer of the crash test; see crash.go for the records and the list of acknowledgements. */
final class Crash {
    private static final int KEYS_PER_PARTITION = 16;

    /** Produces until standard input is closed, then waits for records in flight. */
    static void load(Suite suite, String topic, int partitions, String list) throws Exception {
        Thread input = StandardInput.untilClosed();
        AtomicInteger failed = new AtomicInteger();
        int[] numbers = new int[partitions * KEYS_PER_PARTITION];
        String pad = "x".repeat(300);
        try (PrintWriter acknowledged = new PrintWriter(Files.newBufferedWriter(Path.of(list)), true);
                KafkaProducer<String, String> producer = suite.producer(
                        "acks", "all", "enable.idempotence", "true", "linger.ms", "1", "retry.backoff.ms", "20",
                        "retry.backoff.max.ms", "100", "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms", "100",
                        "delivery.timeout.ms", "120000", "request.timeout.ms", "5000", "max.block.ms", "120000",
                        "buffer.memory", "2000000")) {
            for (int i = 0; input.isAlive(); i++) {
                ThreadLocalRandom random = ThreadLocalRandom.current();
                int at = random.nextInt(numbers.length);
                String text = "k" + at + ":" + numbers[at]++;
                String value = text + ":" + pad.substring(0, random.nextInt(pad.length()));
                producer.send(new ProducerRecord<>(topic, at % partitions, "k" + at, value), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.println(metadata.partition() + " " + metadata.offset() + " " + text);
                    } else {
                        failed.incrementAndGet();
                        System.err.println("not acknowledged: " + text + ": " + error);
                    }
                });
                if (i % 10 == 0) {
                    Thread.sleep(1);
                }
            }
            producer.flush();
        }
        if (failed.get() > 0) {
            System.err.println(failed + " records failed");
            System.exit(1);
        }
    }
}
