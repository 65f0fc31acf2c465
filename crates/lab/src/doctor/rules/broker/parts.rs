//! F23: the parts of the time that a request spends in a broker.

use super::super::super::diagnosis::Evidence;
use super::super::super::snapshot::BrokerSide;

/// Below this mean, parts that were rounded to whole milliseconds are meaningless: they were seen
/// to add up to half of the total.
const ROUNDED_TOTAL_MS_MIN: f64 = 2.0;

/// A read from resident pages takes about this long (F26): a shorter part delays no request,
/// however large its share.
const PART_MS_MIN: f64 = 0.1;

/// The part of `local_micros` in which the log of the only broker is flushed: where there are no
/// followers, Ottla counts that wait as local. It takes no thread.
pub fn flushed_locally_micros(side: &BrokerSide) -> f64 {
    let of = |micros: Option<f64>| micros.filter(|micros| micros.is_finite()).unwrap_or(0.0);
    let flush = of(side.flush_micros);
    match flush > of(side.remote_micros) && flush <= of(side.local_micros) {
        true => flush,
        false => 0.0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Queue,
    Local,
    Remote,
    /// Response queue and sending.
    Response,
}

impl Part {
    const ALL: [Part; 4] = [Part::Queue, Part::Local, Part::Remote, Part::Response];

    /// The share of D from which the part counts as the cause.
    fn share_min(self) -> f64 {
        match self {
            Part::Queue | Part::Response => 0.3,
            Part::Local | Part::Remote => 0.5,
        }
    }

    /// Completes "61 % of the broker's 118 ms are".
    pub fn words(self) -> &'static str {
        match self {
            Part::Queue => "spent in the request queue",
            Part::Local => "local",
            Part::Remote => "remote",
            Part::Response => "spent in the response queue and on sending",
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Part::Queue => "queue",
            Part::Local => "local",
            Part::Remote => "remote",
            Part::Response => "response",
        }
    }
}

/// D by its parts, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    queue: Option<f64>,
    local: Option<f64>,
    remote: Option<f64>,
    response: Option<f64>,
}

impl Parts {
    /// Returns `None` where fewer than two parts are known, or where they are rounded to nothing.
    pub fn of(side: &BrokerSide) -> Option<Parts> {
        let ms = |micros: Option<f64>| {
            micros
                .filter(|micros| micros.is_finite() && *micros >= 0.0)
                .map(|micros| micros / 1_000.0)
        };
        let response = match (ms(side.response_queue_micros), ms(side.send_micros)) {
            (None, None) => None,
            (queue, send) => Some(queue.unwrap_or(0.0) + send.unwrap_or(0.0)),
        };
        let parts = Parts {
            queue: ms(side.queue_micros),
            local: ms(side.local_micros),
            remote: ms(side.remote_micros),
            response,
        };
        let total = parts.total_ms();
        let is_meaningful = total > 0.0 && (!side.is_rounded_to_ms || total >= ROUNDED_TOTAL_MS_MIN);
        (parts.known() >= 2 && is_meaningful).then_some(parts)
    }

    /// The parts without the remote one: in a fetch that is the wait for records, which is no
    /// delay.
    pub fn without_remote(self) -> Parts {
        Parts { remote: None, ..self }
    }

    pub fn ms(&self, part: Part) -> f64 {
        let value = match part {
            Part::Queue => self.queue,
            Part::Local => self.local,
            Part::Remote => self.remote,
            Part::Response => self.response,
        };
        value.unwrap_or(0.0)
    }

    pub fn total_ms(&self) -> f64 {
        Part::ALL.iter().map(|part| self.ms(*part)).sum()
    }

    pub fn share(&self, part: Part) -> f64 {
        let total = self.total_ms();
        if total > 0.0 { self.ms(part) / total } else { 0.0 }
    }

    /// How many parts are known.
    pub fn known(&self) -> usize {
        [self.queue, self.local, self.remote, self.response]
            .iter()
            .flatten()
            .count()
    }

    /// The largest of the parts that exceed their threshold.
    pub fn outstanding(&self) -> Option<Part> {
        Part::ALL
            .into_iter()
            .filter(|part| self.share(*part) >= part.share_min() && self.ms(*part) >= PART_MS_MIN)
            .max_by(|one, other| self.ms(*one).total_cmp(&self.ms(*other)))
    }

    /// The part's share as a line of arithmetic that names all parts.
    pub fn line(&self, part: Part) -> Evidence {
        let expression = format!("{} / (queue + local + remote + response)", part.symbol());
        let line = Evidence::new("F23", "share", expression, self.share(part), "of D");
        Part::ALL.into_iter().fold(line, |line, part| {
            line.measured(part.symbol(), self.ms(part), "ms")
        })
    }
}
