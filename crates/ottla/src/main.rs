//! The binary: one file per subcommand under `cli`.

mod cli;

use std::process::ExitCode;

/// mimalloc: memory that one thread allocates and another frees takes no lock in either of them
/// (docs/measurements/performance-notes.md, "The doctor").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The kernel clears a huge page while the thread that first touches it waits: milliseconds in
    // an event loop, for all of its connections. If the kernel refuses the request, only these
    // stalls remain.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    cli::run()
}
