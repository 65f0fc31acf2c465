package interop;

import java.io.IOException;
import java.io.OutputStream;

/** The other side ends a load by closing its standard input. */
final class StandardInput {
    /** A thread that lives until the input is closed. */
    static Thread untilClosed() {
        Thread input = new Thread(() -> {
            try {
                System.in.transferTo(OutputStream.nullOutputStream());
            } catch (IOException closed) {
                // An error means the same as the end of the input.
            }
        });
        input.setDaemon(true);
        input.start();
        return input;
    }
}
