package benchclient;

import java.io.BufferedOutputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The record loop of a producer: threads that share one producer, every answer counted by a callback. */
final class Produce {
    private static final int SLOW = -1;

    private final Map<String, String> arguments;
    private final byte[][] payloads;
    private final int threads;
    private final int partitions;
    private final double rate;
    private final boolean isNull;
    private final String topic;
    private final String slowTopic;
    private final double slowRate;
    private final long callbackSleepMs;
    private final String latencyFile;
    private final AtomicReference<String> firstError = new AtomicReference<>("");
    private KafkaProducer<byte[], byte[]> producer;

    Produce(Map<String, String> arguments) throws Exception {
        this.arguments = arguments;
        threads = Integer.parseInt(arguments.get("threads"));
        partitions = Integer.parseInt(arguments.get("partitions"));
        rate = Double.parseDouble(arguments.getOrDefault("rate", "0"));
        isNull = arguments.getOrDefault("null", "0").equals("1");
        topic = arguments.get("topic");
        slowTopic = arguments.getOrDefault("slow_topic", "");
        slowRate = Double.parseDouble(arguments.getOrDefault("slow_rate", "0"));
        callbackSleepMs = Long.parseLong(arguments.getOrDefault("callback_sleep_ms", "0"));
        latencyFile = arguments.get("latency_file");
        byte[] all = Files.readAllBytes(Path.of(arguments.get("payloads")));
        int bytes = Integer.parseInt(arguments.get("bytes"));
        payloads = new byte[all.length / bytes][];
        for (int i = 0; i < payloads.length; i++) {
            payloads[i] = Arrays.copyOfRange(all, i * bytes, (i + 1) * bytes);
        }
    }

    /** The outcomes of one phase's records. */
    private final class Answers {
        final AtomicLong acknowledged = new AtomicLong();
        final AtomicLong slowAcknowledged = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        final AtomicLong answeredTwice = new AtomicLong();
        final long begun = System.nanoTime();
        final AtomicLongArray answeredAt;

        Answers(long records) {
            answeredAt = latencyFile == null ? null : new AtomicLongArray((int) records);
        }

        void add(int slot, Exception error) {
            if (error != null) {
                failed.incrementAndGet();
                firstError.compareAndSet("", error.toString());
                return;
            }
            if (slot == SLOW) {
                if (callbackSleepMs > 0) {
                    try {
                        Thread.sleep(callbackSleepMs);
                    } catch (InterruptedException ended) {
                        throw new IllegalStateException(ended);
                    }
                }
                slowAcknowledged.incrementAndGet();
                return;
            }
            if (answeredAt != null && answeredAt.getAndSet(slot, Math.max(System.nanoTime() - begun, 1)) != 0) {
                answeredTwice.incrementAndGet();
            }
            acknowledged.incrementAndGet();
        }
    }

    private record Outcome(double seconds, long slowSent, List<long[]> late) {}

    void run() throws Exception {
        producer = new KafkaProducer<>(settings(), new ByteArraySerializer(), new ByteArraySerializer());
        long warmup = Long.parseLong(arguments.get("warmup"));
        long records = Long.parseLong(arguments.get("records"));
        Answers warm = new Answers(warmup);
        phase(warmup, warm);
        Main.sayAndWait("ready");
        Answers answers = new Answers(records);
        Outcome outcome = phase(records, answers);
        Main.sayAndWait("done");
        if (latencyFile != null) {
            writeLatencies(answers, outcome.late());
        }
        System.out.println("{\"seconds\":" + outcome.seconds() + ",\"sent\":" + records
                + ",\"acknowledged\":" + answers.acknowledged + ",\"failed\":" + answers.failed
                + ",\"answered_twice\":" + answers.answeredTwice
                + ",\"warmup_acknowledged\":" + warm.acknowledged
                + ",\"slow_sent\":" + outcome.slowSent()
                + ",\"first_error\":" + Main.quoted(firstError.get())
                + ",\"version\":" + Main.quoted(Main.version()) + "}");
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", arguments.get("compression"));
        if (arguments.containsKey("batch")) {
            int batch = Integer.parseInt(arguments.get("batch"));
            settings.put("batch.size", batch);
            // A request must have room for a batch.
            settings.put("max.request.size", Math.max(batch + 65_536, 1_048_576));
        }
        if (arguments.containsKey("linger")) {
            settings.put("linger.ms", arguments.get("linger"));
        }
        if (arguments.containsKey("buffer")) {
            settings.put("buffer.memory", arguments.get("buffer"));
        }
        return settings;
    }

    private Outcome phase(long records, Answers answers) throws Exception {
        List<Thread> senders = new ArrayList<>();
        List<long[]> late = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            int thread = number;
            long[] ofThread = rate > 0 ? new long[(int) (records / threads) + 1] : new long[0];
            late.add(ofThread);
            senders.add(new Thread(() -> send(thread, records, answers, ofThread)));
        }
        boolean[] isOver = {false};
        long[] slowSent = {0};
        Thread slow = new Thread(() -> slowSent[0] = sendSlow(answers, isOver));
        if (!slowTopic.isEmpty()) {
            slow.start();
        }
        senders.forEach(Thread::start);
        for (Thread sender : senders) {
            sender.join();
        }
        producer.flush();
        while (answers.acknowledged.get() + answers.failed.get() < records) {
            LockSupport.parkNanos(100_000);
        }
        double seconds = (System.nanoTime() - answers.begun) / 1e9;
        synchronized (isOver) {
            isOver[0] = true;
        }
        if (!slowTopic.isEmpty()) {
            slow.join();
        }
        producer.flush();
        while (answers.slowAcknowledged.get() < slowSent[0]) {
            LockSupport.parkNanos(1_000_000);
        }
        return new Outcome(seconds, slowSent[0], late);
    }

    private void send(int thread, long records, Answers answers, long[] late) {
        Integer partition = thread % partitions;
        int mask = payloads.length - 1;
        int sent = 0;
        for (long number = thread; number < records; number += threads) {
            if (rate > 0) {
                late[sent++] = waitUntil(answers.begun + (long) (number * 1e9 / rate));
            }
            byte[] value = payloads[(int) number & mask];
            int slot = (int) number;
            if (isNull) {
                answers.add(slot, null);
                continue;
            }
            Callback callback = (metadata, error) -> answers.add(slot, error);
            producer.send(new ProducerRecord<>(topic, partition, null, value), callback);
        }
    }

    private long sendSlow(Answers answers, boolean[] isOver) {
        long sent = 0;
        while (true) {
            synchronized (isOver) {
                if (isOver[0]) {
                    return sent;
                }
            }
            waitUntil(answers.begun + (long) (sent * 1e9 / slowRate));
            byte[] value = payloads[(int) sent & (payloads.length - 1)];
            Callback callback = (metadata, error) -> answers.add(SLOW, error);
            producer.send(new ProducerRecord<>(slowTopic, 0, null, value), callback);
            sent++;
        }
    }

    /** Returns the nanoseconds by which it was late. */
    private static long waitUntil(long due) {
        long wait = due - System.nanoTime();
        while (wait > 0) {
            LockSupport.parkNanos(wait);
            wait = due - System.nanoTime();
        }
        return Math.max(-wait, 0);
    }

    /** For each record: nanoseconds from the due time to the answer; then, for each: to the call. Little-endian. */
    private void writeLatencies(Answers answers, List<long[]> late) throws Exception {
        int count = answers.answeredAt.length();
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(latencyFile)))) {
            ByteBuffer word = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
            for (int number = 0; number < count; number++) {
                long due = (long) (number * 1e9 / rate);
                out.write(word.putLong(0, Math.max(answers.answeredAt.get(number) - due, 0)).array());
            }
            for (int thread = 0; thread < threads; thread++) {
                int sent = (count - thread + threads - 1) / threads;
                for (int i = 0; i < sent; i++) {
                    out.write(word.putLong(0, late.get(thread)[i]).array());
                }
            }
        }
    }
}
