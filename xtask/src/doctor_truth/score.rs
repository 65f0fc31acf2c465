//! How often the doctor was right, over all rows that say something.

use std::fmt;

use anyhow::{Result, ensure};

use ottla_lab::numbers::percent;

use super::trial::Row;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    pub rows: usize,
    pub invalid: usize,
    /// Of the counted rows, those that were measured while others, or each other, took the
    /// processors.
    pub disturbed: usize,
    pub right: usize,
    pub false_refusals: usize,
    pub promises: usize,
    pub kept: usize,
    /// Of the promises that count, in ascending order: `Row::promise_error`.
    pub errors: Vec<f64>,
    /// Promises that do not count: more than the client offers.
    pub above_offer: usize,
    /// Advised changes that were tried where the true remedy helped, and those that did.
    pub changes: usize,
    pub helped: usize,
    pub healthy: usize,
    pub alarms: usize,
}

impl Score {
    pub fn of(rows: &[Row]) -> Score {
        let mut score = Score::default();
        for row in rows {
            if row.invalid.is_some() {
                score.invalid += 1;
                continue;
            }
            score.rows += 1;
            score.disturbed += usize::from(row.is_disturbed());
            score.right += usize::from(row.is_right());
            score.false_refusals += usize::from(!row.false_refusals.is_empty());
            score.promises += usize::from(row.is_promise_kept().is_some());
            score.kept += usize::from(row.is_promise_kept() == Some(true));
            score.errors.extend(row.promise_error());
            score.above_offer += usize::from(row.is_above_offer());
            score.changes += usize::from(row.has_helped.is_some());
            score.helped += usize::from(row.has_helped == Some(true));
            score.healthy += usize::from(row.is_healthy);
            score.alarms += usize::from(row.is_false_alarm());
        }
        score.errors.sort_by(f64::total_cmp);
        score
    }

    fn promises(&self) -> String {
        let mut text = format!("{} of {} promises kept", self.kept, self.promises);
        if let (Some(median), Some(worst)) = (median(&self.errors), self.errors.last()) {
            text += &format!(" (error {}, at worst {})", percent(median), percent(*worst));
        }
        if self.above_offer > 0 {
            text += &format!(", {} above what is offered and not counted", self.above_offer);
        }
        text
    }
}

/// - `sorted`: in ascending order.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (
        sorted.get(sorted.len().saturating_sub(1) / 2)?,
        sorted.get(sorted.len() / 2)?,
    );
    Some(low.midpoint(*high))
}

impl Score {
    /// Fails when the doctor was wrong about a client, or when there is nothing to judge it by. A
    /// broken promise does not count: what a change brings depends on the machine.
    pub fn check(&self) -> Result<()> {
        let wrong = self.rows - self.right;
        ensure!(
            self.rows > 0,
            "no construction held, so that nothing is known about the doctor"
        );
        ensure!(
            wrong + self.false_refusals + self.alarms == 0,
            "the doctor was wrong: {wrong} verdicts, {} refusals, {} alarms on healthy clients",
            self.false_refusals,
            self.alarms
        );
        Ok(())
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} verdicts right; {} false refusals; {}; {} of {} advised changes helped; {} false alarms on {} healthy clients; {} constructions did not hold",
            self.right,
            self.rows,
            self.false_refusals,
            self.promises(),
            self.helped,
            self.changes,
            self.alarms,
            self.healthy,
            self.invalid
        )?;
        if self.disturbed > 0 {
            write!(f, "; NOT PUBLISHABLE: {} lacked processors", self.disturbed)?;
        }
        Ok(())
    }
}

/// How often each verdict was given where another, or the same, is true: the first true verdict of
/// the regime, the given one, and the number.
pub fn confusion(rows: &[Row]) -> Vec<(String, String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for row in rows.iter().filter(|row| row.invalid.is_none()) {
        // Any of a regime's true verdicts counts as the true one.
        let truth = if row.truth.contains(&row.verdict) {
            row.verdict.clone()
        } else {
            row.truth.join(" or ")
        };
        *counts.entry((truth, row.verdict.clone())).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|((truth, verdict), count)| (truth, verdict, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::trial::Promise;
    use super::*;

    fn row(truth: &str, verdict: &str) -> Row {
        Row {
            truth: vec![truth.into()],
            verdict: verdict.into(),
            others: Some(0.02),
            ..Row::default()
        }
    }

    #[test]
    fn rows_whose_construction_did_not_hold_do_not_count() {
        let broken = Row {
            invalid: Some("no gain".into()),
            ..row("QUOTA", "QUOTA")
        };
        let refused = Row {
            false_refusals: vec!["batch.size".into()],
            ..row("NETWORK_RTT", "SENDER_RATE")
        };
        let alarm = Row {
            is_healthy: true,
            advice: Some("linger.ms=10".into()),
            ..row("KEEPS_UP", "KEEPS_UP")
        };
        let rows = [row("QUOTA", "QUOTA"), broken, refused, alarm];
        assert_eq!(Score::of(&rows).disturbed, 0);
        assert!(!Score::of(&rows).to_string().contains("NOT PUBLISHABLE"));
        let noisy = Row {
            others: Some(0.4),
            ..row("QUOTA", "QUOTA")
        };
        assert!(Score::of(&[noisy]).to_string().contains("NOT PUBLISHABLE: 1 "));
        let score = Score::of(&rows);
        assert_eq!((score.rows, score.invalid, score.right), (3, 1, 1));
        assert_eq!((score.false_refusals, score.alarms, score.healthy), (1, 1, 1));
        assert_eq!(confusion(&rows).len(), 3);
    }

    #[test]
    fn promises_say_by_how_much_and_changes_whether_they_helped() {
        let tried = |measured: f64, offered: f64, has_helped| Row {
            promise: Some(Promise {
                figure: "records_per_second".into(),
                low: 1_000.0,
                high: 1_000.0,
                unknown: None,
            }),
            promised_figure: Some(measured),
            offered: Some(offered),
            has_helped: Some(has_helped),
            ..row("QUOTA", "QUOTA")
        };
        let rows = [
            tried(1_000.0, 5_000.0, true),
            tried(1_250.0, 5_000.0, true),
            tried(500.0, 5_000.0, false),
            tried(500.0, 500.0, false),
            row("QUOTA", "QUOTA"),
        ];
        let words = Score::of(&rows).to_string();
        let promises =
            "1 of 3 promises kept (error 20 %, at worst 100 %), 1 above what is offered and not counted";
        assert!(words.contains(promises), "{words}");
        assert!(words.contains("2 of 4 advised changes helped"), "{words}");
        let none = Score::of(&[row("QUOTA", "QUOTA")]).to_string();
        assert!(none.contains("; 0 of 0 promises kept; 0 of 0 advised"), "{none}");
    }

    #[test]
    fn a_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 9.0]), Some(2.5));
    }

    #[test]
    fn a_strict_run_fails_by_a_wrong_verdict_refusal_or_alarm_or_without_a_row() {
        let right = || row("QUOTA", "QUOTA");
        let check = |row: Row| Score::of(&[right(), row]).check();
        assert!(check(right()).is_ok());
        let broken = Row {
            invalid: Some("no gain".into()),
            ..row("QUOTA", "BROKER")
        };
        assert!(check(broken.clone()).is_ok());
        assert!(Score::of(&[broken]).check().is_err());
        assert!(check(row("QUOTA", "BROKER")).is_err());
        let refused = Row {
            false_refusals: vec!["batch.size".into()],
            ..right()
        };
        let why = check(refused).expect_err("a refusal").to_string();
        assert!(why.contains("0 verdicts, 1 refusals, 0 alarms"), "{why}");
        let alarm = Row {
            is_healthy: true,
            advice: Some("linger.ms=10".into()),
            ..right()
        };
        let why = check(alarm).expect_err("an alarm").to_string();
        assert!(why.contains("1 alarms on healthy clients"), "{why}");
    }
}
