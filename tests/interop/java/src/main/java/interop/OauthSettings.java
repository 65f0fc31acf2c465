package interop;

import java.util.Map;

/** The settings of a client that authenticates by tokens (KIP-768). */
final class OauthSettings {
    private static final String MODULE =
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";

    private OauthSettings() {
    }

    /** `source` is the URL of a token's file, or of a server that gives tokens for a client id and a secret; `unsecured`:
     * tokens without a signature, which the client makes itself. */
    static void put(Map<String, Object> settings, String source) {
        settings.put("sasl.mechanism", "OAUTHBEARER");
        if (source.equals("unsecured")) {
            settings.put("sasl.jaas.config", MODULE + " unsecuredLoginStringClaim_sub=\"alice\";");
            return;
        }
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", source);
        settings.put("sasl.login.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
        settings.put("sasl.oauthbearer.token.endpoint.url", source);
        String login = " clientId=\"alice\" clientSecret=\"alice-secret\" scope=\"kafka\"";
        String options = source.startsWith("file:") ? "" : login;
        settings.put("sasl.jaas.config", MODULE + options + ";");
        // A token of a few seconds is replaced after half of its time.
        settings.put("sasl.login.refresh.min.period.seconds", "0");
        settings.put("sasl.login.refresh.buffer.seconds", "0");
        settings.put("sasl.login.refresh.window.factor", "0.5");
    }
}
