//! The formulas of producers, consumers and queues: pure functions from numbers to numbers.
