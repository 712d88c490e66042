//! What a narrow line leaves out: whole parts, the least important first. A number is shown whole or not at all.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;
use watchdog_render::cut;

/// A part of a line.
#[derive(Clone, Debug)]
pub(super) struct LinePart {
    /// 0 always stays; of the others the highest is left out first.
    rank: u8,
    span: Span<'static>,
}

pub(super) fn part(rank: u8, text: impl Into<String>, style: Style) -> LinePart {
    LinePart { rank, span: Span::styled(text.into(), style) }
}

/// The parts that fit into this many columns.
pub(super) fn fitting(mut parts: Vec<LinePart>, columns: usize) -> Line<'static> {
    while parts.iter().map(|part| part.span.width()).sum::<usize>() > columns {
        let Some(highest) = parts.iter().map(|part| part.rank).max().filter(|rank| *rank > 0) else { break };
        parts.retain(|part| part.rank != highest);
    }
    parts.into_iter().map(|part| part.span).collect()
}

/// Cuts text after a word, with an ellipsis at the end. Only a word that is longer than half of the room is cut itself.
pub(super) fn cut_after_word(text: &str, columns: usize) -> String {
    let short = cut(text, columns);
    if short == text {
        return short;
    }
    let kept = short.strip_suffix('…').unwrap_or_default();
    let at_word = text.get(kept.len()..).is_some_and(|rest| rest.starts_with(' '));
    let words = if at_word { kept } else { kept.rsplit_once(' ').map_or("", |(words, _)| words) };
    if words.width() * 2 < columns { short } else { format!("{}…", words.trim_end_matches([' ', ',', ';', ':'])) }
}

/// As much of `text` as leaves room for `end`.
pub(super) fn cut_before(text: &str, end: &str, columns: usize) -> String {
    let room = columns.saturating_sub(end.width());
    format!("{}{end}", cut(text, room.max(1)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(20, "12 orphaned helpers")]
    #[case(18, "12 orphaned…")]
    #[case(12, "12 orphaned…")]
    #[case(11, "12 orphane…")]
    #[case(1, "…")]
    fn words_stay_whole(#[case] columns: usize, #[case] shown: &str) {
        assert_eq!(cut_after_word("12 orphaned helpers", columns), shown);
    }

    #[test]
    fn highest_rank_is_left_out_first() {
        let parts =
            || vec![part(2, "title ", Style::new()), part(0, "live", Style::new()), part(1, " 12:00", Style::new())];
        let text = |columns| fitting(parts(), columns).to_string();
        assert_eq!([16, 15, 10, 9, 3].map(text), ["title live 12:00", "live 12:00", "live 12:00", "live", "live"]);
    }

    #[test]
    fn end_of_text_stays() {
        assert_eq!(cut_before("claude-code", " (12)", 20), "claude-code (12)");
        assert_eq!(cut_before("claude-code", " (12)", 12), "claude… (12)");
    }
}
