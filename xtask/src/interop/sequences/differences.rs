//! Answers that differ on purpose. A sequence ends with one: the brokers are in different states.

use regex::Regex;

pub struct Known {
    pub world: &'static str,
    /// A regular expression for the step, as it is printed.
    step: &'static str,
    /// Parts of the answers.
    kafka: &'static str,
    ottla: &'static str,
    pub why: &'static str,
}

impl Known {
    pub fn is(&self, world: &str, step: &str, kafka: &str, ottla: &str) -> bool {
        let is_step = Regex::new(self.step).expect("the pattern is one");
        self.world == world
            && is_step.is_match(step)
            && kafka.contains(self.kafka)
            && ottla.contains(self.ottla)
    }
}

const DOWNGRADE: &str = "without members of the consumer protocol a group becomes classic when a classic member joins and \
    all have what they are assigned; Apache Kafka does it at once, with a rebalance";

pub const ALL: &[Known] = &[
    Known {
        world: "groups",
        step: "^Join",
        kafka: "error_code: -1,",
        ottla: "error_code: 42,",
        why: "a static member that names the id of a dynamic one is refused with INVALID_REQUEST",
    },
    Known {
        world: "groups",
        step: "^Join",
        kafka: "error_code: 0,",
        ottla: "error_code: 25,",
        why: "a classic member that was removed from a consumer group gets another id: what it says that it \
            owns may be another member's",
    },
    Known {
        world: "groups",
        step: "^Join",
        kafka: "error_code: 23,",
        ottla: "error_code: ",
        why: "a classic member of a consumer group may replace all of its protocols if it is the only one; of a \
            wrong id and wrong protocols the id is named",
    },
    Known {
        world: "groups",
        step: "regex: Some",
        kafka: "error_code: 0,",
        ottla: "error_code: 0,",
        why: "a regular expression is resolved in the heartbeat that brings it, with one new group epoch; \
            Apache Kafka resolves it later, and counts the change of the subscription and its result",
    },
    Known {
        world: "groups",
        step: "^Beat.* is_static: true",
        kafka: "error_code: 111,",
        ottla: "error_code: 0,",
        why: "a static member that was fenced joins again under its own id",
    },
    Known {
        world: "groups",
        step: "^ConsumerDescribe",
        kafka: "error_code: 69,",
        ottla: "error_code: 0,",
        why: DOWNGRADE,
    },
    Known {
        world: "groups",
        step: "^Describe",
        kafka: "error_code: 0,",
        ottla: "error_code: 69,",
        why: DOWNGRADE,
    },
    Known {
        world: "transactions",
        step: "^Init .* expected: Some",
        kafka: "error_code: 0,",
        ottla: "error_code: 0,",
        why: "InitProducerId with an expected epoch that aborts an open transaction answers the epoch behind \
            that of the abort's markers",
    },
    Known {
        world: "transactions",
        step: "^Init .* expected: Some",
        kafka: "error_code: 0,",
        ottla: "error_code: 90,",
        why: "a producer that expects another epoch than that of an open transaction does not end it",
    },
    Known {
        world: "transactions",
        step: "^End .* who: (Former|OlderEpoch), version: 5",
        kafka: "",
        ottla: "error_code: 90,",
        why: "after an EndTxn of version 4, which leaves the epoch, version 5 with the epoch before is a fenced \
            producer's, not a repeated one",
    },
    Known {
        world: "transactions",
        step: "^(Produce|CommitOffsets) .* who: Other",
        kafka: "error_code: 47",
        ottla: "error_code: 49",
        why: "the coordinator refuses another producer's id before the partition refuses its old epoch",
    },
    Known {
        world: "transactions",
        step: "^Produce .* version: (9|11), ",
        kafka: "error_code: 45",
        ottla: "error_code: 0",
        why: "Apache Kafka remembers the sequence of an old client's batch whose partition was not in the \
            transaction, and wants that one first",
    },
    Known {
        world: "transactions",
        step: "^Produce .* version: 12, .* sequence: Gap",
        kafka: "error_code: 0",
        ottla: "error_code: 45",
        why: "a new client's first batch has sequence 0, also after a refused one of an old client",
    },
    Known {
        world: "transactions",
        step: "^CommitOffsets .* generation: 3",
        kafka: "error_code: 25",
        ottla: "error_code: 22",
        why: "a group whose only offsets were aborted does not exist; Apache Kafka keeps it in memory",
    },
    Known {
        world: "transactions",
        step: "^Read",
        kafka: "AbortedTransaction",
        ottla: "Some([])",
        why: "a Fetch answer lists the aborted transactions of its own records only",
    },
];
