// The entry point for brokers of 3.7 to 4.1: metric.reporters=ottla.telemetry.TelemetryReceiver
package ottla.telemetry;

import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** These brokers do not tell the push interval. */
public final class TelemetryReceiver extends Plugin implements ClientTelemetry, ClientTelemetryReceiver {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        forward(context, payload, 0);
    }
}
