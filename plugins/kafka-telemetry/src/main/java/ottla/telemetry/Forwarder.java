// Forwards pushes to the collector, one at a time on a thread of its own; a collector that is slow or away costs pushes, never requests.
package ottla.telemetry;

import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** One request at a time keeps the pushes of each client in order. */
final class Forwarder implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Forwarder.class);
    private static final long LOG_INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);
    private static final long PAUSE_MS_MIN = 100;
    private static final long PAUSE_MS_MAX = 10_000;

    private final Settings settings;
    private final PushQueue queue;
    private final HttpClient client;
    private final Thread thread;
    private final AtomicLong forwarded = new AtomicLong();
    private final AtomicLong refused = new AtomicLong();

    // Of the forwarding thread only.
    private long pauseMs = PAUSE_MS_MIN;
    private String problem = "";
    private long loggedNanos = System.nanoTime() - LOG_INTERVAL_NANOS;
    private long loggedLost;

    Forwarder(Settings settings) {
        this.settings = settings;
        this.queue = new PushQueue(settings.queueBytes);
        this.client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofMillis(settings.timeoutMs))
            .build();
        this.thread = new Thread(this::run, "ottla-telemetry");
        this.thread.setDaemon(true);
    }

    Forwarder start() {
        thread.start();
        return this;
    }

    /** Returns at once, whatever the collector does. */
    void forward(Push push) {
        queue.add(push);
    }

    long forwarded() {
        return forwarded.get();
    }

    /** Pushes that the collector answered with "no". */
    long refused() {
        return refused.get();
    }

    /** Pushes that found no room or grew too old. */
    long dropped() {
        return queue.dropped();
    }

    int waiting() {
        return queue.size();
    }

    long waitingBytes() {
        return queue.bytes();
    }

    private void run() {
        long ageMaxNanos = TimeUnit.MILLISECONDS.toNanos(settings.ageMaxMs);
        try {
            while (true) {
                Push push = queue.take(ageMaxNanos, 1_000);
                if (push != null) {
                    send(push);
                } else if (queue.isClosed()) {
                    return;
                }
                tell();
            }
        } catch (InterruptedException error) {
            // Closed while something was under way.
        } catch (RuntimeException | Error error) {
            queue.close();
            LOG.error("Client telemetry is not forwarded any more", error);
        }
    }

    private void send(Push push) throws InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(settings.target)
            .timeout(Duration.ofMillis(settings.timeoutMs))
            .header("Content-Type", "application/x-protobuf")
            .POST(HttpRequest.BodyPublishers.ofByteArray(push.payload));
        push.headers.forEach(request::header);
        try {
            HttpResponse<String> response = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
            int status = response.statusCode();
            if (status / 100 == 2) {
                forwarded.incrementAndGet();
                pauseMs = PAUSE_MS_MIN;
            } else if (status == 408 || status == 429 || status / 100 == 5) {
                later(push, "status " + status + ": " + response.body().strip());
            } else {
                // The same bytes would be refused again.
                refused.incrementAndGet();
                problem = "status " + status + ": " + response.body().strip();
            }
        } catch (IOException error) {
            later(push, error.toString());
        }
    }

    private void later(Push push, String why) throws InterruptedException {
        problem = why;
        if (queue.isClosed()) {
            queue.countDropped();
            return;
        }
        queue.putBack(push);
        tell();
        Thread.sleep(pauseMs);
        pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX);
    }

    /** At most once a minute, and only when something was lost or stands still. */
    private void tell() {
        long lost = dropped() + refused();
        long now = System.nanoTime();
        boolean isNews = lost > loggedLost || !problem.isEmpty();
        if (isNews && now - loggedNanos >= LOG_INTERVAL_NANOS) {
            LOG.warn("Client telemetry for {}: {} pushes forwarded, {} dropped, {} refused, {} waiting; last problem: {}",
                settings.target, forwarded(), dropped(), refused(), waiting(), problem.isEmpty() ? "none" : problem);
            loggedNanos = now;
            loggedLost = lost;
            problem = "";
        }
    }

    /** What still waits has a second; the broker's shutdown does not wait longer. */
    @Override
    public void close() {
        queue.close();
        try {
            thread.join(1_000);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        thread.interrupt();
    }
}
