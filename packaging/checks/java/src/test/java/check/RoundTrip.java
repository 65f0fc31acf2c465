package check;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces records and consumes them with Kafka's own client. */
final class RoundTrip {
    private static final int RECORDS = 100;

    private RoundTrip() {}

    static void check(String bootstrapServers) throws Exception {
        String topic = "round-trip-" + UUID.randomUUID();
        List<String> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(bootstrapServers)) {
            for (int number = 0; number < RECORDS; number++) {
                sent.add("record " + number);
                // One partition, whose order is kept.
                producer.send(new ProducerRecord<>(topic, 0, null, sent.get(number)));
            }
        }
        assertEquals(sent, consume(bootstrapServers, topic));
    }

    static int partitions(String bootstrapServers, String topic) {
        try (KafkaProducer<String, String> producer = producer(bootstrapServers)) {
            return producer.partitionsFor(topic).size();
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrapServers) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrapServers, "acks", "all");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static List<String> consume(String bootstrapServers, String topic) {
        Map<String, Object> settings =
                Map.of("bootstrap.servers", bootstrapServers, "group.id", topic, "auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (values.size() < RECORDS && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }
}
