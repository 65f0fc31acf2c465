//! Waiting for a shortage of descriptors to end.

use ottla_log::disk::Disk;

/// How many pauses to wait out a shortage of descriptors before giving up on a clean stop.
const PAUSES_MAX: u32 = 300;

/// Retries while there is a shortage of descriptors, at most `PAUSES_MAX` times. Waits for the
/// disk.
pub(crate) fn outlast_shortage<T, E>(
    disk: &dyn Disk,
    is_shortage: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut pauses = 0;
    loop {
        match attempt() {
            Err(error) if is_shortage(&error) && pauses < PAUSES_MAX => {
                pauses += 1;
                disk.pause();
            }
            outcome => return outcome,
        }
    }
}
