//! The shared limit of several clients that together get less than the sum of what each gets alone.

/// What was measured with one client and with several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    pub alone_bytes_per_second: f64,
    pub clients: f64,
    pub together_bytes_per_second: f64,
    /// Bandwidth of each broker's link.
    pub link_bytes_per_second: Option<f64>,
    pub disk_bytes_per_second: Option<f64>,
    pub brokers: f64,
}

impl Sharing {
    /// What the clients would get if they shared no limit.
    pub fn offered_bytes_per_second(&self) -> f64 {
        self.alone_bytes_per_second * self.clients
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    None,
    Link,
    Disk,
    Broker,
}

/// Below this share of what was offered there is a shortage; smaller gaps are measurement noise.
const TAKEN_SHARE_MIN: f64 = 0.9;

/// A limit that is used to this share is the bottleneck (F15: a link carries 0.92 of its bits as
/// bytes of requests).
const USE_HIGH: f64 = 0.85;

/// sharing Who is the limit of clients that slow each other?
///
/// Clients that reach a rate alone, and together less than its multiple, share a limit. It is the
/// link or the disk where these are nearly used up, otherwise the broker itself: its processor,
/// locks and threads. In that case more brokers help in proportion; more clients, threads or
/// consumers do not.
///
/// - Numbers: bytes per second of one client alone and of all together; bandwidth of link and
///   disks.
/// - Thresholds: less than 0.9 of what was offered; a link or disk above 0.85 of what it carries.
/// - Says: "the broker is the limit: 50 MB/s of 111 MB/s offered, less than network and disk
///   carry".
/// - Source: 2.3.0 test report (3 producers of 37 MB/s each got 50; 3 consumers of 25 got 47).
pub fn shortage(sharing: &Sharing) -> Shortage {
    let together = sharing.together_bytes_per_second;
    if together >= TAKEN_SHARE_MIN * sharing.offered_bytes_per_second() {
        return Shortage::None;
    }
    let is_used = |limit: Option<f64>| {
        limit.is_some_and(|limit| together >= USE_HIGH * limit * sharing.brokers.max(1.0))
    };
    if is_used(sharing.link_bytes_per_second) {
        Shortage::Link
    } else if is_used(sharing.disk_bytes_per_second) {
        Shortage::Disk
    } else {
        Shortage::Broker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_the_test_report_share_a_broker() {
        // Network 125 MB/s, disk 201 MB/s (direct reads 130).
        for (name, alone, clients, together, link, brokers, expected) in [
            ("T2, 3 producers", 37e6, 3.0, 50e6, 125e6, 1.0, Shortage::Broker),
            ("T2, 6 producers", 37e6, 6.0, 50e6, 125e6, 1.0, Shortage::Broker),
            ("T3, 100 Mbit/s", 37e6, 3.0, 12.0e6, 12.5e6, 1.0, Shortage::Link),
            ("T9, 3 brokers", 50e6, 3.0, 150e6, 125e6, 3.0, Shortage::None),
            ("T11, 3 consumers", 25e6, 3.0, 47e6, 125e6, 1.0, Shortage::Broker),
        ] {
            let sharing = Sharing {
                alone_bytes_per_second: alone,
                clients,
                together_bytes_per_second: together,
                link_bytes_per_second: Some(link),
                disk_bytes_per_second: Some(201e6),
                brokers,
            };
            assert_eq!(shortage(&sharing), expected, "{name}");
        }
    }
}
