//! The binary: one file per subcommand under `cli`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
