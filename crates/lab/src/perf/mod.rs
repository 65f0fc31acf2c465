//! Kafka's three performance tools, with the same flags and lines.
