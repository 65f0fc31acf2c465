// The entry point for brokers of 4.2 and newer: metric.reporters=ottla.telemetry.TelemetryExporter
package ottla.telemetry;

import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

public final class TelemetryExporter extends Plugin implements ClientTelemetryExporterProvider, ClientTelemetryExporter {
    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this;
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        forward(context.authorizableRequestContext(), payload, context.pushIntervalMs());
    }
}
