package benchclient;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The reading loop of a consumer: repeated, checked passes from the beginning to the end of every partition. */
final class Consume {
    private static long records;
    private static long bytes;
    private static long disordered;
    private static double secondsToFirst;

    static void run(Map<String, String> arguments) throws Exception {
        String topic = arguments.get("topic");
        int partitions = Integer.parseInt(arguments.get("partitions"));
        long expected = Long.parseLong(arguments.get("records"));
        int passes = Integer.parseInt(arguments.get("passes"));
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments.get("bootstrap"),
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest");
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            assigned.add(new TopicPartition(topic, partition));
        }
        consumer.assign(assigned);
        pass(consumer, assigned, expected);
        Main.sayAndWait("ready");
        records = 0;
        bytes = 0;
        secondsToFirst = 0;
        long begun = System.nanoTime();
        for (int i = 0; i < passes; i++) {
            pass(consumer, assigned, expected);
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        Main.sayAndWait("done");
        System.out.println("{\"seconds\":" + seconds + ",\"seconds_to_first\":" + secondsToFirst
                + ",\"received\":" + records + ",\"expected\":" + expected * passes
                + ",\"value_bytes\":" + bytes + ",\"disordered\":" + disordered
                + ",\"version\":" + Main.quoted(Main.version()) + "}");
    }

    private static void pass(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> assigned, long expected) {
        long begun = System.nanoTime();
        long[] next = new long[assigned.size()];
        consumer.seekToBeginning(assigned);
        long seen = 0;
        while (seen < expected) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (seen == 0) {
                    secondsToFirst += (System.nanoTime() - begun) / 1e9;
                }
                if (next[record.partition()] != record.offset()) {
                    disordered++;
                }
                next[record.partition()] = record.offset() + 1;
                seen++;
                bytes += record.value().length;
            }
        }
        records += seen;
    }
}
