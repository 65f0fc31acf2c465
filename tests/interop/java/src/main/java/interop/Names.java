package interop;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Principals of client certificates: each name that Kafka's own mapper gives to a subject gets an ACL for a topic, and a
 * client with the certificate must see exactly the topics of its name.
 *
 * <p>Listeners are lines of a file: address, rules; certificates are numbered PEM files, each with its private key.
 */
final class Names {
    private record Listener(String address, String rules) {
    }

    private record Certificate(Path store, String subject) {
    }

    private final Suite suite;
    private final String trust;
    private final List<Listener> listeners = new ArrayList<>();
    private final List<Certificate> certificates = new ArrayList<>();
    /** The topics of each name. */
    private final Map<String, Set<String>> topics = new HashMap<>();

    /** The arguments: trust store, file of listeners, folder of certificates. */
    Names(Suite suite, List<String> arguments) throws Exception {
        this.suite = suite;
        this.trust = arguments.get(0);
        for (String line : Files.readAllLines(Path.of(arguments.get(1)))) {
            String[] parts = line.split("\t", 2);
            listeners.add(new Listener(parts[0], parts[1]));
        }
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (int number = 0; ; number++) {
            Path store = Path.of(arguments.get(2), number + ".pem");
            if (!Files.exists(store)) {
                break;
            }
            // The private key comes first.
            String pem = Files.readString(store);
            String own = pem.substring(pem.indexOf("-----BEGIN CERTIFICATE"));
            try (InputStream bytes = new java.io.ByteArrayInputStream(own.getBytes("US-ASCII"))) {
                X509Certificate read = (X509Certificate) factory.generateCertificate(bytes);
                certificates.add(new Certificate(store, read.getSubjectX500Principal().getName()));
            }
        }
    }

    void run() throws Exception {
        List<NewTopic> created = new ArrayList<>();
        List<AclBinding> acls = new ArrayList<>();
        for (int listener = 0; listener < listeners.size(); listener++) {
            for (int number = 0; number < certificates.size(); number++) {
                String name = name(listener, number);
                String topic = "who-" + listener + "-" + number;
                if (name == null || !topics.computeIfAbsent(name, unused -> new TreeSet<>()).isEmpty()) {
                    continue;
                }
                topics.get(name).add(topic);
                created.add(new NewTopic(topic, 1, (short) 1));
                acls.add(new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
                        new AccessControlEntry("User:" + name, "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)));
            }
        }
        Suite.get(suite.admin.createTopics(created).all());
        Suite.get(suite.admin.createAcls(acls).all());
        for (int listener = 0; listener < listeners.size(); listener++) {
            for (int number = 0; number < certificates.size(); number++) {
                int at = listener;
                Certificate certificate = certificates.get(number);
                String name = name(listener, number);
                suite.run("rules " + listener + ", subject " + number + ", " + certificate.subject() + " is " + name,
                        () -> check(listeners.get(at), certificate, name));
            }
        }
    }

    /** What Kafka makes of a subject; null: no rule applies. */
    private String name(int listener, int number) {
        try {
            String rules = listeners.get(listener).rules();
            return SslPrincipalMapper.fromRules(rules).getName(certificates.get(number).subject());
        } catch (java.io.IOException error) {
            return null;
        }
    }

    private void check(Listener listener, Certificate certificate, String name) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", listener.address());
        settings.put("security.protocol", "SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", trust);
        settings.put("ssl.keystore.type", "PEM");
        settings.put("ssl.keystore.location", certificate.store().toString());
        int callMs = name == null ? 2_000 : 30_000;
        settings.put("default.api.timeout.ms", callMs);
        settings.put("request.timeout.ms", callMs);
        try (Admin admin = Admin.create(settings)) {
            if (name == null) {
                Suite.isA(TimeoutException.class, Suite.failure(admin.listTopics().names()));
                return;
            }
            // Apache Kafka's broker learns of ACLs a moment after its controller.
            Set<String> wanted = topics.get(name);
            Set<String> seen = new TreeSet<>();
            for (int attempt = 0; attempt < 20 && !seen.equals(wanted); attempt++) {
                seen = new TreeSet<>(Suite.get(admin.listTopics().names()));
                if (!seen.equals(wanted)) {
                    Thread.sleep(100);
                }
            }
            Suite.same(wanted, seen, "topics of " + name);
        }
    }
}
