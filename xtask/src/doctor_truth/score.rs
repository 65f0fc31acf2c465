//! How often the doctor was right, over all rows that say something.

use std::fmt;

use anyhow::{Result, ensure};

use super::trial::Row;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    pub rows: usize,
    pub invalid: usize,
    /// Of the counted rows, those that were measured beside work of others.
    pub disturbed: usize,
    pub right: usize,
    pub false_refusals: usize,
    pub promises: usize,
    pub kept: usize,
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
            score.healthy += usize::from(row.is_healthy);
            score.alarms += usize::from(row.is_false_alarm());
        }
        score
    }
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
            "{} of {} verdicts right; {} false refusals; {} of {} promises kept; {} false alarms on {} healthy clients; {} constructions did not hold",
            self.right,
            self.rows,
            self.false_refusals,
            self.kept,
            self.promises,
            self.alarms,
            self.healthy,
            self.invalid
        )?;
        if self.disturbed > 0 {
            write!(
                f,
                "; NOT PUBLISHABLE: {} were measured beside work of others",
                self.disturbed
            )?;
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
