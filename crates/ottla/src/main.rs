//! The binary: one file per subcommand under `cli`.

mod cli;

use std::process::ExitCode;

/// What one thread allocates and another frees costs neither of them a lock: see docs/performance-notes.md, "The doctor".
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
