import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints how Apache Kafka defines its configuration keys: scope, name, type, default, range, update mode, synonyms. */
public class ConfigKeys {
    static void print(String scope, Map<String, ConfigDef.ConfigKey> keys) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys).values()) {
            String defaultValue = !key.hasDefault() ? "required"
                : key.defaultValue == null ? "null" : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            String range = key.validator == null ? "" : key.validator.toString();
            String mode = scope.equals("broker") ? modes.getOrDefault(key.name, "read-only") : "";
            System.out.println(
                String.join("\t", scope, key.name, key.type.toString(), defaultValue, range, mode, synonyms(scope, key.name)));
        }
    }

    static String synonyms(String scope, String name) {
        StringJoiner names = new StringJoiner(",");
        if (scope.equals("topic"))
            for (ConfigSynonym synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of()))
                names.add(synonym.name() + "=" + (isNumber(synonym) ? synonym.converter().apply("1") : "1"));
        if (scope.equals("group"))
            GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.get(name).ifPresent(synonym -> names.add(synonym + "=1"));
        return names.toString();
    }

    static boolean isNumber(ConfigSynonym synonym) {
        return synonym.name().endsWith("hours") || synonym.name().endsWith("minutes");
    }

    public static void main(String[] arguments) {
        print("broker", AbstractKafkaConfig.CONFIG_DEF.configKeys());
        print("topic", LogConfig.configKeys());
        print("group", GroupConfig.CONFIG_DEF.configKeys());
        print("client-metrics", ClientMetricsConfigs.configDef().configKeys());
        // Keys that can only be set dynamically.
        print("broker", QuotaConfig.brokerQuotaConfigs().configKeys());
    }
}
