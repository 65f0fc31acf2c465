// What the two entry points share: a metrics reporter that reports no metrics and forwards what clients push.
package ottla.telemetry;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Nothing here names a class that came with 4.2, so that older brokers load it. */
abstract class Plugin implements MetricsReporter {
    private static final Logger LOG = LoggerFactory.getLogger(Plugin.class);

    private volatile Settings settings;
    private volatile Forwarder forwarder;

    @Override
    public void configure(Map<String, ?> configs) {
        settings = Settings.of(configs);
        forwarder = new Forwarder(settings).start();
        LOG.info("Client telemetry is forwarded to {}", settings.target);
    }

    /** Never throws: the broker would answer INVALID_RECORD, and the client would not push again until it is restarted. */
    final void forward(AuthorizableRequestContext context, ClientTelemetryPayload payload, int pushIntervalMs) {
        Forwarder to = forwarder;
        if (to == null) {
            return;
        }
        try {
            to.forward(Push.of(context, payload, pushIntervalMs, settings.nodeId));
        } catch (RuntimeException error) {
            LOG.debug("A push could not be read", error);
        }
    }

    /** For tests. */
    final Forwarder forwarder() {
        return forwarder;
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
        Forwarder closed = forwarder;
        forwarder = null;
        if (closed != null) {
            closed.close();
        }
    }
}
