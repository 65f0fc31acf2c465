// The plug-in against collectors that are away, slow, full of refusals or back again: a program that ends with 1 when something is wrong.
package ottla.telemetry;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.function.BooleanSupplier;
import java.util.function.IntUnaryOperator;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

public final class SelfTest {
    private static final int PAYLOAD_BYTES = 10_000;
    private static final Uuid INSTANCE = Uuid.randomUuid();

    public static void main(String[] arguments) throws Exception {
        Map<String, Case> cases = new java.util.LinkedHashMap<>();
        cases.put("a push arrives with all that is known of its client", SelfTest::arrives);
        cases.put("pushes arrive in the order in which they came", SelfTest::inOrder);
        cases.put("without a collector the queue keeps the newest and no more than its bytes", SelfTest::collectorAway);
        cases.put("a collector that does not answer holds nobody up", SelfTest::collectorSlow);
        cases.put("pushes go on when the collector comes back", SelfTest::collectorReturns);
        cases.put("what is refused is not sent again, what failed is", SelfTest::refusedAndFailed);
        cases.put("old pushes are dropped", SelfTest::tooOld);
        cases.put("a push that cannot be read is no error of the broker", SelfTest::unreadable);
        cases.put("settings that cannot be right are refused by name", SelfTest::badSettings);
        cases.put("brokers before 4.2 load the receiver", SelfTest::olderBroker);
        int failed = 0;
        for (Map.Entry<String, Case> one : cases.entrySet()) {
            try {
                one.getValue().run();
                System.out.println("ok      " + one.getKey());
            } catch (Throwable error) {
                failed++;
                System.out.println("FAILED  " + one.getKey() + ": " + error);
                error.printStackTrace(System.out);
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private interface Case {
        void run() throws Exception;
    }

    private static void arrives() throws Exception {
        try (Collector collector = new Collector(0, number -> 200)) {
            TelemetryExporter plugin = plugin(collector.port(), Map.of("node.id", "7"));
            plugin.clientTelemetryExporter().exportMetrics(context("örders 100%"), payload(payloadOf(42), true));
            await(() -> collector.received().size() == 1);
            Received received = collector.received().get(0);
            check(received.number == 42 && received.bytes == PAYLOAD_BYTES, "the payload arrived changed");
            check(received.path.equals("/v1/kafka/push"), received.path);
            for (String[] header : new String[][] {
                {"Kafka-Client-Id", "%C3%B6rders%20100%25"},
                {"Kafka-Client-Instance-Id", INSTANCE.toString()},
                {"Kafka-Principal", "User:CN=alice,OU=x"},
                {"Kafka-Client-Address", "127.0.0.1"},
                {"Kafka-Node-Id", "7"},
                {"Kafka-Push-Interval-Ms", "5000"},
                {"Kafka-Terminating", "true"},
                {"Content-Type", "application/x-protobuf"},
            }) {
                check(header[1].equals(received.headers.get(header[0].toLowerCase())), header[0] + ": " + received.headers);
            }
            plugin.close();
            // After that nothing is forwarded, and nothing fails.
            plugin.exportMetrics(context("late"), payload(payloadOf(43), false));
        }
    }

    private static void inOrder() throws Exception {
        try (Collector collector = new Collector(0, number -> 200)) {
            TelemetryExporter plugin = plugin(collector.port(), Map.of());
            export(plugin, 0, 200);
            await(() -> collector.received().size() == 200);
            for (int number = 0; number < 200; number++) {
                check(collector.received().get(number).number == number, "push " + number + " is out of order");
            }
            plugin.close();
        }
    }

    private static void collectorAway() throws Exception {
        int port = freePort();
        TelemetryExporter plugin = plugin(port, Map.of(Settings.QUEUE_BYTES, 1_000_000));
        Forwarder forwarder = plugin.forwarder();
        for (int number = 0; number < 5_000; number++) {
            export(plugin, number, number + 1);
            check(forwarder.waitingBytes() <= 1_000_000, forwarder.waitingBytes() + " bytes wait");
        }
        // One may be in the forwarder's hands.
        long held = 1_000_000 / (PAYLOAD_BYTES + 1024);
        check(forwarder.waiting() >= held - 1 && forwarder.waiting() <= held, forwarder.waiting() + " wait");
        check(forwarder.dropped() >= 5_000 - held - 1, forwarder.dropped() + " dropped");
        try (Collector collector = new Collector(port, number -> 200)) {
            // The last one to wait may still be on its way.
            await(() -> forwarder.forwarded() + forwarder.dropped() == 5_000);
            List<Received> received = collector.received();
            check(received.get(received.size() - 1).number == 4_999, "the newest is gone");
            check(received.get(0).number >= 4_999 - held - 1, "an old one was kept: " + received.get(0).number);
        }
        plugin.close();
    }

    private static void collectorSlow() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        try (Collector collector = new Collector(0, number -> {
            waitFor(gate);
            return 200;
        })) {
            TelemetryExporter plugin = plugin(collector.port(), Map.of(Settings.QUEUE_BYTES, 500_000, Settings.TIMEOUT_MS, 60_000));
            // All of this returns while the collector has not answered once.
            export(plugin, 0, 2_000);
            check(plugin.forwarder().forwarded() == 0, "it was not slow");
            check(plugin.forwarder().waitingBytes() <= 500_000, plugin.forwarder().waitingBytes() + " bytes wait");
            gate.countDown();
            await(() -> plugin.forwarder().waiting() == 0 && plugin.forwarder().forwarded() > 1);
            await(() -> plugin.forwarder().forwarded() + plugin.forwarder().dropped() == 2_000);
            plugin.close();
        }
    }

    private static void collectorReturns() throws Exception {
        int port = freePort();
        TelemetryExporter plugin = plugin(port, Map.of());
        try (Collector collector = new Collector(port, number -> 200)) {
            export(plugin, 0, 3);
            await(() -> plugin.forwarder().forwarded() == 3);
        }
        export(plugin, 3, 6);
        try (Collector collector = new Collector(port, number -> 200)) {
            await(() -> plugin.forwarder().forwarded() == 6);
            check(collector.received().get(0).number == 3, "push 3 is lost");
            check(plugin.forwarder().dropped() == 0, "some were dropped");
        }
        plugin.close();
    }

    private static void refusedAndFailed() throws Exception {
        Map<Integer, Integer> asked = Collections.synchronizedMap(new HashMap<>());
        try (Collector collector = new Collector(0, number -> {
            int times = asked.merge(number, 1, Integer::sum);
            return number == 0 ? 400 : times == 1 ? 503 : 200;
        })) {
            TelemetryExporter plugin = plugin(collector.port(), Map.of());
            export(plugin, 0, 2);
            await(() -> plugin.forwarder().forwarded() == 1);
            check(asked.get(0) == 1, "what was refused was sent again");
            check(asked.get(1) == 2, "what failed was not sent again");
            check(plugin.forwarder().refused() == 1, plugin.forwarder().refused() + " refused");
            plugin.close();
        }
    }

    private static void tooOld() throws Exception {
        int port = freePort();
        TelemetryExporter plugin = plugin(port, Map.of(Settings.AGE_MAX_MS, 1_000));
        export(plugin, 0, 5);
        await(() -> plugin.forwarder().dropped() == 5);
        check(plugin.forwarder().waiting() == 0, "some are kept");
        plugin.close();
    }

    private static void unreadable() throws Exception {
        TelemetryExporter plugin = plugin(freePort(), Map.of());
        plugin.exportMetrics(context("orders"), new ClientTelemetryPayload() {
            @Override
            public Uuid clientInstanceId() {
                return INSTANCE;
            }

            @Override
            public boolean isTerminating() {
                return false;
            }

            @Override
            public String contentType() {
                return "OTLP";
            }

            @Override
            public ByteBuffer data() {
                throw new IllegalStateException("cannot be decompressed");
            }
        });
        check(plugin.forwarder().waiting() == 0, "something waits");
        plugin.close();
    }

    private static void badSettings() {
        for (Object[] one : new Object[][] {
            {Settings.COLLECTOR, "collector:9645"},
            {Settings.COLLECTOR, "http://"},
            {Settings.COLLECTOR, "http://a b"},
            {Settings.QUEUE_BYTES, "many"},
            {Settings.QUEUE_BYTES, 1},
            {Settings.AGE_MAX_MS, -5},
        }) {
            try (TelemetryExporter plugin = new TelemetryExporter()) {
                plugin.configure(Map.of((String) one[0], one[1]));
                throw new AssertionError(one[0] + "=" + one[1] + " was taken");
            } catch (ConfigException error) {
                check(error.getMessage().contains((String) one[0]), error.getMessage());
            }
        }
        check(Settings.of(Map.of()).target.equals(URI.create("http://127.0.0.1:9645/v1/kafka/push")), "the usual target");
    }

    /** What the broker of 3.7 has: everything of the class path but what came with 4.2. */
    private static void olderBroker() throws Exception {
        ClassLoader older = new ClassLoader(SelfTest.class.getClassLoader()) {
            @Override
            protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
                if (name.matches("org\\.apache\\.kafka\\.server\\.telemetry\\.ClientTelemetry(Exporter|ExporterProvider|Context)")) {
                    throw new ClassNotFoundException(name);
                }
                if (!name.startsWith("ottla.")) {
                    return super.loadClass(name, resolve);
                }
                try (InputStream file = getResourceAsStream(name.replace('.', '/') + ".class")) {
                    byte[] bytes = file.readAllBytes();
                    return defineClass(name, bytes, 0, bytes.length);
                } catch (IOException error) {
                    throw new ClassNotFoundException(name, error);
                }
            }
        };
        try (Collector collector = new Collector(0, number -> 200)) {
            Class<?> receiver = older.loadClass("ottla.telemetry.TelemetryReceiver");
            org.apache.kafka.common.metrics.MetricsReporter reporter =
                (org.apache.kafka.common.metrics.MetricsReporter) receiver.getDeclaredConstructor().newInstance();
            reporter.configure(settings(collector.port(), Map.of("broker.id", 3)));
            ((org.apache.kafka.server.telemetry.ClientTelemetry) reporter).clientReceiver()
                .exportMetrics(requestContext("old"), payload(payloadOf(9), false));
            await(() -> collector.received().size() == 1);
            Received received = collector.received().get(0);
            check("3".equals(received.headers.get("kafka-node-id")), received.headers.toString());
            check(!received.headers.containsKey("kafka-push-interval-ms"), "an interval was made up");
            reporter.close();
        }
        try {
            Class.forName("ottla.telemetry.TelemetryExporter", true, older);
            throw new AssertionError("the newer entry point loads too: the older broker is not imitated");
        } catch (NoClassDefFoundError expected) {
            // It names what 3.7 does not have.
        }
    }

    private static Map<String, Object> settings(int port, Map<String, ?> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put(Settings.COLLECTOR, "http://127.0.0.1:" + port);
        return settings;
    }

    private static TelemetryExporter plugin(int port, Map<String, ?> more) {
        TelemetryExporter plugin = new TelemetryExporter();
        plugin.configure(settings(port, more));
        return plugin;
    }

    private static void export(TelemetryExporter plugin, int from, int to) {
        for (int number = from; number < to; number++) {
            plugin.exportMetrics(context("orders"), payload(payloadOf(number), false));
        }
    }

    private static ByteBuffer payloadOf(int number) {
        ByteBuffer data = ByteBuffer.allocate(PAYLOAD_BYTES);
        data.putInt(0, number);
        return data;
    }

    private static ClientTelemetryPayload payload(ByteBuffer data, boolean isTerminating) {
        return new ClientTelemetryPayload() {
            @Override
            public Uuid clientInstanceId() {
                return INSTANCE;
            }

            @Override
            public boolean isTerminating() {
                return isTerminating;
            }

            @Override
            public String contentType() {
                return "OTLP";
            }

            @Override
            public ByteBuffer data() {
                return data;
            }
        };
    }

    private static ClientTelemetryContext context(String clientId) {
        return new ClientTelemetryContext() {
            @Override
            public int pushIntervalMs() {
                return 5_000;
            }

            @Override
            public AuthorizableRequestContext authorizableRequestContext() {
                return requestContext(clientId);
            }
        };
    }

    private static AuthorizableRequestContext requestContext(String clientId) {
        return new AuthorizableRequestContext() {
            @Override
            public String listenerName() {
                return "PLAINTEXT";
            }

            @Override
            public SecurityProtocol securityProtocol() {
                return SecurityProtocol.PLAINTEXT;
            }

            @Override
            public KafkaPrincipal principal() {
                return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "CN=alice,OU=x");
            }

            @Override
            public InetAddress clientAddress() {
                return InetAddress.getLoopbackAddress();
            }

            @Override
            public int requestType() {
                return 72;
            }

            @Override
            public int requestVersion() {
                return 0;
            }

            @Override
            public String clientId() {
                return clientId;
            }

            @Override
            public int correlationId() {
                return 1;
            }
        };
    }

    private static final class Received {
        final int number;
        final int bytes;
        final String path;
        final Map<String, String> headers;

        Received(int number, int bytes, String path, Map<String, String> headers) {
            this.number = number;
            this.bytes = bytes;
            this.path = path;
            this.headers = headers;
        }
    }

    /** Answers every push with the status that is asked for; keeps those that it took. */
    private static final class Collector implements AutoCloseable {
        private final HttpServer server;
        private final List<Received> received = Collections.synchronizedList(new ArrayList<>());

        Collector(int port, IntUnaryOperator statusOf) throws IOException {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 50);
            server.setExecutor(Executors.newCachedThreadPool(task -> {
                Thread thread = new Thread(task);
                thread.setDaemon(true);
                return thread;
            }));
            server.createContext("/", exchange -> answer(exchange, statusOf));
            server.start();
        }

        private void answer(HttpExchange exchange, IntUnaryOperator statusOf) throws IOException {
            byte[] body = exchange.getRequestBody().readAllBytes();
            int number = ByteBuffer.wrap(body).getInt();
            int status = statusOf.applyAsInt(number);
            if (status == 200) {
                Map<String, String> headers = new HashMap<>();
                exchange.getRequestHeaders().forEach((name, values) -> headers.put(name.toLowerCase(), values.get(0)));
                received.add(new Received(number, body.length, exchange.getRequestURI().getPath(), headers));
            }
            exchange.sendResponseHeaders(status, -1);
            exchange.close();
        }

        int port() {
            return server.getAddress().getPort();
        }

        List<Received> received() {
            synchronized (received) {
                return new ArrayList<>(received);
            }
        }

        @Override
        public void close() {
            server.stop(0);
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static void waitFor(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** A hang is a failure; how long it takes otherwise is not looked at. */
    private static void await(BooleanSupplier condition) throws InterruptedException {
        long started = System.nanoTime();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() - started < 60_000_000_000L, "nothing happened for a minute");
            Thread.sleep(5);
        }
    }

    private static void check(boolean holds, String problem) {
        if (!holds) {
            throw new AssertionError(problem);
        }
    }
}
