//! One behaviour of the machine per test.
