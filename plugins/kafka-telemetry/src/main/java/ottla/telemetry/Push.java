// One push of a client, as it waits to be forwarded.
package ottla.telemetry;

import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

final class Push {
    /** What a push costs besides its payload: objects, headers, the queue's own entry. */
    private static final int OVERHEAD_BYTES = 1024;

    /** A header of HTTP; names that clients choose are longer only by mistake or malice. */
    private static final int HEADER_LETTERS_MAX = 512;

    /** As the broker hands it over: OTLP MetricsData, decompressed. */
    final byte[] payload;
    final Map<String, String> headers;
    final long receivedNanos;

    private Push(byte[] payload, Map<String, String> headers, long receivedNanos) {
        this.payload = payload;
        this.headers = headers;
        this.receivedNanos = receivedNanos;
    }

    long bytes() {
        return (long) payload.length + OVERHEAD_BYTES;
    }

    /**
     * Copies what the broker may use again after the call.
     *
     * @param pushIntervalMs 0 where the broker does not tell (before 4.2)
     */
    static Push of(AuthorizableRequestContext context, ClientTelemetryPayload payload, int pushIntervalMs, String nodeId) {
        ByteBuffer data = payload.data().duplicate();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        Map<String, String> headers = new LinkedHashMap<>();
        put(headers, "Kafka-Client-Id", context.clientId());
        put(headers, "Kafka-Client-Instance-Id", String.valueOf(payload.clientInstanceId()));
        KafkaPrincipal principal = context.principal();
        put(headers, "Kafka-Principal", principal == null ? null : principal.toString());
        InetAddress address = context.clientAddress();
        put(headers, "Kafka-Client-Address", address == null ? null : address.getHostAddress());
        putSoftware(headers, context);
        put(headers, "Kafka-Node-Id", nodeId);
        put(headers, "Kafka-Push-Interval-Ms", pushIntervalMs > 0 ? Integer.toString(pushIntervalMs) : null);
        put(headers, "Kafka-Terminating", Boolean.toString(payload.isTerminating()));
        return new Push(bytes, headers, System.nanoTime());
    }

    /** The public interface does not tell the client's software; the broker's own context does. */
    private static void putSoftware(Map<String, String> headers, AuthorizableRequestContext context) {
        try {
            if (context instanceof RequestContext) {
                RequestContext own = (RequestContext) context;
                put(headers, "Kafka-Software-Name", own.clientInformation.softwareName());
                put(headers, "Kafka-Software-Version", own.clientInformation.softwareVersion());
            }
        } catch (LinkageError error) {
            // Another version of Kafka keeps it elsewhere: then it is not told.
        }
    }

    private static void put(Map<String, String> headers, String name, String value) {
        if (value != null && !value.isEmpty()) {
            headers.put(name, encoded(value));
        }
    }

    /** Headers are ASCII: the bytes of everything else, and of the percent sign itself, stand as %XX. */
    static String encoded(String value) {
        StringBuilder text = new StringBuilder(value.length());
        for (byte unit : value.getBytes(StandardCharsets.UTF_8)) {
            int code = unit & 0xff;
            String next = code > ' ' && code < 0x7f && code != '%' ? String.valueOf((char) code) : String.format("%%%02X", code);
            if (text.length() + next.length() > HEADER_LETTERS_MAX) {
                break;
            }
            text.append(next);
        }
        return text.toString();
    }
}
