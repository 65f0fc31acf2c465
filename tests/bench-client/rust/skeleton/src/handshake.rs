//! The lines exchanged with the task runner, which reads CPU time and memory between them.

use std::fmt::Write as _;
use std::io::{BufRead, Write};

/// Prints `word` and waits for a line.
pub fn say_and_wait(word: &str) {
    println!("{word}");
    std::io::stdout()
        .flush()
        .expect("the task runner reads standard output");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .expect("the task runner writes to standard input");
}

/// One line of flat JSON.
#[derive(Default, Debug)]
pub struct Report {
    text: String,
}

impl Report {
    #[must_use]
    pub fn number(mut self, key: &str, value: impl std::fmt::Display) -> Report {
        let separator = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{separator}\"{key}\":{value}");
        self
    }

    #[must_use]
    pub fn text(self, key: &str, value: &str) -> Report {
        let escaped: String = value
            .chars()
            .map(|letter| match letter {
                '"' | '\\' => format!("\\{letter}"),
                control if control.is_control() => " ".to_string(),
                other => other.to_string(),
            })
            .collect();
        self.number(key, format_args!("\"{escaped}\""))
    }

    pub fn print(self) {
        println!("{{{}}}", self.text);
    }
}
