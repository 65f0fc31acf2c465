package io.github.ottla.junit;

import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A broker on a free port of 127.0.0.1 for the tests of a class, or for each test.
 *
 * <pre>
 * {@literal @}RegisterExtension
 * static final OttlaBroker broker = new OttlaBroker().with("num.partitions", "3");
 * </pre>
 *
 * A static field is one broker for the class; without {@code static} each test has its own. The broker has a temporary
 * directory, and also stops when this virtual machine is killed. It acknowledges from the page cache;
 * {@code with("ottla.durability", "disk")} waits for the disk.
 */
public final class OttlaBroker
        implements BeforeAllCallback, AfterAllCallback, BeforeEachCallback, AfterEachCallback {
    private final Map<String, String> properties = new TreeMap<>();
    private BrokerProcess process;
    /** Of the class with the static field, and of classes nested in it that have begun and not ended. */
    private int classes;

    /** Sets a key of server.properties. */
    public synchronized OttlaBroker with(String key, String value) {
        if (process != null) {
            throw new IllegalStateException("the broker is running: " + key + " must be set before");
        }
        properties.put(key, value);
        return this;
    }

    /** What clients call bootstrap.servers: {@code host:port}, separated by commas. */
    public String bootstrapServers() {
        return running().bootstrapServers();
    }

    /** The address of the console, /metrics and the doctor; null if it is disabled. */
    public String adminUrl() {
        return running().adminUrl();
    }

    /** Everything that the broker has written to standard error. */
    public String log() {
        return running().log();
    }

    /** The process id. */
    public long pid() {
        return running().pid();
    }

    @Override
    public synchronized void beforeAll(ExtensionContext context) {
        if (classes == 0) {
            process = BrokerProcess.start(properties);
        }
        classes++;
    }

    @Override
    public synchronized void beforeEach(ExtensionContext context) {
        if (classes == 0) {
            process = BrokerProcess.start(properties);
        }
    }

    @Override
    public synchronized void afterEach(ExtensionContext context) {
        if (classes == 0) {
            stop();
        }
    }

    @Override
    public synchronized void afterAll(ExtensionContext context) {
        classes--;
        if (classes == 0) {
            stop();
        }
    }

    private void stop() {
        BrokerProcess stopped = process;
        process = null;
        if (stopped != null) {
            stopped.close();
        }
    }

    private synchronized BrokerProcess running() {
        if (process == null) {
            throw new IllegalStateException("the broker runs only during tests: is its field registered with"
                    + " @RegisterExtension?");
        }
        return process;
    }
}
