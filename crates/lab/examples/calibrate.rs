//! Measures what the generator does alone on this machine: `cargo run --release -p ottla-lab
//! --example calibrate [records/s]`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ottla_lab::load::calibrate::calibrate;

fn main() -> ExitCode {
    let rate = match std::env::args().nth(1).map(|text| text.parse()) {
        None => 200_000.0,
        Some(Ok(rate)) => rate,
        Some(Err(error)) => {
            eprintln!("calibrate: not a rate: {error}");
            return ExitCode::from(2);
        }
    };
    for record_bytes in [100, 256] {
        match calibrate(record_bytes, &BTreeMap::new(), Some(rate)) {
            Ok(calibration) => println!(
                "{record_bytes} bytes: {:.0} records/s, {:.3} CPU seconds per million; at {rate} records/s p99 of the schedule error {} µs",
                calibration.records_per_second,
                calibration.cpu_seconds_per_million,
                calibration.schedule_error_p99_micros
            ),
            Err(error) => {
                eprintln!("calibrate: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
