//! Queueing, and the load added by replicas and cold reads (F24 to F26).

/// F24: `rho / (1 - rho)`, mean wait in service times (Kingman, p99 article); infinite from rho = 1
/// on.
pub fn wait_factor(utilisation: f64) -> f64 {
    if utilisation >= 1.0 {
        f64::INFINITY
    } else {
        utilisation / (1.0 - utilisation)
    }
}

/// F24: `1 / (1 - rho)`, mean time in the system, waiting and served, in service times (Kingman,
/// p99 article).
pub fn time_factor(utilisation: f64) -> f64 {
    1.0 + wait_factor(utilisation)
}

/// Utilisation after a tenant's requests were reduced: `rho - removed * share` (LINE talk).
///
/// - `removed`: the share of its requests that disappear; `share`: its share of all threads' time.
pub fn utilisation_without(utilisation: f64, removed: f64, share: f64) -> f64 {
    (utilisation - removed * share).max(0.0)
}

/// F25: `RF * w`, the bytes per second that a broker writes when leaders are spread evenly (p99
/// article).
pub fn written_bytes_per_second(replicas: f64, produced_bytes_per_second: f64) -> f64 {
    replicas * produced_bytes_per_second
}

/// F25: `r + (RF - 1) * w`, the bytes per second that are read from it (p99 article).
pub fn read_bytes_per_second(
    replicas: f64,
    produced_bytes_per_second: f64,
    consumed_bytes_per_second: f64,
) -> f64 {
    consumed_bytes_per_second + (replicas - 1.0) * produced_bytes_per_second
}

/// F26: `reads * t / threads`, the share of network threads that cold reads block (LINE talk).
pub fn blocked_share(cold_reads_per_second: f64, cold_read_ms: f64, network_threads: f64) -> f64 {
    cold_reads_per_second * cold_read_ms / 1_000.0 / network_threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::within;

    #[test]
    fn waiting_explodes() {
        for (utilisation, factor) in [(0.5, 1.0), (0.8, 4.0), (0.9, 9.0), (0.95, 19.0)] {
            within(wait_factor(utilisation), factor, 0.01);
        }
        assert_eq!(wait_factor(1.2), f64::INFINITY);
        // The tenant rule's example: from 0.92 to 0.55 is from 11.5 to 1.2.
        within(wait_factor(0.92), 11.5, 0.1);
        within(time_factor(0.55), 2.22, 0.2);
        within(utilisation_without(0.92, 0.9, 0.41), 0.55, 0.5);
        within(wait_factor(utilisation_without(0.92, 0.9, 0.41)), 1.2, 3.0);
    }

    #[test]
    fn replicas_multiply_the_load() {
        assert_eq!(written_bytes_per_second(3.0, 10.0), 30.0);
        assert_eq!(read_bytes_per_second(3.0, 10.0, 20.0), 40.0);
    }

    #[test]
    fn sixty_cold_reads_a_second_block_three_threads() {
        assert_eq!(blocked_share(60.0, 50.0, 3.0), 1.0);
        within(blocked_share(60.0, 0.1, 3.0), 0.002, 0.1);
    }
}
