//! A page for each program and each command.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::Roff;

use crate::page::{Edition, MANUAL, prose, see_also, tidy, verbatim};

/// Headings in the help texts, and what man pages call these sections.
const SECTIONS: [(&str, &str); 3] =
    [("Examples:", "EXAMPLES"), ("Example:", "EXAMPLES"), ("Exit codes:", "EXIT STATUS")];

/// File names and texts.
pub(crate) fn pages(edition: &Edition) -> Vec<(String, String)> {
    let daemon = watchdog_daemon::WatchdogdOptions::command().disable_help_subcommand(true);
    let mut pages = vec![page(&built(daemon), "8", &["watchdogctl"], edition)];
    add(&built(watchdog_ctl::command()), &[], edition, &mut pages);
    pages
}

fn built(mut command: Command) -> Command {
    command.build();
    command
}

/// The command, and all commands below it.
fn add(command: &Command, above: &[&str], edition: &Edition, pages: &mut Vec<(String, String)>) {
    pages.push(page(command, "1", above, edition));
    let above = [above, &[name(command)]].concat();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, &above, edition, pages);
    }
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, section: &str, others: &[&str], edition: &Edition) -> (String, String) {
    let man = Man::new(command.clone()).title(name(command).to_uppercase()).section(section);
    let man = man.date(&edition.date).source(edition.source()).manual(MANUAL);
    let mut text = Vec::new();
    let help = HelpText::of(command);
    let name = name(command);
    // Writing to a vector cannot fail.
    let _ = man.render_title(&mut text);
    let _ = man.render_name_section(&mut text);
    let _ = man.render_synopsis_section(&mut text);
    if help.prose.is_empty() {
        let _ = man.render_description_section(&mut text);
    } else {
        let mut roff = Roff::default();
        roff.control("SH", ["DESCRIPTION"]);
        prose(&mut roff, &help.prose);
        let _ = roff.to_writer(&mut text);
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        let _ = man.render_options_section(&mut text);
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        let _ = man.render_subcommands_section(&mut text);
    }
    let mut roff = Roff::default();
    for (heading, lines) in &help.sections {
        roff.control("SH", [*heading]);
        // Indented blocks are commands and tables, other lines are sentences.
        for block in lines.split("\n\n") {
            let (indented, sentences): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with(' '));
            let indented: Vec<&str> = indented.iter().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
            if !indented.is_empty() {
                verbatim(&mut roff, &indented.join("\n"));
            }
            if !sentences.is_empty() {
                roff.control("PP", []);
                prose(&mut roff, &sentences.join("\n"));
            }
        }
    }
    let mut also: Vec<(String, &str)> = others.iter().map(|other| ((*other).to_owned(), "1")).collect();
    also.push(("agent-watchdog.toml".to_owned(), "5"));
    if name != "watchdogd" {
        also.push(("watchdogd".to_owned(), "8"));
    }
    see_also(&mut roff, &also);
    let _ = roff.to_writer(&mut text);
    (format!("{name}.{section}"), tidy(&String::from_utf8_lossy(&text)))
}

/// The text after the options, by its headings.
#[derive(Default)]
struct HelpText {
    prose: String,
    sections: Vec<(&'static str, String)>,
}

impl HelpText {
    fn of(command: &Command) -> Self {
        let text = command.get_after_long_help().or_else(|| command.get_after_help()).map(ToString::to_string);
        let mut help = Self::default();
        for line in text.unwrap_or_default().lines() {
            if let Some((_, name)) = SECTIONS.iter().find(|(heading, _)| *heading == line) {
                help.sections.push((name, String::new()));
                continue;
            }
            let section = help.sections.last_mut().map_or(&mut help.prose, |(_, text)| text);
            section.push_str(line);
            section.push('\n');
        }
        help.sections.iter_mut().for_each(|(_, text)| *text = text.trim_end().to_owned());
        help
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let pages = pages(&Edition { version: "1.2.3".into(), date: "2026-01-31".into() });
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["watchdogd.8", "watchdogctl.1", "watchdogctl-tree.1", "watchdogctl-config-check.1"] {
            assert!(names.contains(&name), "{name} is missing in {names:?}");
        }
        let (_, tree) = pages.iter().find(|(name, _)| name == "watchdogctl-tree.1").unwrap();
        for part in ["1.2.3", "2026-01-31", ".SH EXAMPLES", "prompts or secrets", "\\-\\-ended"] {
            assert!(tree.contains(part), "{part} is missing in {tree}");
        }
    }

    #[test]
    fn help_is_split_at_headings() {
        let help = HelpText::of(&Command::new("x").after_help("One.\nTwo.\n\nExamples:\n  a\n  b\n\nExit codes:\n  0"));
        assert_eq!(help.prose, "One.\nTwo.\n\n");
        assert_eq!(help.sections, [("EXAMPLES", "  a\n  b".to_owned()), ("EXIT STATUS", "  0".to_owned())]);
    }
}
