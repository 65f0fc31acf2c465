//! The machine under a measurement: what a reader must know of it to believe a number.
