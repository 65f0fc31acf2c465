// Prints every metric that the Java clients register, for comparison with our own client's names.
package interop;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;

/** Arguments: bootstrap. Lines of: client, group, name, tag keys (joined by commas), the class that measures it. */
public final class MetricNames {
    private static final String TOPIC = "metric-names";

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("group.id", "metric-names");
        settings.put("auto.offset.reset", "earliest");
        TreeSet<String> lines = new TreeSet<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(TOPIC, new byte[100])).get();
            print(lines, "producer", producer.metrics());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(TOPIC));
            int records = 0;
            for (int attempt = 0; attempt < 60 && records == 0; attempt++) {
                records = consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
            consumer.poll(Duration.ofSeconds(1));
            print(lines, "consumer", consumer.metrics());
        }
        try (Admin admin = Admin.create(settings)) {
            admin.describeCluster().nodes().get();
            print(lines, "admin", admin.metrics());
        }
        lines.forEach(System.out::println);
    }

    private static void print(TreeSet<String> lines, String client, Map<MetricName, ? extends Metric> metrics) {
        metrics.forEach((name, metric) -> lines.add(String.join("\t", client, name.group(), name.name(),
            String.join(",", new TreeSet<>(name.tags().keySet())), kind(metric))));
    }

    private static String kind(Metric metric) {
        if (metric instanceof KafkaMetric measured && measured.isMeasurable()) {
            String name = measured.measurable().getClass().getSimpleName();
            return name.contains("$") || name.isEmpty() ? "Gauge" : name;
        }
        return "Gauge";
    }
}
