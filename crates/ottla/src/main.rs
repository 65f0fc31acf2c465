//! The binary: one file per subcommand under `cli`.

mod cli;

use std::process::ExitCode;

/// What one thread allocates and another frees costs neither of them a lock: see docs/measurements/performance-notes.md, "The doctor".
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A huge page is cleared while whoever touches it first waits: milliseconds in an event loop, on every connection of it. Where
    // the kernel refuses this nothing is wrong, only slower at times.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    cli::run()
}
