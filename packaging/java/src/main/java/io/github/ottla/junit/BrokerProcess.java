package io.github.ottla.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A broker as a child process, with a directory of its own; without JUnit, for any test. */
public final class BrokerProcess implements AutoCloseable {
    /** What suits a test. Records live as long as the test, so nothing waits for the disk. */
    private static final Map<String, String> DEFAULTS = Map.of(
            "listeners", "PLAINTEXT://127.0.0.1:0",
            "ottla.admin.listener", "127.0.0.1:0",
            "ottla.durability", "page-cache",
            "group.initial.rebalance.delay.ms", "0");

    private static final long START_SECONDS_MAX = 30;
    private static final long STOP_SECONDS_MAX = 10;
    private static final int LOG_CHARACTERS_SHOWN = 4096;

    private final Process process;
    private final Path directory;
    private Map<String, String> facts = Map.of();

    private BrokerProcess(Process process, Path directory) {
        this.process = process;
        this.directory = directory;
    }

    /**
     * Starts a broker.
     *
     * @param properties keys of server.properties
     * @throws IllegalStateException if it does not start; the message has its log
     */
    public static BrokerProcess start(Map<String, String> properties) {
        try {
            Path directory = Files.createTempDirectory("ottla-");
            BrokerProcess broker = new BrokerProcess(launch(directory, properties), directory);
            try {
                broker.awaitReady();
            } catch (RuntimeException failure) {
                broker.end();
                throw failure;
            }
            return broker;
        } catch (IOException failure) {
            throw new UncheckedIOException("cannot start the broker", failure);
        }
    }

    private static Process launch(Path directory, Map<String, String> properties) throws IOException {
        Map<String, String> wanted = new LinkedHashMap<>(DEFAULTS);
        wanted.put("log.dirs", directory.resolve("data").toString());
        wanted.putAll(properties);
        // The broker stops when its standard input ends: also when this virtual machine is killed.
        List<String> command = new ArrayList<>(List.of(Binary.path().toString(), "serve", "--stop-with-stdin"));
        wanted.forEach((key, value) -> command.addAll(List.of("--override", key + "=" + value)));
        return new ProcessBuilder(command)
                .directory(directory.toFile())
                .redirectError(directory.resolve("log").toFile())
                .start();
    }

    /** Waits for the line that {@code ottla serve} prints when it accepts connections. */
    private void awaitReady() {
        String line = null;
        try {
            line = CompletableFuture.supplyAsync(this::readLine).get(START_SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            throw new IllegalStateException("the broker was not ready within " + START_SECONDS_MAX + " s" + logEnd());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while the broker started", interrupted);
        } catch (ExecutionException failure) {
            throw new IllegalStateException("cannot read what the broker prints", failure.getCause());
        }
        if (line == null || !line.startsWith("ottla ready ")) {
            throw new IllegalStateException("the broker did not start: " + status() + logEnd());
        }
        facts = Arrays.stream(line.split(" "))
                .filter(word -> word.contains("="))
                .map(word -> word.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }

    private String readLine() {
        try {
            return new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))
                    .readLine();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** What clients call bootstrap.servers: {@code host:port}, separated by commas. */
    public String bootstrapServers() {
        return facts.get("listeners").replaceAll("[A-Z0-9_.-]+://", "");
    }

    /** The address of the console, /metrics and the doctor; null if it is disabled. */
    public String adminUrl() {
        return facts.get("admin");
    }

    /** The process id. */
    public long pid() {
        return process.pid();
    }

    /** Everything that the broker has written to standard error. */
    public String log() {
        try {
            return new String(Files.readAllBytes(directory.resolve("log")), StandardCharsets.UTF_8);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /**
     * Stops the broker and removes its directory.
     *
     * @throws IllegalStateException if it had ended by itself; the message has its log
     */
    @Override
    public void close() {
        String failure = process.isAlive() ? null : "the broker ended: " + status() + logEnd();
        end();
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
    }

    private void end() {
        process.destroy();
        try {
            if (!process.waitFor(STOP_SECONDS_MAX, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException interrupted) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        try (Stream<Path> paths = Files.walk(directory)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(path);
            }
        } catch (IOException failure) {
            throw new UncheckedIOException("cannot remove " + directory, failure);
        }
    }

    /** The end of its output comes a moment before the end of the process. */
    private String status() {
        try {
            return process.waitFor(STOP_SECONDS_MAX, TimeUnit.SECONDS)
                    ? "status " + process.exitValue()
                    : "its output has ended";
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return "its output has ended";
        }
    }

    private String logEnd() {
        String text = log();
        String end = text.substring(Math.max(0, text.length() - LOG_CHARACTERS_SHOWN));
        return end.isBlank() ? "; its log is empty" : "; its log:\n" + end;
    }
}
