//! Figures with their goals, and the table of them.

use std::fmt::{self, Display, Formatter};

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalVerdict {
    Met,
    Missed,
    /// The measurement is less certain than the distance to the goal.
    Undecided,
    /// There is no goal.
    Reported,
}

/// All figures so far.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Figure>);

#[derive(Debug)]
struct Figure {
    what: String,
    goal: String,
    measured: String,
    verdict: GoalVerdict,
}

impl Figures {
    /// A figure that must be at most `goal`, known to within `uncertainty`.
    pub(super) fn at_most(&mut self, what: impl Into<String>, goal: f64, measured: f64, uncertainty: f64, unit: &str) {
        let verdict = match measured {
            sure if sure + uncertainty <= goal => GoalVerdict::Met,
            unsure if unsure - uncertainty <= goal => GoalVerdict::Undecided,
            _ => GoalVerdict::Missed,
        };
        let margin = if uncertainty > 0.0 { format!(" ± {uncertainty:.1}") } else { String::new() };
        self.add(what, format!("≤ {goal} {unit}"), format!("{measured:.1}{margin} {unit}"), verdict);
    }

    /// A condition that must hold.
    pub(super) fn holds(&mut self, what: impl Into<String>, goal: &str, measured: impl Into<String>, met: bool) {
        self.add(what, goal.to_owned(), measured.into(), if met { GoalVerdict::Met } else { GoalVerdict::Missed });
    }

    /// A figure without a goal.
    pub(super) fn info(&mut self, what: impl Into<String>, measured: impl Into<String>) {
        self.add(what, "-".to_owned(), measured.into(), GoalVerdict::Reported);
    }

    fn add(&mut self, what: impl Into<String>, goal: String, measured: String, verdict: GoalVerdict) {
        self.0.push(Figure { what: what.into(), goal, measured, verdict });
    }
}

impl Display for Figures {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<50} {:>14} {:>24}  ", "figure", "goal", "measured")?;
        for Figure { what, goal, measured, verdict } in &self.0 {
            let verdict = match verdict {
                GoalVerdict::Met => "met",
                GoalVerdict::Missed => "MISSED",
                GoalVerdict::Undecided => "undecided",
                GoalVerdict::Reported => "",
            };
            writeln!(out, "{what:<50} {goal:>14} {measured:>24}  {verdict}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_within_noise_is_undecided() {
        for (measured, expected) in [(0.4, "met"), (0.8, "undecided"), (1.4, "undecided"), (1.6, "MISSED")] {
            let mut figures = Figures::default();
            figures.at_most("fork", 1.0, measured, 0.5, "%");
            assert!(figures.to_string().trim_end().ends_with(expected), "{figures}");
        }
    }
}
