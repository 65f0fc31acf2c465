// What waits to be forwarded: bounded in bytes, the oldest goes first when there is no room.
package ottla.telemetry;

import java.util.ArrayDeque;

/** Everything here holds the lock for a few instructions: the broker's request handlers never wait for the network. */
final class PushQueue {
    private final long bytesMax;
    private final ArrayDeque<Push> pushes = new ArrayDeque<>();
    private long bytes;
    private long dropped;
    private boolean isClosed;

    PushQueue(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    /** Takes the newest, and drops the oldest until there is room; what is larger than the whole queue is dropped itself. */
    synchronized void add(Push push) {
        if (isClosed || push.bytes() > bytesMax) {
            dropped++;
            return;
        }
        pushes.addLast(push);
        bytes += push.bytes();
        trim();
        notifyAll();
    }

    /** Puts back what could not be sent; if there is no room meanwhile, it is the oldest and goes. */
    synchronized void putBack(Push push) {
        pushes.addFirst(push);
        bytes += push.bytes();
        trim();
    }

    private void trim() {
        while (bytes > bytesMax) {
            bytes -= pushes.removeFirst().bytes();
            dropped++;
        }
    }

    /** The oldest push that is not older than {@code ageMaxNanos}; null when nothing came within {@code waitMs}, or it is closed. */
    synchronized Push take(long ageMaxNanos, long waitMs) throws InterruptedException {
        if (pushes.isEmpty() && !isClosed) {
            wait(waitMs);
        }
        while (!pushes.isEmpty()) {
            Push push = pushes.removeFirst();
            bytes -= push.bytes();
            if (System.nanoTime() - push.receivedNanos <= ageMaxNanos) {
                return push;
            }
            dropped++;
        }
        return null;
    }

    synchronized void close() {
        isClosed = true;
        notifyAll();
    }

    synchronized boolean isClosed() {
        return isClosed;
    }

    synchronized int size() {
        return pushes.size();
    }

    synchronized long bytes() {
        return bytes;
    }

    synchronized long dropped() {
        return dropped;
    }

    synchronized void countDropped() {
        dropped++;
    }
}
