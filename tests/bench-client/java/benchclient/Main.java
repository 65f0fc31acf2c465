package benchclient;

import java.util.HashMap;
import java.util.Map;

/** Java's client as a contender of `cargo xtask bench-client`; see the Rust skeleton for the handshake. */
public final class Main {
    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            arguments.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        switch (words[0]) {
            case "produce" -> new Produce(arguments).run();
            case "consume" -> Consume.run(arguments);
            default -> throw new IllegalArgumentException("unknown mode " + words[0]);
        }
        System.exit(0);
    }

    static void sayAndWait(String word) throws Exception {
        System.out.println(word);
        System.out.flush();
        while (System.in.read() != '\n') {}
    }

    static String version() {
        return "kafka-clients " + org.apache.kafka.common.utils.AppInfoParser.getVersion() + ", Java "
                + System.getProperty("java.version");
    }

    static String quoted(String text) {
        return '"' + text.replaceAll("[\\p{Cntrl}\"\\\\]", " ") + '"';
    }
}
