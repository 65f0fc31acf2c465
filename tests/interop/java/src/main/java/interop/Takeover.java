package interop;

import static interop.Suite.get;
import static interop.Suite.same;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Saves everything that a client can see, and compares it later with the answers of another broker. */
final class Takeover {
    static void keep(Suite suite, String file) throws Exception {
        Files.write(Path.of(file), observe(suite));
        System.out.println("CASE\tkeep\tok\t");
    }

    /** Every saved line must be seen again; an additional line (a record written since) fails as well. */
    static void check(Suite suite, String file) {
        suite.run("check", () -> {
            List<String> expected = Files.readAllLines(Path.of(file));
            List<String> actual = observe(suite);
            Files.write(Path.of(file + ".seen"), actual);
            for (int i = 0; i < Math.max(expected.size(), actual.size()); i++) {
                same(i < expected.size() ? expected.get(i) : null, i < actual.size() ? actual.get(i) : null,
                        "line " + i + " of " + file);
            }
        });
    }

    private static List<String> observe(Suite suite) throws Exception {
        List<String> lines = new ArrayList<>();
        lines.add("cluster " + get(suite.admin.describeCluster().clusterId()));
        TreeMap<String, TopicDescription> topics = new TreeMap<>(
                get(suite.admin.describeTopics(get(suite.admin.listTopics().names())).allTopicNames()));
        for (TopicDescription topic : topics.values()) {
            lines.add("topic " + topic.name() + " " + topic.topicId() + " " + topic.partitions().size());
            for (var config : get(suite.admin.describeConfigs(List.of(new org.apache.kafka.common.config.ConfigResource(
                    org.apache.kafka.common.config.ConfigResource.Type.TOPIC, topic.name()))).all())
                    .values().iterator().next().entries()) {
                if (config.source()
                        == org.apache.kafka.clients.admin.ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    lines.add("config " + topic.name() + " " + config.name() + "=" + config.value());
                }
            }
            for (int index = 0; index < topic.partitions().size(); index++) {
                records(suite, new TopicPartition(topic.name(), index), lines);
            }
        }
        var listed = new java.util.TreeSet<String>();
        get(suite.admin.listGroups().all()).forEach(group -> listed.add(group.groupId()));
        for (String group : listed) {
            var offsets = get(suite.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            var sorted = new TreeMap<String, String>();
            offsets.forEach((partition, offset) ->
                    sorted.put(partition.toString(), offset.offset() + " '" + offset.metadata() + "'"));
            lines.add("group " + group + " " + sorted);
        }
        return lines;
    }

    private static void records(Suite suite, TopicPartition partition, List<String> lines) throws Exception {
        long start = get(suite.admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all())
                .get(partition).offset();
        long end = get(suite.admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all())
                .get(partition).offset();
        lines.add("partition " + partition + " " + start + ".." + end);
        try (KafkaConsumer<byte[], byte[]> consumer = suite.bytesConsumer("isolation.level", "read_committed")) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, start);
            long giveUp = System.nanoTime() + 60_000_000_000L;
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(java.time.Duration.ofMillis(200))) {
                    lines.add("record " + partition + " " + record.offset() + " " + record.timestamp() + " "
                            + text(record.key()) + " " + text(record.value()) + " " + record.headers());
                }
                Suite.check(System.nanoTime() < giveUp, "stuck at " + consumer.position(partition) + " of " + end
                        + " in " + partition);
            }
        }
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }
}
