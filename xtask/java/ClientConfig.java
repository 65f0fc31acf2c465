import java.nio.charset.StandardCharsets;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Prints how Apache Kafka defines the settings of its clients ("keys": client, name, type, default, range), and what its
 * clients answer to settings ("texts": client, the error text or "ok", then key=value each).
 */
public class ClientConfig {
    static final String BOOT = "bootstrap.servers=127.0.0.1:1";
    static final String SASL = "security.protocol=SASL_PLAINTEXT";

    static final List<String[]> CASES = List.of(
        new String[] {"producer"},
        new String[] {"producer", BOOT},
        new String[] {"producer", "bootstrap.servers="},
        new String[] {"producer", "bootstrap.servers=a:1,a:1"},
        new String[] {"producer", "bootstrap.servers=a:1,,b:2"},
        new String[] {"producer", "bootstrap.servers=localhost"},
        new String[] {"producer", "bootstrap.servers=localhost:"},
        new String[] {"producer", "bootstrap.servers=localhost:http"},
        new String[] {"producer", "bootstrap.servers=local host:9092"},
        new String[] {"producer", "bootstrap.servers=127.0.0.1:65536"},
        new String[] {"producer", "bootstrap.servers=127.0.0.1:99999999999"},
        new String[] {"producer", "bootstrap.servers=[::1]:9092"},
        new String[] {"producer", "bootstrap.servers=::1:9092"},
        new String[] {"producer", "bootstrap.servers=PLAINTEXT://127.0.0.1:9092"},
        new String[] {"producer", "bootstrap.servers=user@127.0.0.1:9092"},
        new String[] {"producer", "bootstrap.servers=127.0.0.1:-1"},
        new String[] {"admin", "bootstrap.servers="},
        new String[] {"admin"},
        new String[] {"consumer"},
        new String[] {"producer", BOOT, "linger.ms=-1"},
        new String[] {"producer", BOOT, "linger.ms=abc"},
        new String[] {"producer", BOOT, "linger.ms= 7 "},
        new String[] {"producer", BOOT, "linger.ms=+7"},
        new String[] {"producer", BOOT, "linger.ms=0x7"},
        new String[] {"producer", BOOT, "linger.ms="},
        new String[] {"producer", BOOT, "linger.ms=1.5"},
        new String[] {"producer", BOOT, "linger.ms=99999999999999999999"},
        new String[] {"producer", BOOT, "batch.size=2147483648"},
        new String[] {"producer", BOOT, "batch.size=0"},
        new String[] {"producer", BOOT, "retries=-1"},
        new String[] {"producer", BOOT, "acks=2"},
        new String[] {"producer", BOOT, "acks=ALL"},
        new String[] {"producer", BOOT, "acks=-1"},
        new String[] {"producer", BOOT, "enable.idempotence=yes"},
        new String[] {"producer", BOOT, "enable.idempotence=TRUE"},
        new String[] {"producer", BOOT, "enable.idempotence=true", "acks=1"},
        new String[] {"producer", BOOT, "acks=1"},
        new String[] {"producer", BOOT, "enable.idempotence=true", "retries=0"},
        new String[] {"producer", BOOT, "retries=0"},
        new String[] {"producer", BOOT, "enable.idempotence=true", "max.in.flight.requests.per.connection=6"},
        new String[] {"producer", BOOT, "max.in.flight.requests.per.connection=6"},
        new String[] {"producer", BOOT, "enable.idempotence=false", "max.in.flight.requests.per.connection=6"},
        new String[] {"producer", BOOT, "max.in.flight.requests.per.connection=0"},
        new String[] {"producer", BOOT, "delivery.timeout.ms=30000", "linger.ms=1"},
        new String[] {"producer", BOOT, "delivery.timeout.ms=30005"},
        new String[] {"producer", BOOT, "linger.ms=9223372036854775807"},
        new String[] {"producer", BOOT, "linger.ms=9223372036854775807", "delivery.timeout.ms=2147483647"},
        new String[] {"producer", BOOT, "compression.type=brotli"},
        new String[] {"producer", BOOT, "compression.type=GZIP"},
        new String[] {"producer", BOOT, "compression.gzip.level=0"},
        new String[] {"producer", BOOT, "compression.gzip.level=10"},
        new String[] {"producer", BOOT, "compression.gzip.level=-1"},
        new String[] {"producer", BOOT, "compression.lz4.level=18"},
        new String[] {"producer", BOOT, "compression.zstd.level=23"},
        new String[] {"producer", BOOT, "compression.zstd.level=-131073"},
        new String[] {"producer", BOOT, "partitioner.class=org.example.Nothing"},
        new String[] {"producer", BOOT, "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        new String[] {"producer", BOOT, "metadata.max.idle.ms=4999"},
        new String[] {"producer", BOOT, "metadata.recovery.strategy=NONE"},
        new String[] {"producer", BOOT, "metadata.recovery.strategy=never"},
        new String[] {"producer", BOOT, "client.dns.lookup=default"},
        new String[] {"producer", BOOT, "metrics.num.samples=0"},
        new String[] {"producer", BOOT, "metrics.recording.level=info"},
        new String[] {"producer", BOOT, "send.buffer.bytes=-2"},
        new String[] {"producer", BOOT, "transactional.id="},
        new String[] {"producer", BOOT, "sasl.login.refresh.window.factor=0.4"},
        new String[] {"producer", BOOT, "sasl.login.refresh.window.factor=1.5"},
        new String[] {"producer", BOOT, "sasl.login.refresh.window.jitter=x"},
        new String[] {"producer", BOOT, "sasl.login.refresh.buffer.seconds=40000"},
        new String[] {"producer", BOOT, "sasl.oauthbearer.assertion.algorithm=none"},
        new String[] {"producer", BOOT, "security.protocol=TLS"},
        new String[] {"producer", BOOT, "security.protocol=plaintext"},
        new String[] {"producer", BOOT, SASL, "sasl.mechanism="},
        new String[] {"producer", BOOT, SASL, "sasl.mechanism=PLAIN",
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";"},
        new String[] {"producer", BOOT, SASL, "sasl.mechanism=SCRAM-SHA-512",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule REQUIRED username='a' password=\"b;=c\" ;"},
        new String[] {"producer", BOOT, "ssl.enabled.protocols=TLSv1.2,TLSv1.2"},
        new String[] {"consumer", BOOT, "enable.auto.commit=true"},
        new String[] {"consumer", BOOT, "enable.auto.commit=false"},
        new String[] {"consumer", BOOT, "group.id=g"},
        new String[] {"consumer", BOOT, "group.id="},
        new String[] {"consumer", BOOT, "group.id= "},
        new String[] {"consumer", BOOT, "group.id=g", "session.timeout.ms=3000"},
        new String[] {"consumer", BOOT, "group.id=g", "heartbeat.interval.ms=45000"},
        new String[] {"consumer", BOOT, "session.timeout.ms=3000"},
        new String[] {"consumer", BOOT, "group.id=g", "group.instance.id="},
        new String[] {"consumer", BOOT, "group.id=g", "group.instance.id=a b"},
        new String[] {"consumer", BOOT, "group.id=g", "group.instance.id=.."},
        new String[] {"consumer", BOOT, "group.id=g", "group.instance.id=a-b_c.D"},
        new String[] {"consumer", BOOT, "group.protocol=raft"},
        new String[] {"consumer", BOOT, "group.protocol=Classic"},
        new String[] {"consumer", BOOT, "group.remote.assignor=uniform"},
        new String[] {"consumer", BOOT, "share.acquire.mode=record_limit"},
        new String[] {"consumer", BOOT, "share.acquire.mode=x"},
        new String[] {"consumer", BOOT, "share.acknowledgement.mode=x"},
        new String[] {"consumer", BOOT, "auto.offset.reset=smallest"},
        new String[] {"consumer", BOOT, "auto.offset.reset=Earliest"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration:PT1H"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration:P1DT0.5S"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration:-PT1H"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration:"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration"},
        new String[] {"consumer", BOOT, "auto.offset.reset=by_duration:1h"},
        new String[] {"consumer", BOOT, "isolation.level=serializable"},
        new String[] {"consumer", BOOT, "isolation.level=read_committed"},
        new String[] {"consumer", BOOT, "max.poll.records=0"},
        new String[] {"consumer", BOOT, "max.poll.interval.ms=0"},
        new String[] {"consumer", BOOT, "fetch.min.bytes=-1"},
        new String[] {"consumer", BOOT, "fetch.max.bytes=-1"},
        new String[] {"consumer", BOOT, "group.id=g", "partition.assignment.strategy=org.example.Nothing"},
        new String[] {"consumer", BOOT, "group.id=g", "partition.assignment.strategy="},
        new String[] {"consumer", BOOT, "group.id=g",
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.StickyAssignor, org.apache.kafka.clients.consumer.RangeAssignor"},
        new String[] {"consumer", BOOT, "group.id=g",
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.RangeAssignor"},
        new String[] {"admin", BOOT, "default.api.timeout.ms=-1"},
        new String[] {"admin", BOOT, "request.timeout.ms=60001"},
        new String[] {"admin", BOOT, "reconnect.backoff.ms=-1"},
        new String[] {"admin", BOOT, "retries=2147483648"});

    static void printKeys(String client, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            if (key.internalConfig)
                continue;
            String defaultValue = !key.hasDefault() ? "required"
                : key.defaultValue == null ? "null" : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            String range = key.validator == null ? "" : key.validator.toString();
            System.out.println(String.join("\t", client, key.name, key.type.toString(), defaultValue, range));
        }
    }

    static String said(String[] settings) {
        Properties properties = new Properties();
        for (int i = 1; i < settings.length; i++) {
            int at = settings[i].indexOf('=');
            properties.put(settings[i].substring(0, at), settings[i].substring(at + 1));
        }
        try {
            switch (settings[0]) {
                case "producer" ->
                    new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer()).close(Duration.ZERO);
                case "consumer" ->
                    new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer()).close(Duration.ZERO);
                default -> Admin.create(properties).close(Duration.ZERO);
            }
            return "ok";
        } catch (Throwable error) {
            while (error.getCause() != null && error.getMessage() != null && error.getMessage().startsWith("Failed "))
                error = error.getCause();
            return error.getMessage();
        }
    }

    public static void main(String[] arguments) {
        System.setOut(new PrintStream(System.out, true, StandardCharsets.UTF_8));
        if (arguments[0].equals("keys")) {
            printKeys("producer", ProducerConfig.configDef());
            printKeys("consumer", ConsumerConfig.configDef());
            printKeys("admin", AdminClientConfig.configDef());
            return;
        }
        for (String[] settings : CASES) {
            StringBuilder line = new StringBuilder(settings[0] + "\t" + said(settings));
            for (int i = 1; i < settings.length; i++)
                line.append('\t').append(settings[i]);
            System.out.println(line);
        }
        System.exit(0);
    }
}
