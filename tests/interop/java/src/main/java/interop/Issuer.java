package interop;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.interfaces.RSAPublicKey;
import java.security.spec.ECGenParameterSpec;
import java.util.Base64;

/**
 * An identity provider: publishes its keys under /keys and in a file, and gives tokens under /token/KIND, as a document of
 * RFC 6749. Kinds are valid tokens by algorithm and lifetime in seconds, and invalid ones.
 */
final class Issuer {
    private static final String ISSUER = "https://issuer.example";
    private static final String AUDIENCE = "kafka";
    private static final int LIFETIME_S = 600;

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
        server.createContext("/keys", exchange -> answer(exchange, issuer.keys()));
        server.createContext("/token/", exchange -> {
            String kind = exchange.getRequestURI().getPath().substring("/token/".length());
            try {
                answer(exchange, issuer.document(kind));
            } catch (GeneralSecurityException error) {
                throw new IOException(error);
            }
        });
        server.start();
        // Tokens in files, for clients that read them from there.
        for (String kind : new String[] {"RS256", "ES256", "expired"}) {
            Files.writeString(Path.of(file + "." + kind), issuer.token(kind, LIFETIME_S));
        }
        Files.writeString(Path.of(file), issuer.keys());
        Thread.currentThread().join();
    }

    private static void answer(HttpExchange exchange, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.getRequestBody().readAllBytes();
        exchange.getResponseHeaders().add("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private String document(String kind) throws GeneralSecurityException {
        int lifetime = kind.matches("\\d+") ? Integer.parseInt(kind) : LIFETIME_S;
        return "{\"access_token\":\"" + token(kind, lifetime) + "\",\"token_type\":\"bearer\",\"expires_in\":" + lifetime
                + "}";
    }

    private String token(String kind, int lifetime) throws GeneralSecurityException {
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
