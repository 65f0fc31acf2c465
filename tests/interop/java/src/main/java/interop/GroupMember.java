package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * One member of a group. It reads commands from standard input (`close`) and prints events:
 * `REVOKED`, `LOST` and `ASSIGNED` with the listener's partitions, `PLACE` with its generation and whole assignment,
 * `READ` with a record's partition and value, `FAILED`, `CLOSED`. Fields are tab-separated, partitions comma-separated.
 */
final class GroupMember {
    /** Arguments: the topics, joined with commas, or a pattern after `~`, or one for the broker after `^`; then settings as `key=value`. */
    static void run(Suite suite, List<String> arguments) throws Exception {
        String[] settings = arguments.stream().skip(1).flatMap(setting -> java.util.Arrays.stream(setting.split("=", 2)))
            .toArray(String[]::new);
        AtomicBoolean isClosing = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
                String line = lines.readLine();
                // The input ends when the parent process ends.
                if (line == null || line.equals("close")) isClosing.set(true);
            } catch (Exception error) {
                isClosing.set(true);
            }
        });
        input.setDaemon(true);
        input.start();
        String topics = arguments.get(0);
        try (KafkaConsumer<String, String> consumer = suite.consumer(settings)) {
            if (topics.startsWith("^")) {
                consumer.subscribe(new org.apache.kafka.clients.consumer.SubscriptionPattern(topics.substring(1)), listener());
            } else if (topics.startsWith("~")) {
                consumer.subscribe(java.util.regex.Pattern.compile(topics.substring(1)), listener());
            } else {
                consumer.subscribe(List.of(topics.split(",")), listener());
            }
            String last = "";
            while (!isClosing.get()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    say("READ", record.topic() + "-" + record.partition() + "\t" + record.value());
                }
                String place = consumer.groupMetadata().generationId() + "\t" + names(consumer.assignment());
                if (!place.equals(last)) {
                    last = place;
                    say("PLACE", place);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            say("FAILED", error.getClass().getSimpleName());
            return;
        }
        say("CLOSED", "");
    }

    private static ConsumerRebalanceListener listener() {
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("REVOKED", names(partitions));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("LOST", names(partitions));
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("ASSIGNED", names(partitions));
            }
        };
    }

    private static String names(Collection<TopicPartition> partitions) {
        Set<String> names = partitions.stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new));
        return String.join(",", names);
    }

    private static synchronized void say(String what, String text) {
        System.out.println(what + "\t" + text);
        System.out.flush();
    }
}
