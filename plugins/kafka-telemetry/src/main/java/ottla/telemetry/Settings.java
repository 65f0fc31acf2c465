// The plug-in's keys in server.properties.
package ottla.telemetry;

import java.net.URI;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;

final class Settings {
    static final String COLLECTOR = "ottla.telemetry.collector";
    static final String QUEUE_BYTES = "ottla.telemetry.queue.bytes";
    static final String AGE_MAX_MS = "ottla.telemetry.age.max.ms";
    static final String TIMEOUT_MS = "ottla.telemetry.timeout.ms";

    /** Where pushes are posted. */
    final URI target;
    final long queueBytes;
    final long ageMaxMs;
    final long timeoutMs;
    /** Empty where the broker's settings do not tell. */
    final String nodeId;

    private Settings(URI target, long queueBytes, long ageMaxMs, long timeoutMs, String nodeId) {
        this.target = target;
        this.queueBytes = queueBytes;
        this.ageMaxMs = ageMaxMs;
        this.timeoutMs = timeoutMs;
        this.nodeId = nodeId;
    }

    static Settings of(Map<String, ?> configs) {
        Object node = configs.get("node.id");
        if (node == null || node.toString().equals("-1")) {
            node = configs.get("broker.id");
        }
        return new Settings(
            target(configs),
            number(configs, QUEUE_BYTES, 16L << 20, 64L << 10),
            number(configs, AGE_MAX_MS, 60_000, 1_000),
            number(configs, TIMEOUT_MS, 5_000, 100),
            node == null ? "" : node.toString());
    }

    private static URI target(Map<String, ?> configs) {
        Object value = configs.get(COLLECTOR);
        String text = value == null ? "http://127.0.0.1:9645" : value.toString().trim();
        try {
            URI address = URI.create(text);
            boolean isHttp = "http".equals(address.getScheme()) || "https".equals(address.getScheme());
            if (!isHttp || address.getHost() == null) {
                throw new ConfigException(COLLECTOR, text, "must be http://HOST:PORT, where ottla doctor collect listens");
            }
            return address.resolve("/v1/kafka/push");
        } catch (IllegalArgumentException error) {
            throw new ConfigException(COLLECTOR, text, "must be http://HOST:PORT: " + error.getMessage());
        }
    }

    private static long number(Map<String, ?> configs, String key, long usual, long min) {
        Object value = configs.get(key);
        if (value == null) {
            return usual;
        }
        try {
            long number = Long.parseLong(value.toString().trim());
            if (number < min) {
                throw new ConfigException(key, value, "must be at least " + min);
            }
            return number;
        } catch (NumberFormatException error) {
            throw new ConfigException(key, value, "must be a whole number");
        }
    }
}
