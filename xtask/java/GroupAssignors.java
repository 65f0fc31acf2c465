import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Has the assignors of Apache Kafka's group coordinator (KIP-848) assign partitions.
 *
 * Lines with tab-separated fields in:
 *   topic NUMBER COUNT     the topic's number and how many partitions it has
 *   member ID INSTANCE TOPICS TARGET     numbers of topics; its last target, as topic:partition; lists are comma-separated
 *   assign ASSIGNOR     ends a group
 * and out: for each group `member ID TARGET`, sorted, for each member that has partitions, then `end`.
 */
public final class GroupAssignors {
    private static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
            Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor());

    private Map<Uuid, Integer> counts = new HashMap<>();
    /** A hash table, as the coordinator's. */
    private Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
    private Map<Uuid, Map<Integer, String>> owners = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        GroupAssignors group = new GroupAssignors();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "topic" -> group.counts.put(topic(fields[1]), Integer.parseInt(fields[2]));
                case "member" -> group.add(fields);
                case "assign" -> {
                    group.assign(ASSIGNORS.get(fields[1]), out);
                    group = new GroupAssignors();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static Uuid topic(String number) {
        return new Uuid(0x1234_0000_0000_0000L, Long.parseLong(number));
    }

    private void add(String[] fields) {
        Set<Uuid> topics = new HashSet<>();
        list(fields[3]).forEach(number -> topics.add(topic(number)));
        Map<Uuid, Set<Integer>> target = new HashMap<>();
        for (String name : list(fields[4])) {
            String[] parts = name.split(":");
            int partition = Integer.parseInt(parts[1]);
            target.computeIfAbsent(topic(parts[0]), unused -> new HashSet<>()).add(partition);
            owners.computeIfAbsent(topic(parts[0]), unused -> new HashMap<>()).put(partition, fields[1]);
        }
        Optional<String> instance = Optional.of(fields[2]).filter(id -> !id.isEmpty());
        members.put(fields[1],
                new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, new Assignment(target)));
    }

    private static Set<String> list(String field) {
        return field.isEmpty() ? Set.of() : Set.of(field.split(","));
    }

    private void assign(ConsumerGroupPartitionAssignor assignor, PrintStream out) {
        long subscriptions = members.values().stream().map(member -> member.subscribedTopicIds()).distinct().count();
        SubscriptionType type = subscriptions > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        Map<String, MemberAssignment> assigned =
                assignor.assign(new GroupSpecImpl(members, type, owners), describer).members();
        new TreeMap<>(assigned).forEach((id, assignment) -> {
            TreeSet<Long> partitions = new TreeSet<>();
            assignment.partitions().forEach((topic, of) ->
                    of.forEach(partition -> partitions.add(topic.getLeastSignificantBits() << 32 | partition)));
            if (partitions.isEmpty()) {
                return;
            }
            StringBuilder text = new StringBuilder();
            partitions.forEach(both -> text.append(text.isEmpty() ? "" : ",").append(both >> 32).append(':')
                    .append(both.intValue()));
            out.println("member\t" + id + "\t" + text);
        });
        out.println("end");
    }
}
