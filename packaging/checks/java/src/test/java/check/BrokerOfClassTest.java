package check;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.ottla.junit.OttlaBroker;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.RegisterExtension;

@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class BrokerOfClassTest {
    @RegisterExtension
    static final OttlaBroker broker = new OttlaBroker().with("num.partitions", "3");

    private static long first;
    private static long inside;

    @Test
    @Order(1)
    void serves() throws Exception {
        RoundTrip.check(broker.bootstrapServers());
        assertEquals(3, RoundTrip.partitions(broker.bootstrapServers(), "another"));
        assertTrue(broker.adminUrl().startsWith("http://127.0.0.1:"));
        assertTrue(broker.log().contains("started"));
        first = broker.pid();
    }

    @Test
    @Order(2)
    void isTheSameForTheNextTest() {
        assertEquals(first, broker.pid());
    }

    /** JUnit calls the extension's methods for nested classes as well. */
    @Nested
    class WithAClassInside {
        @Test
        void isTheSameInIt() {
            assertTrue(ProcessHandle.of(broker.pid()).isPresent());
            inside = broker.pid();
        }
    }

    @AfterAll
    static void stillRuns() {
        assertTrue(ProcessHandle.of(first).isPresent());
        assertEquals(first, inside);
        assertEquals(first, broker.pid());
    }
}
