package interop;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.interfaces.RSAPublicKey;
import java.security.spec.ECGenParameterSpec;
import java.util.Base64;
import java.util.List;

/**
 * An identity provider: publishes its keys under /keys and in a file, and gives tokens as a document of RFC 6749, under
 * /token/KIND to anyone, and under /login/KIND for the id and the secret of a client. Kinds are valid tokens by algorithm and
 * lifetime in seconds, and invalid ones; each is also in a file beside the keys.
 */
final class Issuer {
    private static final String ISSUER = "https://issuer.example";
    private static final String AUDIENCE = "kafka";
    private static final int LIFETIME_S = 600;
    private static final String[] KINDS = {
        "RS256", "ES256", "stranger", "unknown-key", "expired", "another-issuer", "another-audience", "no-user", "unsigned",
    };
    private static final String CLIENT = "alice:alice-secret";
    private static final String SCOPE = "kafka";
    /** The file with this ending always has a token for the next four seconds. */
    private static final String RENEWED = "renewed";

    private final KeyPair rsa;
    private final KeyPair stranger;
    private final KeyPair ec;

    private Issuer() throws GeneralSecurityException {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        rsa = generator.generateKeyPair();
        stranger = generator.generateKeyPair();
        KeyPairGenerator curve = KeyPairGenerator.getInstance("EC");
        curve.initialize(new ECGenParameterSpec("secp256r1"));
        ec = curve.generateKeyPair();
    }

    /** Serves until the process is killed; the file is written last, so that a process that waits for it finds the server. */
    static void run(int port, String file) throws Exception {
        Issuer issuer = new Issuer();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/keys", exchange -> answer(exchange, 200, issuer.keys()));
        server.createContext("/token/", exchange -> answer(exchange, 200, issuer.document(kind(exchange))));
        server.createContext("/login/", issuer::login);
        server.start();
        for (String kind : KINDS) {
            Files.writeString(Path.of(file + "." + kind), issuer.token(kind, LIFETIME_S));
        }
        issuer.renew(file);
        Files.writeString(Path.of(file), issuer.keys());
        while (true) {
            Thread.sleep(1_000);
            issuer.renew(file);
        }
    }

    /** Replaces the token by a rename, so that a reader finds the whole of one. */
    private void renew(String file) throws IOException {
        Path next = Path.of(file + ".next");
        Files.writeString(next, token(RENEWED, 4));
        Files.move(next, Path.of(file + "." + RENEWED), StandardCopyOption.ATOMIC_MOVE);
    }

    /** The last part of the path. */
    private static String kind(HttpExchange exchange) {
        String path = exchange.getRequestURI().getPath();
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** RFC 6749, 4.4: a token for the id and the secret of a client, or an error of its section 5.2. */
    private void login(HttpExchange exchange) throws IOException {
        String form = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        List<String> fields = List.of(form.split("&"));
        String client = "Basic " + Base64.getEncoder().encodeToString(CLIENT.getBytes(StandardCharsets.UTF_8));
        if (!exchange.getRequestMethod().equals("POST")) {
            refuse(exchange, 405, "invalid_request");
        } else if (!client.equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
            refuse(exchange, 401, "invalid_client");
        } else if (!fields.contains("grant_type=client_credentials")) {
            refuse(exchange, 400, "unsupported_grant_type");
        } else if (!fields.contains("scope=" + SCOPE)) {
            refuse(exchange, 400, "invalid_scope");
        } else {
            answer(exchange, 200, document(kind(exchange)));
        }
    }

    private static void refuse(HttpExchange exchange, int status, String error) throws IOException {
        answer(exchange, status, "{\"error\":\"" + error + "\"}");
    }

    private static void answer(HttpExchange exchange, int status, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.getRequestBody().readAllBytes();
        exchange.getResponseHeaders().add("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private String document(String kind) throws IOException {
        int lifetime = kind.matches("\\d+") ? Integer.parseInt(kind) : LIFETIME_S;
        return "{\"access_token\":\"" + token(kind, lifetime) + "\",\"token_type\":\"bearer\",\"expires_in\":" + lifetime
                + "}";
    }

    private String token(String kind, int lifetime) throws IOException {
        try {
            return signed(kind, lifetime);
        } catch (GeneralSecurityException error) {
            throw new IOException(error);
        }
    }

    private String signed(String kind, int lifetime) throws GeneralSecurityException {
        long now = System.currentTimeMillis() / 1000;
        String subject = "alice";
        String issuer = ISSUER;
        String audience = AUDIENCE;
        String header = header("RS256", "rsa");
        Signature signature = Signature.getInstance("SHA256withRSA");
        KeyPair key = rsa;
        switch (kind) {
            case "ES256" -> {
                header = header("ES256", "ec");
                signature = Signature.getInstance("SHA256withECDSAinP1363Format");
                key = ec;
            }
            case "stranger" -> key = stranger;
            case "unknown-key" -> header = header("RS256", "other");
            case "expired" -> now -= 10_000;
            case "another-issuer" -> issuer = "https://other.example";
            case "another-audience" -> audience = "other";
            case "no-user" -> subject = "";
            case "unsigned" -> header = "{\"alg\":\"none\"}";
            default -> {
            }
        }
        String claims = "{\"sub\":\"" + subject + "\",\"iss\":\"" + issuer + "\",\"aud\":[\"" + audience
                + "\"],\"scope\":\"a b\",\"iat\":" + now + ",\"exp\":" + (now + lifetime) + "}";
        String signed = encode(header.getBytes(StandardCharsets.UTF_8)) + "."
                + encode(claims.getBytes(StandardCharsets.UTF_8));
        if (kind.equals("unsigned")) {
            return signed + ".";
        }
        signature.initSign(key.getPrivate());
        signature.update(signed.getBytes(StandardCharsets.UTF_8));
        return signed + "." + encode(signature.sign());
    }

    private static String header(String algorithm, String key) {
        return "{\"alg\":\"" + algorithm + "\",\"kid\":\"" + key + "\"}";
    }

    private String keys() {
        RSAPublicKey rsaKey = (RSAPublicKey) rsa.getPublic();
        ECPublicKey ecKey = (ECPublicKey) ec.getPublic();
        return "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"rsa\",\"use\":\"sig\",\"alg\":\"RS256\",\"n\":\""
                + encode(bytes(rsaKey.getModulus(), 256)) + "\",\"e\":\"" + encode(bytes(rsaKey.getPublicExponent(), 3))
                + "\"},{\"kty\":\"EC\",\"kid\":\"ec\",\"use\":\"sig\",\"crv\":\"P-256\",\"x\":\""
                + encode(bytes(ecKey.getW().getAffineX(), 32)) + "\",\"y\":\""
                + encode(bytes(ecKey.getW().getAffineY(), 32)) + "\"}]}";
    }

    /** The number in this many bytes, without a byte for its sign. */
    private static byte[] bytes(BigInteger number, int length) {
        byte[] all = number.toByteArray();
        byte[] fixed = new byte[length];
        int copied = Math.min(all.length, length);
        System.arraycopy(all, all.length - copied, fixed, length - copied, copied);
        return fixed;
    }

    private static String encode(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }
}
