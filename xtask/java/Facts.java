import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Prints what Apache Kafka knows about error codes and about the header of each version of each API. */
public final class Facts {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            System.out.println("error\t" + error.code() + "\t" + error.name() + "\t" + isRetriable);
        }
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.hasValidVersion()) {
                continue;
            }
            for (short version = api.oldestVersion(); version <= api.latestVersion(false); version++) {
                System.out.println("api\t" + api.id + "\t" + api.name + "\t" + version + "\t"
                    + api.requestHeaderVersion(version) + "\t" + api.responseHeaderVersion(version));
            }
        }
    }
}
