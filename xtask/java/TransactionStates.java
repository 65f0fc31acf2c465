import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.TransactionVersion;

/**
 * Takes transactional ids through every state with Apache Kafka's own coordinator classes: TransactionStates DIRECTORY.
 *
 * Writes `kafka-4.3.0-transaction-state.log`, the records as its coordinator appends them, and
 * `kafka-4.3.0-transaction-state.tsv`, what it reads from them in the end; tab-separated: id, status (`Expired` after a
 * tombstone), producer id, previous and next one, epoch, timeout, partitions, start, last update, client's transaction version.
 */
public final class TransactionStates {
    private static final int TIMEOUT_MS = 60_000;
    private static final short LAST_EPOCH = Short.MAX_VALUE - 1;
    private static final Set<TopicPartition> ONE = Set.of(new TopicPartition("orders", 3));
    /** Written in the order of a hash table. */
    private static final Set<TopicPartition> SEVERAL = Set.of(
            new TopicPartition("orders", 0), new TopicPartition("orders", 7), new TopicPartition("__consumer_offsets", 49));

    private final List<SimpleRecord> records = new ArrayList<>();
    private long now = 1_700_000_000_000L;
    private long nextProducerId = 4_000;

    public static void main(String[] arguments) throws Exception {
        TransactionStates states = new TransactionStates();
        for (short level = 0; level <= 2; level++) {
            states.all(TransactionVersion.fromFeatureLevel(level));
        }
        states.write(Path.of(arguments[0]));
    }

    /** Every state that the coordinator writes at a finalized level; clients are of that version. */
    private void all(TransactionVersion level) {
        new Id("empty", level).init();
        new Id("ongoing", level).init().add(level, ONE).add(level);
        new Id("prepare-commit", level).init().add(level).prepare(true, level);
        new Id("prepare-abort", level).init().add(level).prepare(false, level);
        new Id("complete-commit", level).init().add(level).prepare(true, level).complete();
        new Id("complete-abort", level).init().add(level).prepare(false, level).complete();
        new Id("one-partition", level).init().add(level, ONE).prepare(true, level).complete().add(level, ONE).prepare(false, level);
        new Id("second", level).init().add(level).prepare(true, level).complete().add(level);
        new Id("again", level).init().add(level).prepare(true, level).complete().init();
        new Id("expired", level).init().add(level).prepare(false, level).complete().expire();
        // By InitProducerId when the epochs are used up.
        new Id("rotated", level, LAST_EPOCH).rotate();
        if (level.supportsEpochBump()) {
            // By EndTxn.
            new Id("exhausted-prepare", level, LAST_EPOCH).add(level).prepare(true, level);
            new Id("exhausted-complete", level, LAST_EPOCH).add(level).prepare(true, level).complete();
            new Id("aborted-empty", level).init().prepare(false, level);
            TransactionVersion old = TransactionVersion.fromFeatureLevel((short) 0);
            new Id("old-client", level).init().add(old).prepare(true, old);
        }
    }

    /** A transactional id. */
    private final class Id {
        final TransactionMetadata metadata;
        final TransactionVersion level;

        Id(String name, TransactionVersion level) {
            this(name, level, (short) -1);
        }

        Id(String name, TransactionVersion level, short epoch) {
            this.level = level;
            metadata = new TransactionMetadata(name + "-" + level.featureLevel(), nextProducerId++, -1, -1, epoch,
                    (short) -1, TIMEOUT_MS, TransactionState.EMPTY, Set.of(), -1, now, TransactionVersion.TV_0);
        }

        Id init() {
            return append(metadata.prepareIncrementProducerEpoch(TIMEOUT_MS, Optional.empty(), ++now));
        }

        Id rotate() {
            return append(metadata.prepareProducerIdRotation(nextProducerId++, TIMEOUT_MS, ++now, false));
        }

        Id add(TransactionVersion client) {
            return add(client, SEVERAL);
        }

        Id add(TransactionVersion client, Set<TopicPartition> partitions) {
            return append(metadata.prepareAddPartitions(partitions, ++now, client));
        }

        Id prepare(boolean commit, TransactionVersion client) {
            TransactionState next = commit ? TransactionState.PREPARE_COMMIT : TransactionState.PREPARE_ABORT;
            boolean overflows = client.supportsEpochBump() && metadata.producerEpoch() == LAST_EPOCH;
            boolean isEmpty = metadata.topicPartitions().isEmpty();
            return append(metadata.prepareAbortOrCommit(next, client, overflows ? nextProducerId++ : -1, ++now, isEmpty));
        }

        Id complete() {
            return append(metadata.prepareComplete(++now));
        }

        void expire() {
            records.add(new SimpleRecord(++now, TransactionLog.keyToBytes(metadata.transactionalId()), null));
        }

        private Id append(TxnTransitMetadata transition) {
            byte[] key = TransactionLog.keyToBytes(metadata.transactionalId());
            records.add(new SimpleRecord(now, key, TransactionLog.valueToBytes(transition, level)));
            metadata.completeTransitionTo(transition);
            return this;
        }
    }

    private void write(Path directory) throws IOException {
        ByteBuffer log = ByteBuffer.allocate(1 << 20);
        Map<String, String> states = new LinkedHashMap<>();
        for (int offset = 0; offset < records.size(); offset++) {
            log.put(MemoryRecords.withRecords(offset, Compression.NONE, records.get(offset)).buffer());
        }
        log.flip();
        for (Record record : MemoryRecords.readableRecords(log.duplicate()).records()) {
            TransactionLog.ReadResult result = TransactionLog.read(record.key(), record.value());
            if (result instanceof TransactionLog.TxnTombstone expired) {
                states.put(expired.transactionId(), expired.transactionId() + "\tExpired");
            } else if (result instanceof TransactionLog.TxnRecord read) {
                states.put(read.transactionId(), line(read.metadata()));
            }
        }
        byte[] bytes = new byte[log.remaining()];
        log.get(bytes);
        Files.createDirectories(directory);
        Files.write(directory.resolve("kafka-4.3.0-transaction-state.log"), bytes);
        Files.writeString(directory.resolve("kafka-4.3.0-transaction-state.tsv"), String.join("\n", states.values()) + "\n");
    }

    private static String line(TransactionMetadata metadata) {
        String partitions = metadata.topicPartitions().stream().map(TopicPartition::toString)
                .collect(Collectors.toCollection(TreeSet::new)).stream().collect(Collectors.joining(","));
        return String.join("\t", metadata.transactionalId(), metadata.state().stateName(), "" + metadata.producerId(),
                "" + metadata.prevProducerId(), "" + metadata.prepareNoTransit().nextProducerId(), "" + metadata.producerEpoch(),
                "" + metadata.txnTimeoutMs(), partitions, "" + metadata.txnStartTimestamp(),
                "" + metadata.txnLastUpdateTimestamp(), "" + metadata.clientTransactionVersion().featureLevel());
    }
}
