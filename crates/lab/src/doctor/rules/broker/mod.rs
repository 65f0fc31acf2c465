//! Brokers: the largest part of a request's time, what it means, and what to do.

pub mod advice;
pub mod parts;
pub mod sharing;

use super::super::diagnosis::{Evidence, Finding, FindingId, Recommendation, Refusal};
use super::super::snapshot::{BrokerSide, Role, Snapshot};
use crate::formulas::queueing::{blocked_share, wait_factor};
use crate::numbers::{duration, number, percent};
use parts::{Part, Parts};

/// The idle share of network threads or handlers below which they are the cause.
pub const IDLE_SHARE_LOW: f64 = 0.3;

/// A process that uses more of its processors than this has no time to spare, whatever its threads'
/// idle shares are.
const CPU_USE_HIGH: f64 = 0.85;

/// What a broker's own numbers say about why it is slow.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub part: Part,
    /// Its share of D.
    pub share: f64,
    pub finding: Finding,
    pub evidence: Vec<Evidence>,
    pub recommendation: Recommendation,
    pub refused: Vec<Refusal>,
    pub missing: Vec<String>,
}

/// The finding that follows from a broker's own numbers: B3, B4, B5 or B6; contributing, until a
/// rule makes it the bottleneck.
///
/// `None`: the parts are not known separately, are meaningless (whole milliseconds below 2 ms), or
/// none of them dominates.
pub fn blame(side: &BrokerSide) -> Option<Finding> {
    judge(side, Role::Producer).map(|judgement| Finding {
        is_contributing: true,
        ..judgement.finding
    })
}

/// broker Which part of the broker's time is the largest?
///
/// D, the time of a request in the broker, has parts (F23): it waits in the request queue, is
/// served locally (the log), waits for followers (acks=all) or for records (a fetch), waits in the
/// response queue and is sent. The largest of the parts that exceed their threshold names the
/// cause; a throttle is counted separately. A fetch's wait for records is no cause and is left out.
///
/// - Numbers: queue, local, remote, response queue and send, in microseconds; idle shares of
///   handlers and network threads; use of the processor.
/// - Thresholds: queue 0.3 of D, local 0.5, remote 0.5, response 0.3, and at least 0.1 ms each;
///   threads are busy below 0.3 idle. Parts that were rounded to whole milliseconds are meaningless
///   below 2 ms.
/// - Says: "61 % of the broker's 118 ms are local: ..."
/// - Source: LINE talk, p99 article; the rounding was measured on Apache Kafka 4.3.
pub fn judge(side: &BrokerSide, role: Role) -> Option<Judgement> {
    let parts = Parts::of(side)?;
    let parts = match role {
        Role::Producer => parts,
        Role::Consumer => parts.without_remote(),
    };
    let part = parts.outstanding()?;
    let judged = match part {
        Part::Queue => handlers(side, &parts),
        Part::Local => log(side, &parts),
        Part::Remote if is_flush(side) => flush(side, &parts),
        Part::Remote => followers(side, &parts),
        Part::Response => network(side, &parts),
    };
    Some(judged)
}

/// The slowest of several brokers, by the time of its dominant part.
pub fn judge_all(sides: &[BrokerSide], role: Role) -> Option<Judgement> {
    let judged = sides.iter().filter_map(|side| {
        let judgement = judge(side, role)?;
        let parts = Parts::of(side)?;
        Some((judgement.share * parts.total_ms(), judgement))
    });
    judged
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|worst| worst.1)
}

/// B3 Are the broker's handlers or its processor busy?
///
/// A request in the request queue waits for a handler. Where handlers are idle at least 0.3 of the
/// time and the processor is not used up, the mean load does not explain the wait: requests come in
/// bursts, and the queue of a burst shows in the tail, not in the load.
///
/// - Numbers: queue part of D, idle share of handlers, use of the processor; Kingman's factor rho /
///   (1 - rho) (F24).
/// - Thresholds: queue at least 0.3 of D; handlers idle below 0.3, or the processor used above
///   0.85.
/// - Says: "a request waits 11.5 times its service time; half as many requests make it 0.85".
/// - Source: p99 article (utilisation near 100 %; micro-bursts of many idle clients).
fn handlers(side: &BrokerSide, parts: &Parts) -> Judgement {
    let utilisation = utilisation(side);
    let is_busy = match (side.handler_idle, side.cpu_use) {
        (Some(idle), _) if idle < IDLE_SHARE_LOW => Some(true),
        (_, Some(cpu)) if cpu > CPU_USE_HIGH => Some(true),
        (None, None) => None,
        _ => Some(false),
    };
    let why = match is_busy {
        Some(true) => String::from("handlers or processor have no time left"),
        Some(false) => format!(
            "handlers are idle {} of the time, so it is bursts that queue: look at requests per 100 ms, not at the mean",
            percent(side.handler_idle.unwrap_or(0.0))
        ),
        None => String::from("how busy handlers and processor are is not known"),
    };
    let mut evidence = vec![parts.line(Part::Queue)];
    if let Some(rho) = utilisation.filter(|rho| *rho < 1.0) {
        evidence.push(
            Evidence::new(
                "F24",
                "wait",
                "rho / (1 - rho)",
                wait_factor(rho),
                "service times",
            )
            .measured("rho", rho, ""),
        );
    }
    let mut missing = Vec::new();
    if is_busy.is_none() {
        missing.push(String::from(
            "idle share of the broker's handlers, use of its processor",
        ));
    }
    Judgement {
        part: Part::Queue,
        share: parts.share(Part::Queue),
        finding: finding(FindingId::B3, side, parts, Part::Queue, &why),
        evidence,
        recommendation: advice::fewer_requests(parts, utilisation, is_busy == Some(false)),
        refused: advice::refused_for_handlers(),
        missing,
    }
}

/// B4 Is the broker's log slow?
///
/// - Numbers: local part of D: reading, checking and appending batches, re-compressing them where
///   the topic's codec differs, and for fetches reading the log.
/// - Thresholds: local at least 0.5 of D.
/// - Says: "61 % of the broker's 118 ms are local: the log takes them (disk, page cache, locks), or
///   batches are compressed again".
/// - Source: 2.3.0 test report (a broker that shared its disk and memory with other programs), LINE
///   talk.
fn log(side: &BrokerSide, parts: &Parts) -> Judgement {
    let mut why = String::from(
        "the log takes them (disk, page cache, a lock), unless batches are compressed again for the topic's codec",
    );
    if let Some(cold) = cold_sentence(side) {
        why = format!("{why}; {cold}");
    }
    Judgement {
        part: Part::Local,
        share: parts.share(Part::Local),
        finding: finding(FindingId::B4, side, parts, Part::Local, &why),
        evidence: vec![parts.line(Part::Local)],
        recommendation: advice::faster_log(parts),
        refused: advice::refused_for_log(),
        missing: vec![String::from(
            "the disk's service time and the share of reads from the page cache",
        )],
    }
}

/// Whether the wait before the answer is for this broker's own disk.
fn is_flush(side: &BrokerSide) -> bool {
    let waits = side.flush_micros.zip(side.remote_micros);
    waits.is_some_and(|(flush, remote)| flush.is_finite() && flush > 0.0 && flush >= 0.5 * remote)
}

/// B4, flush Does the broker's disk make it slow?
///
/// A broker that answers acks=all from its own disk (Ottla) makes a request wait until the log is
/// flushed. Requests that wait at the same time share one flush (group commit), so the wait is the
/// disk's, whatever the requests hold: larger requests carry more per flush.
///
/// - Numbers: the wait for the flush, which such a broker reports separately from followers; remote
///   part of D.
/// - Thresholds: remote at least 0.5 of D, and the flush at least 0.5 of that.
/// - Says: "92 % of the broker's 2.3 ms are remote: they wait until the log is on the disk, and
///   requests that wait together share a flush".
/// - Source: measured on Ottla, whose requests of 231 bytes waited 2.1 of 2.3 ms for the disk.
fn flush(side: &BrokerSide, parts: &Parts) -> Judgement {
    let why = "they wait until the log is on the disk, and requests that wait together share a flush";
    Judgement {
        part: Part::Remote,
        share: parts.share(Part::Remote),
        finding: finding(FindingId::B4, side, parts, Part::Remote, why),
        evidence: vec![parts.line(Part::Remote)],
        recommendation: advice::faster_flush(parts),
        refused: advice::refused_for_flush(),
        missing: Vec::new(),
    }
}

/// B5 Do followers make it slow?
///
/// With acks=all a request waits until every in-sync replica has fetched it. A follower's fetch
/// walks all partitions that it follows on that broker, so the wait grows with the broker's
/// partitions, even for topics that have few.
///
/// - Numbers: remote part of D; the slowest follower where it is known.
/// - Thresholds: remote at least 0.5 of D.
/// - Says: "71 % of the broker's 21 ms wait for followers, the slowest is broker 3".
/// - Source: p99 article (108 to 7,200 partitions; min.insync.replicas changed nothing), Kontur
///   talk (num.replica.fetchers = 1).
fn followers(side: &BrokerSide, parts: &Parts) -> Judgement {
    let (why, missing) = match &side.slowest_follower {
        Some(name) => (
            format!("they wait for followers, the slowest is {name}"),
            Vec::new(),
        ),
        None => (
            String::from("they wait for followers"),
            vec![String::from("which follower is the slowest, and its lag")],
        ),
    };
    Judgement {
        part: Part::Remote,
        share: parts.share(Part::Remote),
        finding: finding(FindingId::B5, side, parts, Part::Remote, &why),
        evidence: vec![parts.line(Part::Remote)],
        recommendation: advice::faster_followers(parts),
        refused: advice::refused_for_followers(),
        missing,
    }
}

/// B6 Are the network threads busy or blocked?
///
/// A network thread that sends a fetch from pages that are not in memory waits for the disk, and
/// all connections of that thread wait with it (head-of-line blocking): producers see it as time in
/// the response queue and in sending.
///
/// - Numbers: response part of D, idle share of network threads, cold reads per second and their
///   time: blocked share = reads * t / threads (F26; 0.1 ms from the page cache, about 50 ms from a
///   disk).
/// - Thresholds: response queue and send at least 0.3 of D, network threads idle below 0.3. "Cold"
///   is claimed only where it was measured, otherwise it is "suspected".
/// - Says: "60 cold reads/s of 50 ms on 3 threads block 100 % of them".
/// - Source: LINE talk.
fn network(side: &BrokerSide, parts: &Parts) -> Judgement {
    let mut evidence = vec![parts.line(Part::Response)];
    let mut missing = Vec::new();
    let blocked = cold_line(side);
    let why = if let Some(line) = &blocked {
        evidence.push(line.clone());
        let measured = cold_sentence(side).unwrap_or_default();
        format!(
            "{measured}, which blocks {} of the network threads' time",
            percent(line.result.min(1.0))
        )
    } else {
        match side.network_idle {
            Some(idle) if idle < IDLE_SHARE_LOW => {
                format!(
                    "network threads are idle only {} of the time; cold reads are suspected",
                    percent(idle)
                )
            }
            Some(idle) => format!(
                "network threads are idle {} of the time: a slow reader or network, or cold reads (suspected)",
                percent(idle)
            ),
            None => String::from("busy network threads, a slow reader, or cold reads (suspected)"),
        }
    };
    if blocked.is_none() {
        missing.push(String::from(
            "reads from the disk and their time: without them a cold read is only suspected",
        ));
    }
    let utilisation = side
        .network_idle
        .map(|idle| 1.0 - idle)
        .into_iter()
        .chain(blocked.as_ref().map(|line| line.result))
        .reduce(f64::max)
        .map(|rho| rho.clamp(0.0, 1.0));
    Judgement {
        part: Part::Response,
        share: parts.share(Part::Response),
        finding: finding(FindingId::B6, side, parts, Part::Response, &why),
        evidence,
        recommendation: advice::free_network_threads(parts, utilisation, blocked.is_some()),
        refused: advice::refused_for_network(),
        missing,
    }
}

fn finding(id: FindingId, side: &BrokerSide, parts: &Parts, part: Part, why: &str) -> Finding {
    let whose = match side.node_id {
        Some(node_id) => format!("broker {node_id}'s"),
        None => String::from("the broker's"),
    };
    Finding {
        id,
        text: format!(
            "{} of {whose} {} are {}: {why}",
            percent(parts.share(part)),
            duration(parts.total_ms() / 1_000.0),
            part.words(),
        ),
        is_contributing: false,
    }
}

/// Returns rho of the busiest thread pool: handlers or network threads.
pub fn utilisation(side: &BrokerSide) -> Option<f64> {
    let idle = [side.handler_idle, side.network_idle]
        .into_iter()
        .flatten()
        .reduce(f64::min)?;
    Some((1.0 - idle).clamp(0.0, 1.0)).filter(|rho| rho.is_finite())
}

/// F26, where the broker measured its cold reads.
pub fn cold_line(side: &BrokerSide) -> Option<Evidence> {
    let (reads, time) = (side.cold_reads_per_second?, side.cold_read_ms?);
    if !(reads > 0.0 && time > 0.0) {
        return None;
    }
    // Kafka's default, where the number of threads is not known.
    let (threads, origin) = match side.network_threads {
        Some(threads) if threads >= 1.0 => (threads, "stated"),
        _ => (3.0, "default"),
    };
    let blocked = blocked_share(reads, time, threads);
    blocked.is_finite().then(|| {
        Evidence::new(
            "F26",
            "blocked",
            "reads * t / 1000 / threads",
            blocked,
            "of the network threads",
        )
        .measured("reads", reads, "/s")
        .measured("t", time, "ms")
        .with("threads", threads, "", origin)
    })
}

/// Returns `60 cold reads/s of 50 ms`, where they were measured.
pub fn cold_sentence(side: &BrokerSide) -> Option<String> {
    let reads = side.cold_reads_per_second.filter(|reads| *reads > 0.0)?;
    Some(match side.cold_read_ms {
        Some(time) => format!("{} cold reads/s of {} ms", number(reads), number(time)),
        None => format!("{} cold reads/s", number(reads)),
    })
}

/// L4 Did the whole broker pause?
///
/// A garbage collector's pause or a blocked process stretches every part of D, for all clients at
/// once. So when D jumps, no part dominates and no tenant took more time than before, the cause is
/// the broker as a whole.
///
/// - Numbers: this client's D over its own median of the last hour; parts of D; other clients'
///   shares of time, now and before.
/// - Thresholds: D doubled, no dominant part, no tenant's share grew by more than 0.05.
/// - Says: "all parts of D grew together: the broker paused".
/// - Source: LINE talk (pauses by unmapping index files).
pub fn pause(snapshot: &Snapshot) -> Option<String> {
    let growth = snapshot
        .neighbours
        .iter()
        .filter_map(|neighbour| neighbour.victim_growth)
        .reduce(f64::max)?;
    let has_grown = |neighbour: &super::super::snapshot::Neighbour| match neighbour.time_share_before {
        Some(before) => neighbour.time_share - before > super::tenant::GROWTH_MIN,
        None => false,
    };
    let side = snapshot.brokers.iter().find(|side| Parts::of(side).is_some())?;
    let parts = Parts::of(side)?;
    let is_even = parts.outstanding().is_none() && parts.known() >= 3;
    (growth > 2.0 && is_even && !snapshot.neighbours.iter().any(has_grown)).then(|| {
        format!(
            "the broker's time is {} times its median of the last hour, all parts of it grew together and no other client took \
             more: the broker as a whole paused (a collector, the machine); a matter of its version and memory, not of settings",
            number(growth)
        )
    })
}

#[cfg(test)]
mod tests;
