package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Connections of every security protocol: a record through each that must work, and how the others fail.
 *
 * <p>Cases are lines of a file: name, address, protocol, trust store, key store, mechanism, user, password, topic and
 * what to expect, separated by tabs; a minus is nothing. Stores are PEM files.
 */
final class Secured {
    private static final int CALL_MS = 20_000;

    private record Connection(
            String name, String address, String protocol, String trust, String key, String mechanism, String user,
            String password, String topic, String expected) {
        static Connection parse(String line) {
            String[] parts = line.split("\t", -1);
            return new Connection(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7],
                    parts[8], parts[9]);
        }

        Map<String, Object> settings() {
            Map<String, Object> map = new HashMap<>();
            map.put("bootstrap.servers", address);
            map.put("security.protocol", protocol);
            map.put("request.timeout.ms", "10000");
            if (!trust.equals("-")) {
                map.put("ssl.truststore.type", "PEM");
                map.put("ssl.truststore.location", trust);
            }
            if (!key.equals("-")) {
                map.put("ssl.keystore.type", "PEM");
                map.put("ssl.keystore.location", key);
            }
            if (mechanism.equals("OAUTHBEARER")) {
                OauthSettings.put(map, password);
            } else if (!mechanism.equals("-")) {
                String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
                map.put("sasl.mechanism", mechanism);
                map.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username="
                        + quoted(user) + " password=" + quoted(password) + ";");
            }
            return map;
        }

        String[] with(String... more) {
            Map<String, Object> map = settings();
            for (int i = 0; i < more.length; i += 2) {
                map.put(more[i], more[i + 1]);
            }
            List<String> flat = new ArrayList<>();
            map.forEach((key, value) -> flat.addAll(List.of(key, value.toString())));
            return flat.toArray(String[]::new);
        }
    }

    private Secured() {
    }

    static void run(Suite suite, String file) throws IOException {
        for (String line : Files.readAllLines(Path.of(file))) {
            Connection connection = Connection.parse(line);
            suite.run(connection.name(), () -> {
                switch (connection.expected()) {
                    case "works" -> exchange(suite, connection);
                    case "renewed" -> renew(suite, connection);
                    case "denied" -> denied(suite, connection);
                    default -> refused(connection);
                }
            });
        }
    }

    /** A record there and back, and a commit. */
    private static void exchange(Suite suite, Connection connection) throws Exception {
        RecordMetadata sent;
        String value = "value-" + System.nanoTime();
        try (KafkaProducer<String, String> producer = suite.producer(connection.with())) {
            sent = producer.send(new ProducerRecord<>(connection.topic(), 0, "key", value))
                    .get(60, TimeUnit.SECONDS);
        }
        TopicPartition partition = Suite.partition(connection.topic(), 0);
        String[] settings = connection.with("group.id", connection.topic());
        try (KafkaConsumer<String, String> consumer = suite.consumer(settings)) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, sent.offset());
            Suite.same(value, Suite.take(consumer, 1).get(0).value(), "value");
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(sent.offset() + 1)));
        }
    }

    /** KIP-368: a connection outlives three sessions. */
    private static void renew(Suite suite, Connection connection) throws Exception {
        try (KafkaProducer<String, String> producer = suite.producer(connection.with())) {
            producer.send(new ProducerRecord<>(connection.topic(), "key", "first")).get(60, TimeUnit.SECONDS);
            double connections = total(producer, "connection-creation-total");
            Suite.eventually("three sessions are extended", () -> {
                producer.send(new ProducerRecord<>(connection.topic(), "key", "more")).get(60, TimeUnit.SECONDS);
                return total(producer, "successful-reauthentication-total") >= 3;
            });
            Suite.same(connections, total(producer, "connection-creation-total"), "connections");
        }
    }

    private static void denied(Suite suite, Connection connection) throws Exception {
        try (KafkaProducer<String, String> producer = suite.producer(connection.with())) {
            Throwable failure = Suite.failure(producer.send(new ProducerRecord<>(connection.topic(), "key", "value")));
            // For the topic, or for the producer's id, which takes permission to write to any topic.
            Suite.isA(AuthorizationException.class, failure);
        } catch (KafkaException failure) {
            // Denied before the record was sent: the metadata of the topic, or the producer's id, whose
            // refusal is the cause of another exception.
            boolean isOfMetadata = failure instanceof AuthorizationException;
            Suite.isA(AuthorizationException.class, isOfMetadata ? failure : failure.getCause());
        }
    }

    private static void refused(Connection connection) throws Exception {
        Map<String, Object> settings = connection.settings();
        int callMs = connection.expected().equals("unserved") ? 3_000 : CALL_MS;
        settings.put("default.api.timeout.ms", callMs);
        settings.put("request.timeout.ms", Math.min(callMs, 10_000));
        Throwable failure;
        try (Admin admin = Admin.create(settings)) {
            failure = Suite.failure(admin.listTopics().names());
        }
        String text = text(failure);
        switch (connection.expected()) {
            case "untrusted" -> certificate(failure, text, "unable to find valid certification path");
            case "misnamed" -> certificate(failure, text, "No subject alternative");
            case "expired" -> certificate(failure, text, "NotAfter");
            // The alert reaches the client as the answer to its certificate.
            case "certificate" -> certificate(failure, text, "Received fatal alert");
            case "password" -> Suite.isA(SaslAuthenticationException.class, failure);
            case "token" -> Suite.isA(SaslAuthenticationException.class, failure);
            // The broker closes without a byte, so the client tries again until its time is up.
            case "unserved" -> Suite.isA(TimeoutException.class, failure);
            default -> throw new IllegalArgumentException(connection.expected());
        }
    }

    private static void certificate(Throwable failure, String text, String wanted) {
        Suite.isA(SslAuthenticationException.class, failure);
        Suite.check(text.contains(wanted), "no `" + wanted + "` in " + text);
    }

    private static String text(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable at = failure; at != null; at = at.getCause()) {
            text.append(at).append(" / ");
        }
        return text.toString();
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static double total(KafkaProducer<String, String> producer, String name) {
        return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals(name))
                .filter(metric -> metric.metricName().group().equals("producer-metrics"))
                .mapToDouble(metric -> (Double) metric.metricValue())
                .sum();
    }
}
