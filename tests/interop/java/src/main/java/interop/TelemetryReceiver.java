// A broker's metrics reporter that writes every telemetry push to a file, decoded by Apache Kafka's own protobuf classes.
package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;

/** The file is named by the broker's setting ottla.telemetry.file. */
public final class TelemetryReceiver
    implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
    private Path file;

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this;
    }

    /** Lines: `push`, client id, instance, terminating, content type; `resource`, key, value; `point`, name, kind, start, end, value, attributes. */
    @Override
    public synchronized void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        StringBuilder text = new StringBuilder();
        line(text, "push", context.authorizableRequestContext().clientId(), payload.clientInstanceId().toString(),
            Boolean.toString(payload.isTerminating()), payload.contentType());
        try {
            ByteBuffer data = payload.data();
            for (ResourceMetrics resource : MetricsData.parseFrom(data).getResourceMetricsList()) {
                resource.getResource().getAttributesList()
                    .forEach(label -> line(text, "resource", label.getKey(), label.getValue().getStringValue()));
                resource.getScopeMetricsList().forEach(scope -> scope.getMetricsList().forEach(metric -> metric(text, metric)));
            }
            Files.writeString(file, text, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static void metric(StringBuilder text, Metric metric) {
        List<NumberDataPoint> points = metric.hasSum() ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
        String kind = metric.hasSum()
            ? "sum:" + metric.getSum().getAggregationTemporality().getNumber() + ":" + metric.getSum().getIsMonotonic()
            : "gauge";
        for (NumberDataPoint point : points) {
            StringBuilder attributes = new StringBuilder();
            for (KeyValue label : point.getAttributesList()) {
                attributes.append(label.getKey()).append('=').append(label.getValue().getStringValue()).append(' ');
            }
            double value = point.hasAsInt() ? point.getAsInt() : point.getAsDouble();
            line(text, "point", metric.getName(), kind, Long.toString(point.getStartTimeUnixNano()),
                Long.toString(point.getTimeUnixNano()), Double.toString(value), attributes.toString().strip());
        }
    }

    private static void line(StringBuilder text, String... fields) {
        text.append(String.join("\t", fields)).append('\n');
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
    }

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(String.valueOf(configs.get("ottla.telemetry.file")));
    }
}
