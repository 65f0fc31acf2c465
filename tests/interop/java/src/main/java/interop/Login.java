package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedSaslMechanismException;

/** SASL: records through authenticated connections, sessions that end meanwhile, and wrong credentials. */
final class Login {
    private final Suite suite;
    private final String address;
    private final String mechanism;
    private final String user;
    private final String password;

    /** The arguments: address of the listener with SASL, mechanism, user, password. */
    Login(Suite suite, List<String> arguments) {
        this.suite = suite;
        this.address = arguments.get(0);
        this.mechanism = arguments.get(1);
        this.user = arguments.get(2);
        this.password = arguments.get(3);
    }

    void run() {
        suite.run("records", this::records);
        suite.run("sessions", this::sessions);
        suite.run("wrong password", () -> refused(mechanism, user, "wrong"));
        suite.run("unknown user", () -> refused(mechanism, "mallory", password));
        suite.run("mechanism not offered", this::notOffered);
    }

    private void records() throws Exception {
        String topic = topic("records");
        try (KafkaProducer<String, String> producer = suite.producer(settings(mechanism, user, password))) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key", "value");
            Suite.same(0L, producer.send(record).get(60, TimeUnit.SECONDS).offset(), "offset");
        }
        String[] settings = settings(mechanism, user, password, "group.id", topic);
        try (KafkaConsumer<String, String> consumer = suite.consumer(settings)) {
            consumer.subscribe(List.of(topic));
            Suite.same("value", Suite.take(consumer, 1).get(0).value(), "value");
        }
    }

    /** KIP-368: the client extends its sessions on the connections that it has. */
    private void sessions() throws Exception {
        String topic = topic("sessions");
        try (KafkaProducer<String, String> producer = suite.producer(settings(mechanism, user, password))) {
            producer.send(new ProducerRecord<>(topic, "key", "first")).get(60, TimeUnit.SECONDS);
            double connections = total(producer, "connection-creation-total");
            Suite.eventually("two sessions are extended", () -> {
                producer.send(new ProducerRecord<>(topic, "key", "more")).get(60, TimeUnit.SECONDS);
                return total(producer, "successful-reauthentication-total") >= 2;
            });
            Suite.same(connections, total(producer, "connection-creation-total"), "connections");
        }
    }

    private void refused(String mechanism, String user, String password) throws Exception {
        try (Admin admin = Admin.create(map(settings(mechanism, user, password)))) {
            Throwable failure = Suite.failure(admin.listTopics().names());
            Suite.isA(SaslAuthenticationException.class, failure);
            Suite.check(failure.getMessage().startsWith("Authentication failed"), failure.getMessage());
        }
    }

    private void notOffered() throws Exception {
        String[] settings = settings("OAUTHBEARER", user, password,
                "sasl.jaas.config",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                        + "unsecuredLoginStringClaim_sub=\"alice\";");
        try (Admin admin = Admin.create(map(settings))) {
            Suite.isA(UnsupportedSaslMechanismException.class, Suite.failure(admin.listTopics().names()));
        }
    }

    private String topic(String purpose) throws Exception {
        String topic = "login-java-" + purpose + "-" + mechanism;
        suite.createTopic(topic, 1);
        return topic;
    }

    private String[] settings(String mechanism, String user, String password, String... more) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String jaas = "org.apache.kafka.common.security." + module + " required username=" + quoted(user)
                + " password=" + quoted(password) + ";";
        List<String> settings = new ArrayList<>(List.of(
                "bootstrap.servers", address,
                "security.protocol", "SASL_PLAINTEXT",
                "sasl.mechanism", mechanism,
                "sasl.jaas.config", jaas));
        settings.addAll(Arrays.asList(more));
        return settings.toArray(String[]::new);
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static Map<String, Object> map(String... settings) {
        Map<String, Object> map = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) {
            map.put(settings[i], settings[i + 1]);
        }
        map.put("request.timeout.ms", "20000");
        map.put("default.api.timeout.ms", "20000");
        return map;
    }

    private static double total(KafkaProducer<String, String> producer, String name) {
        return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals(name))
                .filter(metric -> metric.metricName().group().equals("producer-metrics"))
                .mapToDouble(metric -> (Double) metric.metricValue())
                .sum();
    }
}
