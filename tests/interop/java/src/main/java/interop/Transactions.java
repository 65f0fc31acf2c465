package interop;

import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Transactions for another client to read. */
final class Transactions {
    /** Ten records committed, ten aborted, five committed, three in a transaction that stays open. */
    static void write(Suite suite, String topic) throws Exception {
        KafkaProducer<String, String> producer =
                suite.producer("transactional.id", "interop-" + topic, "transaction.timeout.ms", "600000");
        producer.initTransactions();
        records(producer, topic, "first", 10);
        producer.commitTransaction();
        records(producer, topic, "second", 10);
        producer.abortTransaction();
        records(producer, topic, "third", 5);
        producer.commitTransaction();
        records(producer, topic, "open", 3);
        // Closing the producer would abort the open transaction, so the process ends without closing it.
        Runtime.getRuntime().halt(0);
    }

    private static void records(KafkaProducer<String, String> producer, String topic, String name, int count)
            throws Exception {
        producer.beginTransaction();
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, 0, "k", name + "-" + i)).get(60, TimeUnit.SECONDS);
        }
    }
}
