package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Reads topics from start to end: every offset must be there, once and in order. */
final class Drain {
    static void run(Suite suite, List<String> topics) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = suite.bytesConsumer("isolation.level", "read_committed")) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : topics) {
                consumer.partitionsFor(topic).forEach(it -> partitions.add(new TopicPartition(topic, it.partition())));
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            Map<TopicPartition, Long> following = new HashMap<>();
            long missing = 0;
            for (TopicPartition partition : partitions) {
                following.put(partition, 0L);
                missing += ends.get(partition);
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long giveUp = System.nanoTime() + Duration.ofSeconds(90).toNanos();
            while (missing > 0) {
                Suite.check(System.nanoTime() < giveUp, missing + " records are missing: " + stuck(following, ends));
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    Suite.same(following.get(partition), record.offset(), "the offset in " + partition);
                    following.merge(partition, 1L, Long::sum);
                    missing--;
                }
            }
        }
    }

    private static List<TopicPartition> stuck(Map<TopicPartition, Long> following, Map<TopicPartition, Long> ends) {
        List<TopicPartition> stuck = new ArrayList<>(ends.keySet());
        stuck.removeIf(partition -> following.get(partition) >= ends.get(partition));
        return stuck;
    }
}
