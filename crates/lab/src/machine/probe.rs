//! Measures how long a sync and a round trip take here.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::report::Percentiles;
use crate::report::histogram::Latencies;

/// Enough for a p99, and at 10 ms per sync (a spinning disk) still only one second.
const SYNCS: usize = 100;
/// The size of a small batch.
const APPEND: [u8; 512] = [0x5a; 512];
const BYTES_THERE_AND_BACK: usize = 500;
/// For a broker that may be remote; each one costs it a connection.
const CONNECTS: usize = 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ECHO_WITHIN: Duration = Duration::from_secs(5);

/// Measures small appends, each followed by `fdatasync`, as in a log that acknowledges one batch at
/// a time.
pub(super) fn sync_micros(directory: &Path) -> Percentiles {
    let mut latencies = Latencies::default();
    let path = directory.join(format!(".ottla-sync-probe-{}", std::process::id()));
    // What was measured before an error counts: the result holds the number of samples.
    let _ = append_and_sync(&path, &mut latencies);
    let _ = fs::remove_file(&path);
    latencies.percentiles(1.0)
}

fn append_and_sync(path: &Path, latencies: &mut Latencies) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    for _ in 0..SYNCS {
        let begin = Instant::now();
        file.write_all(&APPEND)?;
        file.sync_data()?;
        latencies.record(micros(begin));
    }
    Ok(())
}

pub(super) fn round_trip_micros(broker: Option<SocketAddr>) -> Percentiles {
    let mut latencies = Latencies::default();
    let _ = match broker {
        Some(address) if !address.ip().is_loopback() => connects(address, &mut latencies),
        _ => echoes(&mut latencies),
    };
    latencies.percentiles(1.0)
}

/// Measures `connect`, which returns when the answer to its first packet has arrived.
fn connects(address: SocketAddr, latencies: &mut Latencies) -> io::Result<()> {
    for _ in 0..CONNECTS {
        let begin = Instant::now();
        TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
        latencies.record(micros(begin));
    }
    Ok(())
}

fn echoes(latencies: &mut Latencies) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ECHO_WITHIN))?;
    }
    let echo = thread::Builder::new()
        .name(String::from("lab-echo"))
        .spawn(move || answer(far))?;
    let outcome = there_and_back(&mut near, latencies);
    drop(near);
    // It ends when its peer is gone.
    let _ = echo.join();
    outcome
}

fn there_and_back(stream: &mut TcpStream, latencies: &mut Latencies) -> io::Result<()> {
    let mut byte = [0];
    for _ in 0..BYTES_THERE_AND_BACK {
        let begin = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        latencies.record(micros(begin));
    }
    Ok(())
}

fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    while stream
        .read_exact(&mut byte)
        .and_then(|()| stream.write_all(&byte))
        .is_ok()
    {}
}

fn micros(begin: Instant) -> u64 {
    begin.elapsed().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_gives_no_samples() {
        assert_eq!(sync_micros(Path::new("/proc/no-such-place")).count, 0);
    }

    #[test]
    fn the_probe_file_is_removed() {
        let directory = std::env::temp_dir().join(format!("ottla-probe-test-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(sync_micros(&directory).count, SYNCS as u64);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn the_loopback_echoes() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(
            round_trip_micros(Some(address)).count,
            BYTES_THERE_AND_BACK as u64
        );
    }

    #[test]
    fn connects_are_counted_until_one_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut latencies = Latencies::default();
        connects(address, &mut latencies).unwrap();
        assert_eq!(latencies.count(), CONNECTS as u64);
        drop(listener);
        assert!(connects(address, &mut latencies).is_err());
    }
}
