//! `ottla demo`: the doctor's promises, kept or not, on this machine in two minutes.

mod stage;
mod acts;
mod proof;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use acts::ACTS;
use stage::Stage;

/// Let the doctor find a bottleneck, apply its change, and measure whether the promise was kept
///
/// Starts a broker in this process; nothing else is needed. Exit status 1: a promise was not kept.
#[derive(Args)]
pub struct Demo {
    /// One act only.
    #[arg(long, value_enum)]
    act: Option<ActName>,

    /// How long each measurement lasts, after two seconds of warm-up.
    #[arg(long, value_name = "SECONDS", default_value_t = 7, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,

    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActName {
    /// Experiment I of the Kontur talk: more records than the sender's requests carry
    RequestRate,
    /// A callback that blocks
    Callback,
    /// A link whose window is too small for its round trip
    Window,
    /// A neighbour that sends a flood of tiny requests
    Neighbour,
}

impl Demo {
    pub fn run(self) -> ExitCode {
        match self.play() {
            Ok(status) => status,
            Err(problem) => {
                eprintln!("ottla demo: {problem}");
                ExitCode::FAILURE
            }
        }
    }

    fn play(&self) -> Result<ExitCode, String> {
        let stage = Stage::open(Duration::from_secs(self.seconds))?;
        let bar = progress();
        let mut proofs = Vec::new();
        for act in ACTS
            .iter()
            .filter(|act| self.act.is_none_or(|name| name == act.name))
        {
            let proof = (act.play)(&stage, &|what| bar.set_message(format!("{}: {what}", act.title)))?;
            bar.suspend(|| {
                if self.format == Format::Text {
                    println!("{}\n{proof}", act.title);
                }
            });
            proofs.push((act.title, proof));
        }
        bar.finish_and_clear();
        if self.format == Format::Json {
            println!("{}", proof::json(&proofs));
        }
        Ok(ExitCode::from(u8::from(
            !proofs.iter().all(|(_, proof)| proof.is_kept()),
        )))
    }
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is one");
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
