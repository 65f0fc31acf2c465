//! Keys of TLS and SASL.

use super::super::key::{
    Allowed, ConfigKey, Unit, boolean, class, double, int, list, long, password, short, string,
};

const KERBEROS: &str = "only for GSSAPI (Kerberos), which is refused";
const OAUTH: &str = "no assertion is made for fetching a token of OAUTHBEARER, and the broker checks it";
const JAVA: &str = "Java's security providers are not used; TLS is rustls with the aws-lc-rs cryptography";
const CLASSES: &str = "classes of a Java program cannot be loaded here";

pub(super) const SECURITY_KEYS: &[ConfigKey] = &[
    string("security.protocol", "PLAINTEXT", "Whether connections are encrypted, and whether this client proves who it is.")
        .allowed(Allowed::OneOfIgnoringCase(&["SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"]))
        .costs("SASL_PLAINTEXT shows everything to the network, with PLAIN the password as well"),
    string("sasl.mechanism", "GSSAPI", "How the client proves who it is: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."),
    password(
        "sasl.jaas.config",
        "User and password as a line of JAAS, with PlainLoginModule or ScramLoginModule; with OAuthBearerLoginModule the extensions of a token.",
    ),
    string("sasl.username", "", "The user name, in place of a line of JAAS.").unset().ours(),
    password("sasl.password", "The password, in place of a line of JAAS.").ours(),
    string(
        "sasl.oauthbearer.token.endpoint.url",
        "",
        "Where tokens of OAUTHBEARER are: https:// or http://, a server that gives them for a client's id and secret, or file:///PATH, a file that is read at every authentication.",
    )
    .unset()
    .costs("http:// shows the secret and the tokens to the network"),
    password("sasl.oauthbearer.token", "The token of OAUTHBEARER itself, in place of a file; it cannot be renewed.").ours(),
    string("ssl.truststore.type", "JKS", "The form of the trusted certificates: PEM, PKCS12 or JKS; between the last two the file's content decides."),
    string("ssl.truststore.location", "", "The file of trusted certificates; without one, the system's.").unset(),
    password("ssl.truststore.certificates", "The trusted certificates themselves, as PEM; instead of a file."),
    string("ssl.keystore.type", "JKS", "The form of this client's own key and certificates: PEM, PKCS12 or JKS; between the last two the file's content decides."),
    string("ssl.keystore.location", "", "The file with this client's private key and certificate chain.").unset(),
    password("ssl.keystore.key", "This client's private key itself, as PEM; instead of a file."),
    password("ssl.keystore.certificate.chain", "This client's certificate and those that signed it, as PEM; instead of a file."),
    password("ssl.key.password", "The password of the private key, if it is encrypted; of a key in a JKS store, there by default the store's."),
    string(
        "ssl.endpoint.identification.algorithm",
        "https",
        "Whether a broker's certificate must be for the name it was connected by: https, or empty for no check.",
    )
    .costs("empty: a host with any certificate of a trusted issuer can impersonate a broker"),
    list("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "The versions of TLS that may be spoken."),
    list("ssl.cipher.suites", "", "The cipher suites that may be used, by their names in the standard; empty: all good ones."),
    string("ssl.protocol", "TLSv1.3", "The version of TLS, in Java's counting.")
        .no_effect("the versions follow from ssl.enabled.protocols alone"),
    password("ssl.truststore.password", "The password of a PKCS12 or JKS trust store; JKS can be read without one."),
    password("ssl.keystore.password", "The password of a PKCS12 or JKS key store."),
    string("ssl.provider", "", "Which provider does TLS.").unset().no_effect(JAVA),
    string("ssl.keymanager.algorithm", "SunX509", "Which key manager is used.").no_effect(JAVA),
    string("ssl.trustmanager.algorithm", "PKIX", "Which trust manager is used.").no_effect(JAVA),
    string("ssl.secure.random.implementation", "", "Where random numbers come from.").unset().no_effect(JAVA),
    string("security.providers", "", "Which providers are installed.").unset().no_effect(JAVA),
    class("ssl.engine.factory.class", "", "What makes TLS engines.").unset().refused(CLASSES),
    class("sasl.client.callback.handler.class", "", "What answers questions of a mechanism.").unset().refused(CLASSES),
    class("sasl.login.callback.handler.class", "", "What fetches a token: only OAuthBearerLoginCallbackHandler, which gets it from the same place.").unset(),
    class("sasl.login.class", "", "What logs in.").unset().refused(CLASSES),
    int("sasl.login.connect.timeout.ms", "", "How long a login may wait for its connection.").unset().ms(),
    int("sasl.login.read.timeout.ms", "", "How long a login may wait for its answer.").unset().ms(),
    short("sasl.login.refresh.buffer.seconds", "300", "How long before its end a login is renewed.")
        .unit(Unit::Seconds)
        .between(0, 3600),
    short("sasl.login.refresh.min.period.seconds", "60", "The shortest time between two renewals.")
        .unit(Unit::Seconds)
        .between(0, 900),
    double("sasl.login.refresh.window.factor", "0.8", "After which part of its life a login is renewed.")
        .allowed(Allowed::Within(0.5, 1.0)),
    double("sasl.login.refresh.window.jitter", "0.05", "How much chance is in the time of renewals.")
        .allowed(Allowed::Within(0.0, 0.25)),
    long("sasl.login.retry.backoff.ms", "100", "How long to wait before a login is tried again.").ms(),
    long("sasl.login.retry.backoff.max.ms", "10000", "The longest wait before a login is tried again.").ms(),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "Where kinit is.").no_effect(KERBEROS),
    long("sasl.kerberos.min.time.before.relogin", "60000", "How long a login is left alone.").ms().no_effect(KERBEROS),
    string("sasl.kerberos.service.name", "", "The name of the brokers' service.").unset().no_effect(KERBEROS),
    double("sasl.kerberos.ticket.renew.jitter", "0.05", "How much chance is in the time of renewals.").no_effect(KERBEROS),
    double("sasl.kerberos.ticket.renew.window.factor", "0.8", "After which part of its life a ticket is renewed.").no_effect(KERBEROS),
    string("sasl.oauthbearer.assertion.algorithm", "RS256", "How assertions are signed.")
        .allowed(Allowed::OneOfIgnoringCase(&["ES256", "RS256"]))
        .no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.claim.aud", "", "The audience of an assertion.").unset().no_effect(OAUTH),
    int("sasl.oauthbearer.assertion.claim.exp.seconds", "300", "How long an assertion is good.")
        .unit(Unit::Seconds)
        .between(0, 86400)
        .no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.claim.iss", "", "The issuer of an assertion.").unset().no_effect(OAUTH),
    boolean("sasl.oauthbearer.assertion.claim.jti.include", "false", "Whether an assertion has a number.").no_effect(OAUTH),
    int("sasl.oauthbearer.assertion.claim.nbf.seconds", "60", "How long before now an assertion is good.")
        .unit(Unit::Seconds)
        .between(0, 3600)
        .no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.claim.sub", "", "The subject of an assertion.").unset().no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.file", "", "The file of a ready assertion.").unset().no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.private.key.file", "", "The file of the key that signs assertions.").unset().no_effect(OAUTH),
    password("sasl.oauthbearer.assertion.private.key.passphrase", "The password of that key.").no_effect(OAUTH),
    string("sasl.oauthbearer.assertion.template.file", "", "The file that assertions are made after.").unset().no_effect(OAUTH),
    string("sasl.oauthbearer.client.credentials.client.id", "", "The client at the token's endpoint.").unset(),
    password("sasl.oauthbearer.client.credentials.client.secret", "Its secret."),
    int("sasl.oauthbearer.clock.skew.seconds", "30", "How far clocks may differ.").unit(Unit::Seconds).no_effect(OAUTH),
    list("sasl.oauthbearer.expected.audience", "", "The audience a token must be for.").no_effect(OAUTH),
    string("sasl.oauthbearer.expected.issuer", "", "The issuer a token must be of.").unset().no_effect(OAUTH),
    boolean("sasl.oauthbearer.header.urlencode", "false", "Whether the client's name is encoded in the header."),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000", "How often keys are asked for again.").ms().no_effect(OAUTH),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100", "How long to wait before keys are asked for again.")
        .ms()
        .no_effect(OAUTH),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000", "The longest wait before keys are asked for again.")
        .ms()
        .no_effect(OAUTH),
    string("sasl.oauthbearer.jwks.endpoint.url", "", "Where keys are.").unset().no_effect(OAUTH),
    class(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "What fetches tokens; follows from the URL. JwtBearerJwtRetriever is refused.",
    ),
    class(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "What checks tokens.",
    )
    .no_effect(OAUTH),
    string("sasl.oauthbearer.scope", "", "The scope that is asked for.").unset(),
    string("sasl.oauthbearer.scope.claim.name", "scope", "The claim that holds the scope.").no_effect(OAUTH),
    string("sasl.oauthbearer.sub.claim.name", "sub", "The claim that holds the subject.").no_effect(OAUTH),
];
