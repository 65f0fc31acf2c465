//! The bar of stages, followed by its own sum.

use ottla_lab::markup::Markup;

use super::parts::{self, Parts};
use crate::stage::{STAGE_COUNT, Stage};

/// A bar is labelled inside if it is at least this share of the width.
const LABEL_SHARE: f64 = 0.12;

/// The width of the hatched piece, which is not to scale.
const WAIT_SHARE: f64 = 0.05;

/// Stages in milliseconds, ready to be drawn.
#[derive(Clone, Debug)]
pub struct Stages {
    ms: [f64; STAGE_COUNT],
    shown: Parts,
}

impl Stages {
    pub fn of_ms(ms: [f64; STAGE_COUNT]) -> Stages {
        let own: Vec<f64> = Stage::ALL
            .into_iter()
            .map(|stage| {
                if stage.is_asked_for() {
                    0.0
                } else {
                    ms[stage as usize]
                }
            })
            .collect();
        Stages {
            ms,
            shown: parts::of_ms(&own),
        }
    }

    /// The sum without asked-for waits, as it is printed.
    pub fn total(&self) -> &str {
        &self.shown.total
    }

    /// The same in milliseconds.
    pub fn own_ms(&self) -> f64 {
        self.own().map(|(_, ms)| ms).sum()
    }

    fn own(&self) -> impl Iterator<Item = (Stage, f64)> {
        let own = Stage::ALL.into_iter().filter(|stage| !stage.is_asked_for());
        own.map(|stage| (stage, self.ms[stage as usize]))
    }

    fn largest(&self) -> Option<Stage> {
        let (stage, ms) = self.own().max_by(|one, other| one.1.total_cmp(&other.1))?;
        (ms > 0.0).then_some(stage)
    }

    fn waits(&self) -> impl Iterator<Item = (Stage, f64)> {
        let waits = Stage::ALL.into_iter().filter(|stage| stage.is_asked_for());
        waits
            .map(|stage| (stage, self.ms[stage as usize]))
            .filter(|(_, ms)| *ms >= 0.005)
    }

    /// Draws the bar; `full_ms` is the length of the whole width.
    pub fn draw_bar(&self, full_ms: f64, page: &mut Markup) {
        let full_ms = full_ms.max(1e-9);
        // Room for the hatched piece behind the longest bar.
        let room = 1.0 - WAIT_SHARE - 0.01;
        page.nest("svg", &[("class", &"bar"), ("aria-hidden", &"true")], |page| {
            let mut begin = 0.0;
            for (stage, ms) in self.own().filter(|(_, ms)| *ms > 0.0) {
                let share = ms / full_ms * room;
                let (x, width) = (percent(begin), percent(share));
                page.shape("rect", &[("class", &stage.class()), ("x", &x), ("width", &width)]);
                if share >= LABEL_SHARE && stage.carries_text() {
                    let middle = percent(begin + share / 2.0);
                    page.leaf(
                        "text",
                        &[("class", &"in m opt"), ("x", &middle), ("y", &14)],
                        stage.name(),
                    );
                }
                begin += share;
            }
            if self.waits().next().is_some() {
                let (x, width) = (percent(begin + 0.005), percent(WAIT_SHARE));
                page.shape("rect", &[("class", &"wait"), ("x", &x), ("width", &width)]);
            }
        });
    }

    /// Draws each stage in a row of its own, at the time when it happened.
    pub fn draw_steps(&self, full_ms: f64, page: &mut Markup) {
        const ROW: usize = 19;
        let steps: Vec<(usize, Stage, f64)> =
            (self.own().filter(|(stage, _)| !self.text_of(*stage).is_empty()))
                .enumerate()
                .map(|(row, (stage, ms))| (row, stage, ms))
                .collect();
        let height = (steps.len() * ROW).max(ROW);
        let about = self.sentence();
        let around: [(&'static str, &dyn std::fmt::Display); 5] = [
            ("class", &"bar st"),
            ("role", &"img"),
            ("aria-label", &about),
            ("height", &height),
            ("width", &"100%"),
        ];
        page.nest("svg", &around, |page| {
            let mut begin = 0.0;
            for (row, stage, ms) in &steps {
                let share = ms / full_ms.max(1e-9);
                let (y, text_y) = (row * ROW, row * ROW + 13);
                let (x, width) = (percent(begin), percent(share.max(0.002)));
                page.shape(
                    "rect",
                    &[("class", &stage.class()), ("x", &x), ("width", &width), ("y", &y)],
                );
                let label = format!("{} {}", stage.name(), self.text_of(*stage));
                let is_right = begin + share > 0.7;
                let (at, class) = match is_right {
                    true => (percent(begin - 0.008), "e"),
                    false => (percent(begin + share + 0.008), ""),
                };
                page.leaf("text", &[("class", &class), ("x", &at), ("y", &text_y)], label);
                begin += share;
            }
        });
    }

    fn text_of(&self, stage: Stage) -> &str {
        &self.shown.parts[stage as usize]
    }

    /// `read 0.06, queued 0.09 ms`
    pub fn sentence(&self) -> String {
        let shown = self.own().filter(|(stage, _)| !self.text_of(*stage).is_empty());
        let shown: Vec<String> = shown
            .map(|(stage, _)| format!("{} {}", stage.name(), self.text_of(stage)))
            .collect();
        format!("{} ms", shown.join(", "))
    }

    /// Draws `read 0.06 + queued 0.09 = 0.15 ms`, with the asked-for waits below.
    pub fn draw_sum(&self, page: &mut Markup) {
        let largest = self.largest();
        page.nest("div", &[("class", &"eq")], |page| {
            let shown = self.own().filter(|(stage, _)| !self.text_of(*stage).is_empty());
            for (index, (stage, _)) in shown.enumerate() {
                if index > 0 {
                    page.text(" + ");
                }
                let label = format!("{} {}", stage.name(), self.text_of(stage));
                page.open("i", &[("class", &stage.class())]);
                match largest == Some(stage) {
                    true => page.inline("b", &[], label),
                    false => page.text(label),
                }
                page.end("i");
            }
            page.open("span", &[]);
            page.text(" = ");
            page.inline("b", &[], format_args!("{} ms", self.total()));
            page.end("span");
            for (stage, ms) in self.waits() {
                page.literal("<br>");
                let label = format!("asked for: {} {} ms", stage.name(), parts::one_ms(ms));
                page.inline("i", &[("class", &"wait")], label);
            }
        });
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(given: &[(Stage, f64)]) -> Stages {
        let mut ms = [0.0; STAGE_COUNT];
        given
            .iter()
            .for_each(|(stage, value)| ms[*stage as usize] = *value);
        Stages::of_ms(ms)
    }

    #[test]
    fn the_sum_is_that_of_the_strings_beside_it() {
        let stages = stages(&[
            (Stage::Read, 0.0649),
            (Stage::Synced, 0.8149),
            (Stage::Written, 0.0449),
            (Stage::WaitedForData, 96.2),
        ]);
        let mut page = Markup::default();
        stages.draw_sum(&mut page);
        let html = page.into_string();
        assert!(html.contains("read 0.07") || html.contains("read 0.06"), "{html}");
        let numbers: Vec<u64> = html
            .split("</i>")
            .filter_map(|part| {
                let text = part.rsplit(' ').next()?.replace("</b>", "");
                text.replace('.', "").parse().ok()
            })
            .collect();
        assert_eq!(numbers.iter().sum::<u64>(), 92, "{html}");
        assert_eq!(stages.total(), "0.92");
        assert!(
            html.contains("<b>synced") && html.contains("asked for: waited_for_data 96.20 ms"),
            "{html}"
        );
    }

    #[test]
    fn a_bar_has_its_share_of_the_width_and_a_wait_is_hatched() {
        let mut page = Markup::default();
        stages(&[(Stage::Synced, 1.0), (Stage::Throttled, 50.0)]).draw_bar(2.0, &mut page);
        let html = page.into_string();
        assert!(
            html.contains("class=\"disk\" x=\"0.00%\" width=\"47.00%\""),
            "{html}"
        );
        assert!(html.contains("class=\"wait\""), "{html}");
    }
}
