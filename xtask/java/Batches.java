import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Writes record batches with Apache Kafka's own classes, or reads ours with them: Batches write|verify DIRECTORY. */
public class Batches {
    static final long NOW = 1_700_000_000_000L;

    record Sample(long timestamp, byte[] key, byte[] value, Header[] headers) {}

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static Sample sample(long timestamp, String key, String value, Header... headers) {
        return new Sample(timestamp, bytes(key), bytes(value), headers);
    }

    static Header header(String key, String value) {
        return new RecordHeader(key, bytes(value));
    }

    static List<Sample> few() {
        return List.of(
            sample(NOW, "key", "value"),
            sample(NOW + 1, null, "only a value"),
            sample(NOW - 5, "only a key", null),
            sample(NOW + 100_000, "", "", header("trace", "abc"), header("", null), header("trace", "")),
            sample(NOW, "long", "x".repeat(1000)));
    }

    /** More than one block of every codec. */
    static List<Sample> many() {
        List<Sample> samples = new ArrayList<>();
        for (int i = 0; i < 700; i++)
            samples.add(sample(NOW + i, "key-" + i, ("value " + i * 7919L + " ").repeat(10)));
        return samples;
    }

    static MemoryRecordsBuilder builder(
        Compression compression, TimestampType type, long logAppendTime, long producerId, int producerEpoch,
        int baseSequence, boolean isTransactional, long deleteHorizon
    ) {
        return new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1 << 20), RecordBatch.CURRENT_MAGIC_VALUE, compression, type, 100, logAppendTime,
            producerId, (short) producerEpoch, baseSequence, isTransactional, false, 7, Integer.MAX_VALUE, deleteHorizon);
    }

    static MemoryRecordsBuilder plain(Compression compression) {
        return builder(compression, TimestampType.CREATE_TIME, -1, -1, -1, -1, false, -1);
    }

    static MemoryRecords fill(MemoryRecordsBuilder builder, List<Sample> samples) {
        for (Sample sample : samples)
            builder.append(sample.timestamp, sample.key, sample.value, sample.headers);
        return builder.build();
    }

    static void write(Path directory, String name, MemoryRecords records) throws IOException {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(directory.resolve(name + ".bin"), bytes);
    }

    static void writeAll(Path directory) throws IOException {
        for (CompressionType type : CompressionType.values()) {
            Compression compression = Compression.of(type).build();
            write(directory, "few_" + type.name, fill(plain(compression), few()));
            if (type != CompressionType.NONE)
                write(directory, "many_" + type.name, fill(plain(compression), many()));
        }
        TimestampType create = TimestampType.CREATE_TIME;
        Compression none = Compression.NONE;
        write(directory, "idempotent", fill(builder(none, create, -1, 4242, 3, Integer.MAX_VALUE - 1, false, -1), few()));
        write(directory, "transactional", fill(builder(none, create, -1, 4242, 3, 17, true, -1), few()));
        write(directory, "delete_horizon", fill(builder(none, create, -1, -1, -1, -1, false, NOW + 86_400_000), few()));
        write(directory, "log_append_time",
            fill(builder(none, TimestampType.LOG_APPEND_TIME, NOW + 9, -1, -1, -1, false, -1), few()));

        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            empty, RecordBatch.CURRENT_MAGIC_VALUE, 4242, (short) 3, 17, 100, 104, 7, create, NOW, true, false);
        empty.flip();
        write(directory, "empty", MemoryRecords.readableRecords(empty));

        write(directory, "commit", MemoryRecords.withEndTransactionMarker(
            100, NOW, 7, 4242, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 11)));
        write(directory, "abort", MemoryRecords.withEndTransactionMarker(
            100, NOW, 7, 4242, (short) 3, new EndTransactionMarker(ControlRecordType.ABORT, 11)));

        List<LeaderChangeMessage.Voter> voters = List.of(
            new LeaderChangeMessage.Voter().setVoterId(1), new LeaderChangeMessage.Voter().setVoterId(2));
        write(directory, "leader_change", MemoryRecords.withLeaderChangeMessage(
            100, NOW, 7, room(),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1).setVoters(voters)
                .setGrantingVoters(voters.subList(1, 2))));
        write(directory, "snapshot_header", MemoryRecords.withSnapshotHeaderRecord(
            100, NOW, 7, room(), new SnapshotHeaderRecord().setLastContainedLogTimestamp(NOW - 1)));
        write(directory, "snapshot_footer", MemoryRecords.withSnapshotFooterRecord(
            100, NOW, 7, room(), new SnapshotFooterRecord()));
        write(directory, "kraft_version", MemoryRecords.withKRaftVersionRecord(
            100, NOW, 7, room(), new KRaftVersionRecord().setKRaftVersion((short) 1)));
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(65_000));
        write(directory, "voters", MemoryRecords.withVotersRecord(
            100, NOW, 7, room(),
            new VotersRecord().setVoters(List.of(new VotersRecord.Voter()
                .setVoterId(1)
                .setVoterDirectoryId(new Uuid(0x0707070707070707L, 0x0707070707070707L))
                .setEndpoints(endpoints)
                .setKRaftVersionFeature(new VotersRecord.KRaftVersionFeature()
                    .setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1))))));
    }

    static ByteBuffer room() {
        return ByteBuffer.allocate(1024);
    }

    static void verify(Path directory, String name, List<Sample> samples) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(
            ByteBuffer.wrap(Files.readAllBytes(directory.resolve(name + ".bin"))));
        for (RecordBatch batch : records.batches())
            batch.ensureValid();
        Iterator<Sample> expected = samples.iterator();
        long offset = 100;
        for (Record record : records.records()) {
            Sample sample = expected.next();
            boolean same = record.offset() == offset++
                && record.timestamp() == sample.timestamp
                && equal(record.key(), sample.key)
                && equal(record.value(), sample.value)
                && List.of(record.headers()).equals(List.of(sample.headers));
            if (!same)
                throw new AssertionError(name + ": " + record + " is not what was written");
        }
        if (expected.hasNext())
            throw new AssertionError(name + ": records are missing");
    }

    static boolean equal(ByteBuffer actual, byte[] expected) {
        return expected == null ? actual == null : ByteBuffer.wrap(expected).equals(actual);
    }

    public static void main(String[] arguments) throws IOException {
        Path directory = Path.of(arguments[1]);
        if (arguments[0].equals("write")) {
            writeAll(directory);
            return;
        }
        for (CompressionType type : CompressionType.values()) {
            verify(directory, "few_" + type.name, few());
            verify(directory, "many_" + type.name, many());
        }
        System.out.println("Apache Kafka reads our batches in every codec");
    }
}
