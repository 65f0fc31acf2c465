//! Our own client as a contender.

mod consumer;
mod producer;

use consumer::Consumer;
use producer::Producer;
use skeleton::arguments::Arguments;
use skeleton::consume::{self, Read};
use skeleton::produce::{self, Load};

const VERSION: &str = "ottla-client 0.1.0";

fn main() {
    let arguments = Arguments::of_process();
    match arguments.mode.as_str() {
        "produce" => {
            let load = Load::from(&arguments);
            produce::run(&load, &Producer::new(&load));
        }
        "consume" => {
            let read = Read::from(&arguments);
            consume::run(&read, &mut Consumer::new(&read));
        }
        other => panic!("unknown mode {other}"),
    }
}
