import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Has Apache Kafka's own assignors distribute partitions over random groups that change from rebalance to rebalance, and
 * prints input and output.
 *
 * Lines with tab-separated fields:
 *   assign ASSIGNOR
 *   topic NAME RACKS     one comma-separated entry per partition, the racks of its replicas separated by slashes
 *   member ID INSTANCE SUBSCRIPTION     in the order of the JoinGroup response; the subscription's bytes in hexadecimal
 *   assigned ID PARTITIONS ASSIGNMENT   comma-separated topic:index, sorted; then the assignment's bytes
 */
public final class Assignments {
    /** Numbers of random groups for the stateless assignors and for the sticky ones. */
    static final int PLAIN_GROUPS = 12;
    static final int STICKY_GROUPS = 60;
    static final int REBALANCES = 5;

    static final class Member {
        final String id;
        final String instance;
        final String rack;
        /** Newest version of the subscription that this member writes. */
        final short version;
        List<String> topics;
        ConsumerPartitionAssignor assignor;
        List<TopicPartition> owned = new ArrayList<>();
        int generation = -1;

        Member(String id, String instance, String rack, short version) {
            this.id = id;
            this.instance = instance;
            this.rack = rack;
            this.version = version;
        }
    }

    static int printed;
    static int skipped;

    public static void main(String[] arguments) throws Exception {
        for (String name : List.of("range", "roundrobin", "sticky", "cooperative-sticky")) {
            int groups = name.endsWith("sticky") ? STICKY_GROUPS : PLAIN_GROUPS;
            for (int group = 0; group < groups; group++) {
                run(name, new Random(name.hashCode() * 1000L + group), group);
            }
        }
        System.err.println(printed + " assignments, " + skipped + " where Kafka fails or assigns to who does not subscribe");
    }

    static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static void run(String name, Random random, int group) throws Exception {
        boolean alike = random.nextBoolean();
        boolean racks = random.nextInt(4) == 0;
        boolean old = random.nextInt(5) == 0;
        // Java's hash tables grow beyond 12 and 24 members.
        int most = group % 6 == 5 ? 30 : 7;
        Map<String, Integer> topics = new TreeMap<>();
        int topicCount = 1 + random.nextInt(4);
        for (int i = 0; i < topicCount; i++) topics.put("topic-" + (char) ('a' + i * 3), 1 + random.nextInt(9));
        if (random.nextInt(3) == 0) topics.replaceAll((topic, count) -> 6);
        List<Member> members = new ArrayList<>();
        int generation = random.nextInt(100);
        for (int rebalance = 0; rebalance < REBALANCES; rebalance++) {
            // Members join and leave, topics get more partitions.
            if (random.nextBoolean()) members.removeIf(member -> random.nextInt(3) == 0);
            int wanted = Math.max(1, random.nextBoolean() ? members.size() + random.nextInt(4) : random.nextInt(most + 1));
            while (members.size() < wanted) {
                String id = "client-" + random.nextInt(10) + "-" + new java.util.UUID(random.nextLong(), random.nextLong());
                String instance = random.nextInt(4) == 0 ? "instance-" + random.nextInt(1000) : null;
                String rack = racks && random.nextInt(5) > 0 ? "rack-" + random.nextInt(3) : null;
                Member member = new Member(id, instance, rack, (short) (old ? random.nextInt(4) : 3));
                member.assignor = assignor(name);
                members.add(member);
            }
            Collections.shuffle(members, random);
            for (Member member : members) {
                List<String> all = new ArrayList<>(topics.keySet());
                if (random.nextInt(15) == 0) all.add("missing");
                // At least one topic: Kafka assigns partitions even to members without topics if they come first in its table.
                if (!alike) all.removeIf(topic -> random.nextInt(3) == 0);
                if (all.isEmpty()) all.add("topic-a");
                if (alike || member.topics == null || random.nextInt(4) == 0) member.topics = alike ? new ArrayList<>(topics.keySet()) : all;
            }
            if (random.nextInt(4) == 0) topics.replaceAll((topic, count) -> count + random.nextInt(2));
            generation += 1;
            assign(name, random, topics, members, racks, generation);
        }
    }

    static void assign(String name, Random random, Map<String, Integer> topics, List<Member> members, boolean racks,
                       int generation) throws Exception {
        Cluster cluster = cluster(random, topics, racks);
        StringBuilder out = new StringBuilder("assign\t" + name + "\n");
        for (String topic : topics.keySet()) {
            List<String> places = new ArrayList<>();
            List<PartitionInfo> partitions = new ArrayList<>(cluster.partitionsForTopic(topic));
            partitions.sort((left, right) -> left.partition() - right.partition());
            for (PartitionInfo partition : partitions) {
                Set<String> names = new TreeSet<>();
                for (Node node : partition.replicas()) if (node.rack() != null) names.add(node.rack());
                places.add(String.join("/", names));
            }
            // The dot distinguishes a topic with one partition without racks from one without partitions.
            out.append("topic\t" + topic + "\t" + String.join(",", places) + ".\n");
        }
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Member member : members) {
            boolean eager = !name.equals("cooperative-sticky");
            // A member that missed rebalances still reports its earlier partitions; one that was just removed owns none.
            Subscription said = new Subscription(member.topics, member.assignor.subscriptionUserData(Set.copyOf(member.topics)),
                eager ? List.of() : member.owned, member.generation, Optional.ofNullable(member.rack));
            ByteBuffer bytes = ConsumerProtocol.serializeSubscription(said, member.version);
            out.append("member\t" + member.id + "\t" + (member.instance == null ? "" : member.instance) + "\t" + hex(bytes) + "\n");
            Subscription read = ConsumerProtocol.deserializeSubscription(bytes.duplicate());
            read.setGroupInstanceId(Optional.ofNullable(member.instance));
            subscriptions.put(member.id, read);
        }
        Map<String, Assignment> result;
        try {
            result = assignor(name).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        } catch (RuntimeException e) {
            skipped++;
            return;
        }
        boolean sound = true;
        for (Member member : members) {
            Assignment assignment = result.get(member.id);
            List<String> names = new ArrayList<>();
            for (TopicPartition partition : assignment.partitions()) {
                names.add(partition.topic() + ":" + partition.partition());
                sound &= member.topics.contains(partition.topic());
            }
            Collections.sort(names);
            out.append("assigned\t" + member.id + "\t" + String.join(",", names) + "\t" + hex(ConsumerProtocol.serializeAssignment(assignment)) + "\n");
        }
        if (sound) {
            System.out.print(out);
            printed++;
        } else {
            skipped++;
        }
        for (Member member : members) {
            // Some members miss the rebalance.
            if (random.nextInt(5) == 0) continue;
            Assignment assignment = result.get(member.id);
            member.owned = new ArrayList<>(assignment.partitions());
            member.generation = generation;
            member.assignor.onAssignment(assignment, new ConsumerGroupMetadata("group", generation, member.id, Optional.ofNullable(member.instance)));
        }
    }

    static Cluster cluster(Random random, Map<String, Integer> topics, boolean racks) {
        Node[] nodes = new Node[4];
        for (int i = 0; i < nodes.length; i++) nodes[i] = new Node(i, "host", 9092, racks ? "rack-" + i % 3 : null);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (Map.Entry<String, Integer> topic : topics.entrySet()) {
            for (int i = 0; i < topic.getValue(); i++) {
                // The same replicas in every rebalance.
                int first = (topic.getKey().hashCode() & 0xff) + i;
                Node[] replicas = {nodes[first % 4], nodes[(first + 1) % 4]};
                partitions.add(new PartitionInfo(topic.getKey(), i, replicas[0], replicas, replicas));
            }
        }
        return new Cluster("cluster", Arrays.asList(nodes), partitions, Set.of(), Set.of());
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
