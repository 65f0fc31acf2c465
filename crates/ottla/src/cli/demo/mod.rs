//! `ottla demo`: measures on this machine, in two minutes, whether the doctor's promises hold.

mod acts;
mod stage;
mod proof;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use acts::ACTS;
use stage::Stage;

use super::output::{Failure, Format};

/// Create four bottlenecks, apply the change the doctor recommends, and measure whether it helped
///
/// Starts a broker in this process; nothing else is needed. Exit status: 0 every promise was kept,
/// 1 a promise was not kept.
#[derive(Args)]
pub struct Demo {
    /// Run only this act; without it all four run in turn
    #[arg(long, value_enum)]
    act: Option<ActName>,

    /// Duration of each measurement in seconds, after a warm-up of 2 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 7, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,

    /// Output: text for people, or one JSON document at the end
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Keep the broker and its console open at the end, until Ctrl-C
    #[arg(long)]
    stay: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActName {
    /// More records per second than one sender's requests can carry (experiment I of the Kontur
    /// talk)
    RequestRate,
    /// A completion callback that blocks the sender thread
    Callback,
    /// A TCP window that is too small for the link's round trip
    Window,
    /// Another client floods the broker with tiny requests
    Neighbour,
}

impl Demo {
    pub fn run(self) -> ExitCode {
        match self.play() {
            Ok(status) => status,
            Err(problem) => Failure::failed(problem).report("ottla demo"),
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
        let broken = proofs.iter().filter(|(_, proof)| !proof.is_kept()).count();
        if broken > 0 {
            eprintln!("ottla demo: {broken} of {} promises were not kept", proofs.len());
        }
        self.end(&stage)?;
        Ok(ExitCode::from(u8::from(broken > 0)))
    }

    /// Says where the console is, and keeps it open if that is wanted.
    fn end(&self, stage: &Stage) -> Result<(), String> {
        let words = closing(stage.console(), self.stay);
        match self.format {
            Format::Text => println!("{words}"),
            // Standard output is one document.
            _ => eprintln!("{words}"),
        }
        if self.stay {
            let mut signals =
                Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("cannot handle signals: {error}"))?;
            signals.forever().next();
        }
        Ok(())
    }
}

fn closing(console: SocketAddr, stays: bool) -> String {
    match stays {
        true => format!("The console of this broker: http://{console}/clients (Ctrl-C ends it)"),
        false => format!(
            "The console of this broker was http://{console}/clients; with --stay it is open until Ctrl-C"
        ),
    }
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is one");
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
