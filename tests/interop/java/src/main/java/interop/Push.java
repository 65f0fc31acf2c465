package interop;

import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Runs a producer and a consumer side by side for some seconds, long enough that they push metrics. */
final class Push {
    static void run(Suite suite, int seconds) {
        suite.run("push", () -> {
            suite.createTopic("push-java", 1);
            try (KafkaProducer<byte[], byte[]> producer = suite.bytesProducer("client.id", "interop-java-producer");
                    KafkaConsumer<byte[], byte[]> consumer =
                            suite.bytesConsumer("client.id", "interop-java-consumer", "group.id", "push-java")) {
                consumer.subscribe(List.of("push-java"));
                long end = System.nanoTime() + seconds * 1_000_000_000L;
                long read = 0;
                while (System.nanoTime() < end) {
                    for (int i = 0; i < 20; i++) {
                        producer.send(new ProducerRecord<>("push-java", new byte[100]));
                    }
                    producer.flush();
                    read += consumer.poll(Duration.ofMillis(50)).count();
                }
                Suite.check(read > 0, "nothing was read");
            }
        });
    }
}
