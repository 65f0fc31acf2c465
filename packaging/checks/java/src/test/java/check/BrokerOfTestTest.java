package check;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.ottla.junit.BrokerProcess;
import io.github.ottla.junit.OttlaBroker;
import java.util.Map;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class BrokerOfTestTest {
    private static long before;

    @RegisterExtension
    final OttlaBroker broker = new OttlaBroker();

    @RepeatedTest(2)
    void isAnotherForEachTest() throws Exception {
        RoundTrip.check(broker.bootstrapServers());
        assertNotEquals(before, broker.pid());
        assertFalse(before != 0 && ProcessHandle.of(before).isPresent());
        before = broker.pid();
    }

    @Test
    void whatTheBrokerSaysAgainstAStartIsInTheError() {
        IllegalStateException failure = assertThrows(
                IllegalStateException.class, () -> BrokerProcess.start(Map.of("num.partitions", "none")));
        assertTrue(failure.getMessage().contains("num.partitions"), failure.getMessage());
    }

    @Test
    void aBrokerThatIsKilledIsNoSuccess() throws Exception {
        BrokerProcess killed = BrokerProcess.start(Map.of());
        ProcessHandle handle = ProcessHandle.of(killed.pid()).orElseThrow();
        handle.destroyForcibly();
        handle.onExit().get();
        assertTrue(assertThrows(IllegalStateException.class, killed::close).getMessage().contains("status 137"));
    }
}
