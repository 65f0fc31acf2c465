//! Thresholds and shares that rules and predictions have in common, each with its source.

/// A pipe, a batch or a link counts as full from this share on: a full pipe was used to 0.81 to
/// 0.91 in the Kontur talk, and the formulas are accurate to 5 to 15 %.
pub const FULL: f64 = 0.85;
/// From here on a pipe is near its ceiling: 515,600 records/s with U = 0.8 and a queue of 109 ms.
pub const NEAR: f64 = 0.7;
/// The load after a change that still leaves headroom (F9; the talk's steps of 0.92, 0.75, 0.35).
pub const ROOM: f64 = 0.7;
/// The share of a link's bandwidth that requests can use (F15).
pub const LINK_SHARE: f64 = 0.92;
/// The share of a formula's gain that remains when latency grows a little with the request
/// (measured: from 8.5 % above the promised rate to 20 % below).
pub const GAIN_LOW: f64 = 0.8;
/// The same for a window formula: the article's rows reach 0.9 of the setting.
pub const WINDOW_LOW: f64 = 0.9;
/// The most requests in flight for which idempotence preserves order.
pub const ORDERED_IN_FLIGHT: f64 = 5.0;
