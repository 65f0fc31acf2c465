package interop;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;

/** Java's transactions of the crash test; see crash_transactions.go for the records and the list. */
final class CrashTransactions {
    /** Works until standard input is closed. */
    static void load(Suite suite, String topic, int partitions, String list) throws Exception {
        Thread input = StandardInput.untilClosed();
        try (PrintWriter written = new PrintWriter(Files.newBufferedWriter(Path.of(list)), true)) {
            KafkaProducer<String, String> producer = open(suite, topic);
            for (int number = 0; input.isAlive(); number++) {
                written.println("begun " + number);
                try {
                    written.println(one(producer, topic, partitions, number) + " " + number);
                } catch (KafkaException | IllegalStateException fatal) {
                    // The next producer ends what this one left open.
                    System.err.println("transaction " + number + ": " + fatal);
                    producer.close(Duration.ZERO);
                    producer = open(suite, topic);
                }
            }
            producer.close();
        }
    }

    private static KafkaProducer<String, String> open(Suite suite, String topic) {
        KafkaProducer<String, String> producer = suite.producer(
                "transactional.id", topic, "linger.ms", "1", "retry.backoff.ms", "20", "retry.backoff.max.ms", "100",
                "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms", "100", "request.timeout.ms", "5000");
        producer.initTransactions();
        return producer;
    }

    private static String one(KafkaProducer<String, String> producer, String topic, int partitions, int number) {
        try {
            producer.beginTransaction();
            String pad = "x".repeat(ThreadLocalRandom.current().nextInt(300));
            for (int i = 0; i < 1 + number % 8; i++) {
                String value = number + ":" + i + ":" + pad;
                producer.send(new ProducerRecord<>(topic, (number + i) % partitions, null, value));
            }
            if (number % 5 != 3) {
                producer.commitTransaction();
                return "committed";
            }
            producer.flush();
        } catch (KafkaException abortable) {
            System.err.println("transaction " + number + " is aborted: " + abortable);
        }
        // Fails if the producer is of no more use.
        producer.abortTransaction();
        return "aborted";
    }
}
