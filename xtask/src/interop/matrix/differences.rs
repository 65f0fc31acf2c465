//! Answers that differ on purpose.

/// Answers to one row that differ, and why.
pub struct Difference {
    pub row: &'static str,
    /// A fact of the answer of Apache Kafka, and of Ottla's.
    kafka: &'static str,
    ottla: &'static str,
    pub why: &'static str,
}

impl Difference {
    pub fn is(&self, row: &str, kafka: &[String], ottla: &[String]) -> bool {
        let has = |facts: &[String], wanted: &str| facts.iter().any(|fact| fact == wanted);
        self.row == row && has(kafka, self.kafka) && has(ottla, self.ottla)
    }
}

const NO_LOGGERS: &str = "Ottla has no loggers whose level could be changed";

pub const ALL: &[Difference] = &[
    Difference {
        row: "DescribeConfigs of a logger",
        kafka: "error_code: 0",
        ottla: "error_code: 42",
        why: NO_LOGGERS,
    },
    Difference {
        row: "IncrementalAlterConfigs of a logger",
        kafka: "error_code: 0",
        ottla: "error_code: 42",
        why: NO_LOGGERS,
    },
];
