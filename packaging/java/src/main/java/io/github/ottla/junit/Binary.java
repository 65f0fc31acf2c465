package io.github.ottla.junit;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/** The program {@code ottla}: the one in this jar, unless OTTLA_BINARY names another one. */
final class Binary {
    private static final String VARIABLE = "OTTLA_BINARY";
    private static Path extracted;

    private Binary() {}

    static synchronized Path path() throws IOException {
        String stated = System.getenv(VARIABLE);
        if (stated != null && !stated.isEmpty()) {
            return Path.of(stated);
        }
        if (extracted == null) {
            extracted = extract();
        }
        return extracted;
    }

    /** Once for a virtual machine, into a directory that no other user can write. */
    private static Path extract() throws IOException {
        String platform = platform();
        try (InputStream program = Binary.class.getResourceAsStream("ottla-" + platform)) {
            if (program == null) {
                throw new IOException("there is no program for " + platform + "; " + VARIABLE + " can name one");
            }
            Path directory = Files.createTempDirectory("ottla-program-");
            Path path = directory.resolve("ottla");
            Files.copy(program, path);
            Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rwx------"));
            // In the reverse order of this list.
            directory.toFile().deleteOnExit();
            path.toFile().deleteOnExit();
            return path;
        }
    }

    private static String platform() {
        String system = System.getProperty("os.name").toLowerCase().replace(' ', '-');
        String processor = System.getProperty("os.arch");
        return system + "-" + (processor.equals("amd64") ? "x86_64" : processor);
    }
}
