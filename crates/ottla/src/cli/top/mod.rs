//! `ottla top`: one screen about a broker: rates, where requests spend their time, the worst
//! clients, the heaviest tenants, groups that are behind.

mod overview;
mod page;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use ottla_lab::ask::Door;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use self::overview::Overview;
use self::page::{Kind, PageLine};
use super::admin_address::AdminAddress;
use super::doctor::text::{Paper, clean, cut};
use super::live::{self, Lost};
use super::output::{Failure, print};

/// Rows of the page that is printed where there is no terminal.
const PRINTED_ROWS: usize = 60;

/// Show a broker at a glance: rates, the time of requests by stage, the worst clients, the heaviest
/// tenants, groups that are behind
///
/// A live screen until q is pressed; without a terminal it is printed once. The same as the
/// overview of the console, for ssh. Exit status: 0 shown, 2 no answer or wrong usage.
#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    broker: AdminAddress,

    /// Refresh interval in seconds, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = live::interval)]
    interval: f64,

    /// Print one page and exit, also on a terminal
    #[arg(long)]
    once: bool,
}

impl Top {
    pub fn run(self) -> ExitCode {
        match self.show() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report("ottla top"),
        }
    }

    fn show(self) -> Result<(), Failure> {
        let door = self.broker.door()?;
        if self.once || !std::io::stdout().is_terminal() {
            return print_once(&door);
        }
        let screen = Screen {
            address: door.address().to_owned(),
            last: None,
            lost: Lost::default(),
        };
        live::run(screen, self.interval, move || Overview::ask(&door))
    }
}

fn print_once(door: &Door) -> Result<(), Failure> {
    let overview = Overview::ask(door).map_err(Failure::unanswered)?;
    let paper = Paper::of_stdout();
    let mut text = String::new();
    for line in page::lines(&overview, paper.width, PRINTED_ROWS) {
        let styled = match line.kind {
            Kind::Title => paper.bold(&line.text),
            Kind::Heading => paper.faint(&line.text),
            Kind::Plain => line.text,
        };
        text.push_str(styled.trim_end());
        text.push('\n');
    }
    print(&text)
}

/// The content of the screen.
struct Screen {
    address: String,
    last: Option<Overview>,
    lost: Lost,
}

impl live::Screen for Screen {
    type Answer = Overview;

    fn receive(&mut self, answer: Result<Overview, String>, now: Instant) {
        match answer {
            Ok(overview) => {
                self.last = Some(overview);
                self.lost.answered();
            }
            Err(why) => self.lost.failed(why, now),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>, now: Instant) {
        let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
        let [head, middle, keys] = Layout::vertical(rows).areas(frame.area());
        let state = match (self.lost.line(now), &self.last) {
            (Some(lost), _) => lost,
            (None, Some(_)) => String::new(),
            (None, None) => String::from("waiting for the first answer"),
        };
        let title = format!("ottla top {}  {state}", clean(&self.address));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(cut(&title, head.width.into()), bold), head);
        frame.render_widget(Line::raw("q quit"), keys);
        let Some(overview) = &self.last else { return };
        let lines = page::lines(overview, middle.width.into(), middle.height.into());
        frame.render_widget(Paragraph::new(Text::from_iter(lines.iter().map(styled))), middle);
    }
}

fn styled(line: &PageLine) -> Line<'_> {
    let style = Style::new();
    Line::styled(
        line.text.as_str(),
        match line.kind {
            Kind::Title => style.add_modifier(Modifier::BOLD),
            Kind::Heading => style.add_modifier(Modifier::DIM),
            Kind::Plain => style,
        },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::live::Screen as _;
    use super::*;

    fn shown(screen: &Screen, now: Instant) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..buffer.area.height)
            .map(|y| line(y).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn the_screen_survives_a_broker_that_is_gone() {
        let now = Instant::now();
        let mut screen = Screen {
            address: String::from("127.0.0.1:9644"),
            last: None,
            lost: Lost::default(),
        };
        assert!(shown(&screen, now)[0].ends_with("waiting for the first answer"));
        screen.receive(Ok(overview::sample()), now);
        let page = shown(&screen, now).join("\n");
        assert!(page.contains("orders-writer"), "{page}");
        screen.receive(Err(String::from("refused\u{1b}")), now);
        let page = shown(&screen, now + Duration::from_secs(3));
        assert!(page[0].contains("NO ANSWER for 3 s"), "{page:?}");
        assert!(page.join("\n").contains("orders-writer"), "{page:?}");
    }
}
